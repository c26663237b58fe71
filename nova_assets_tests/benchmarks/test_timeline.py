"""The benchmark of the timeline service: that it measures what it says, on a few partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.timeline import __main__ as timeline
from benchmarks.timeline import storages
from benchmarks.timeline.events import Size
from nova_assets.settings import VIEW_STORAGES

SIZE = Size(
    *(6, 2, 3),
    together=3,
    listed=(2, 2),
    clients=2,
    seconds=0.2,
    rounds=1,
    touched=(1, 3),
    random=5,
)


@pytest.mark.long
def test_it_prints_its_tables_and_a_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    urls = {"SQLite": f"sqlite:///{tmp_path / 'catalog.db'}"}
    figures = timeline.run(urls, tmp_path, SIZE, ("memory",))
    timeline.show(figures, SIZE)
    print(timeline.headline(figures))
    printed = capsys.readouterr().out
    for what in ("service: SQLite, memory", "catalog: SQLite", "folders, listed", "3 touched", "to stop"):
        assert what in printed
    assert printed.splitlines()[-1].startswith("timeline: SQLite ")
    views = figures["catalogs"]["SQLite"]["views"]["memory"]
    assert views["lookups"]["lookups"] > 0 and views["listings"] in (0, None)


@pytest.mark.slow
def test_the_storages_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = storages.compare(tmp_path, SIZE)
    storages.show(figures, SIZE)
    assert tuple(figures["storages"]) == VIEW_STORAGES and figures["blocks"] == 12
    for of in figures["storages"].values():
        assert of["build"]["lookups"] > 0 and of["build"]["p99"] >= of["build"]["p50"] > 0
        assert of["restart"]["loaded"] == 0 and of["restart"]["all"] > of["restart"]["opened"] > 0
    assert storages.headline(figures).startswith("timeline storages: disk ")
