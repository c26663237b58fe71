"""One workflowette that is bound twice in one deployment: two sets of channels, two cursors, different parameters (Nova
§2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nova_assets_tests.dagster_bridge.daemon import Daemon
from nova_assets_tests.dagster_bridge.deployed import comes_to_rest, firings, insert, keys, opened, write_definitions

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore")]

DEFINITIONS = """
import pathlib
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

DDL = "k bigint, v bigint"
names = ("eu_articles", "eu_kept", "us_articles", "us_kept")
eu_articles, eu_kept, us_articles, us_kept = (nova.Channel(n, schema=DDL) for n in names)

@nova.task(consumes=nova.new("articles"), produces=nova.delta("kept"))
def keep_long(ctx, articles):
    if pathlib.Path(__file__).with_name(ctx.params["broken"]).exists():
        raise ValueError("still broken")
    return [row for row in articles if row["v"] >= ctx.params["least"]]

filtering = nova.Workflowette("filtering", [keep_long])
eu = nova.bind(filtering, name="eu", channels={"articles": eu_articles, "kept": eu_kept},
               params={"least": 3, "broken": "eu_broken"}, when=nova.on_data(eu_articles), attempts=9)
us = nova.bind(filtering, name="us", channels={"articles": us_articles, "kept": us_kept},
               params={"least": 5, "broken": "us_broken"}, when=nova.on_data(us_articles), attempts=9)
project = nova.Project([eu, us])
defs = build_definitions(project, catalog={catalog!r}, warehouse={warehouse!r})
"""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path, datetime.now(UTC).replace(microsecond=0))
    write_definitions(daemon, DEFINITIONS, monkeypatch)
    daemon.iterate()
    yield daemon
    daemon.held.close()


@pytest.mark.slow
def test_each_binding_reads_its_own_channels_with_its_own_parameters_and_cursor(daemon: Daemon) -> None:
    insert(daemon, "eu_articles", *range(1, 7))
    insert(daemon, "us_articles", *range(1, 9))
    comes_to_rest(daemon)
    assert keys(daemon, "eu_kept") == [3, 4, 5, 6] and keys(daemon, "us_kept") == [5, 6, 7, 8]

    (daemon.root / "eu_broken").touch()  # one binding fails, and the other one goes on
    insert(daemon, "eu_articles", 7)
    insert(daemon, "us_articles", 9)
    daemon.later(minutes=1)
    daemon.iterate()
    daemon.iterate()
    assert keys(daemon, "eu_kept") == [3, 4, 5, 6] and keys(daemon, "us_kept") == [5, 6, 7, 8, 9]
    with opened(daemon) as store:
        cursors = {(c.binding, c.channel): (c.seq, c.lag) for c in store.cursors()}
    assert cursors == {("eu", "eu_articles"): (1, 1), ("us", "us_articles"): (2, 0)}

    (daemon.root / "eu_broken").unlink()
    comes_to_rest(daemon, minutes=70)
    assert keys(daemon, "eu_kept") == [3, 4, 5, 6, 7]
    assert firings(daemon, "eu") == [(2, "committed")] and firings(daemon, "us") == [(2, "committed")]
