"""A deployment with one binding of each kind, on which the tests of the daemon's work look and act."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from typing import Any

import pytest

from nova_assets.dagster_bridge import resources
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.dagster_bridge.daemon import Daemon

DEFINITIONS = """
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

DDL = "k bigint, v bigint"
source, other, copy, second = (nova.Channel(n, schema=DDL) for n in ("source", "other", "copy", "second"))
day = nova.daily("day", start="2024-01-01")
daily, sums = (nova.Channel(n, schema="day string, k bigint", partitions=day) for n in ("daily", "sums"))

@nova.task(consumes=nova.new(source), produces=nova.delta(copy))
def mirror(source):
    import pathlib
    broken = pathlib.Path(__file__).with_name("broken")
    if broken.exists():
        raise ValueError("still broken")
    return source

@nova.task(consumes=nova.new(other), produces=nova.delta(second))
def again(other):
    return other

@nova.task(consumes=nova.new(daily), produces=nova.delta(sums))
def by_day(daily):
    return daily

w = nova.bind(nova.Workflowette("w", [mirror]), when={when}, attempts=3, backoff="10m")
b = nova.bind(nova.Workflowette("b", [again]))
d = nova.bind(nova.Workflowette("d", [by_day]), when=nova.on_data(daily))
project = nova.Project([w, b, d])
defs = build_definitions(project, catalog={catalog!r}, warehouse={warehouse!r})
"""

MakeDaemon = Callable[[str], Daemon]
"""``daemon(trigger)``: the deployment, whose binding ``w`` has that trigger."""


def write_definitions(daemon: Daemon, definitions: str, monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Write the file of definitions, register its project, and let the bridge open the daemon's stores.

    Args:
        values: further placeholders of the definitions, and the texts in their place.
    """
    monkeypatch.setattr(resources, "open_store", daemon.opener)
    addresses = {"catalog!r": repr(daemon.catalog), "warehouse!r": repr(daemon.warehouse)}
    for name, text in {**values, **addresses}.items():
        definitions = definitions.replace(f"{{{name}}}", text)
    daemon.file.write_text(definitions)
    with opened(daemon) as store:
        store.register(runpy.run_path(str(daemon.file))["project"])


def opened(daemon: Daemon) -> Store:
    return daemon.opener(None, settings=load_settings(catalog=daemon.catalog, warehouse=daemon.warehouse))


def insert(daemon: Daemon, channel: str, *keys: int, **more: Any) -> None:
    with opened(daemon) as store:
        store.insert(channel, [{**more, "k": k} if more else {"k": k, "v": k} for k in keys])


def keys(daemon: Daemon, channel: str) -> list[int]:
    with opened(daemon) as store:
        return sorted(r["k"] for r in store.read(channel).to_spark())  # type: ignore[union-attr]


def firings(daemon: Daemon, binding: str = "w", partition: str = "") -> list[tuple[int, str]]:
    """The numbers of all firings, and what became of them."""
    with opened(daemon) as store:
        last = store.catalog.firings.last(binding, partition)
        return [] if last is None else [(last.n, last.state)]


def comes_to_rest(daemon: Daemon, minutes: float = 5, statuses: tuple[str, ...] = ("SUCCESS", "FAILURE")) -> None:
    """Iterate until nothing is under way any more, and once more."""
    resting = 0
    for _ in range(15):
        daemon.later(minutes=minutes)
        daemon.iterate()
        ended = all(state != "requested" for _, state in firings(daemon))
        ended = ended and all(status in statuses for _, status in daemon.runs())
        resting = resting + 1 if ended else 0
        if resting == 2:
            return
    raise AssertionError(f"it does not come to rest: {firings(daemon)}, {daemon.runs()}")
