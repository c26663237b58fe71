"""What is measured of one service over one catalog: from its first start to its third."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.timeline import askers, events, process
from benchmarks.timeline.events import NAME, Size
from benchmarks.timeline.served import Served
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets_tests.listings import Listings, NoCounting


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything is.

    Args:
        catalog: its URL.
        warehouse: a folder with partitions that could be listed.
        folder: for what is left behind.
    """

    catalog: str
    warehouse: Path
    folder: Path
    size: Size


def asked_of_catalog(place: Place) -> dict[str, Any]:
    """Lookups without a service."""
    catalog = open_catalog(place.catalog)
    job = {"way": "catalog", "at": place.catalog, "channel": NAME, "head": catalog.definitions.channel(NAME).head}
    catalog.close()
    return asdict(_asked(place, job))


def measured(place: Place, views: str) -> dict[str, Any]:
    """Everything of one storage."""
    folder = place.folder / views
    figures: dict[str, Any] = {}
    catalog = open_catalog(place.catalog)
    with Served(place.catalog, place.warehouse, folder, views) as service:
        _is_right(place, service, catalog)
        figures["memory before"] = process.memory(service.pid)
        figures["unloaded"] = _asked_of_all(place, service)
        began = time.perf_counter()
        known = service.load()
        figures["loaded"] = time.perf_counter() - began
        figures["memory loaded"] = process.memory(service.pid)
        job = {"way": "service", "at": service.url.removeprefix("http://"), "known": known}
        figures["lookups"], figures["listings"] = _counted(place, job, service.pid)
        figures["alone"] = asdict(_asked(place, job, service.pid, clients=1))
        figures["memory asked"] = process.memory(service.pid)
        figures["all loaded"] = _asked_of_all(place, service)
        figures["sync"] = _synced(place, service, catalog)
        figures["stopped"] = service.stop()
    figures["on disk"] = service.on_disk()
    known = str(catalog.timelines.head(NAME).position)
    inside = {"way": "process", "at": str(service.views), "catalog": place.catalog, "storage": views, "known": known}
    figures["in process"] = asdict(_asked(place, {**inside, "channel": NAME}, clients=1))
    figures["restarted"] = _restarted(place, folder, views, catalog)
    with tempfile.TemporaryDirectory(dir=place.folder) as empty:
        figures["started empty"] = _restarted(place, Path(empty), views, catalog)
    catalog.close()
    return figures


def _asked(place: Place, job: dict[str, Any], pid: int | None = None, clients: int | None = None) -> askers.Asked:
    size = place.size
    files = size.blocks * size.files
    return askers.ask(
        {"seconds": size.seconds, "files": files, **job}, clients or size.clients, events.names(size), pid
    )


def _counted(place: Place, job: dict[str, Any], pid: int) -> tuple[dict[str, Any], int | None]:
    """Lookups, and how many folders of the warehouse were listed meanwhile, by whomever: the kernel counts."""
    try:
        with Listings(place.warehouse) as listings:
            found = asdict(_asked(place, job, pid))
            return found, sum(listings.seen().values())
    except NoCounting:
        return asdict(_asked(place, job, pid)), None


def _is_right(place: Place, service: Served, catalog: Catalog) -> None:
    """That the service answers what the catalog has."""
    for partition in random.Random(7).sample(events.names(place.size), 5):
        there = {f.path for b in catalog.histories.of(NAME, None, partition).blocks for f in b.manifest.files}
        if set(service.files(partition)) != there:
            raise RuntimeError(f"the service is wrong about {partition}")


def _asked_of_all(place: Place, service: Served) -> dict[str, float]:
    """Medians of what is asked of the whole channel, and answered by little of it."""
    found: dict[str, list[float]] = {}
    last = service.ask("schema")["at"]
    for _ in range(place.size.rounds):
        for what, given in (("schema", {}), ("changes", {"since": last - 1}), ("blocks", {"limit": 10})):
            began = time.perf_counter()
            service.ask(what, **given)
            found.setdefault(what, []).append(time.perf_counter() - began)
    return {what: statistics.median(seconds) for what, seconds in found.items()}


def _synced(place: Place, service: Served, catalog: Catalog) -> dict[str, float]:
    """Medians of the first lookup after a commit, and of lookups when nothing has happened."""
    rng, named = random.Random(3), events.names(place.size)
    found: dict[str, list[float]] = {}

    def timed(what: str, partition: str, known: str | None = None) -> list[str]:
        began = time.perf_counter()
        files = service.files(partition, known)
        found.setdefault(what, []).append(time.perf_counter() - began)
        return files

    for _ in range(place.size.rounds):
        for count in place.size.touched:
            touched = rng.sample(named, count)
            before = len(service.files(touched[0]))
            events.commit(catalog, touched)
            known = str(catalog.timelines.head(NAME).position)
            if len(timed(f"{count:,} touched", touched[0], known)) != before + 1:
                raise RuntimeError("the service did not see a commit")
            timed("nothing new", rng.choice(named), known)
            timed("nothing new, asked the catalog", rng.choice(named))
    return {what: statistics.median(seconds) for what, seconds in found.items()}


def _restarted(place: Place, folder: Path, views: str, catalog: Catalog) -> dict[str, float]:
    """Seconds from the start of the process until the first answer that is right, and until some more."""
    rng, named = random.Random(5), events.names(place.size)
    known, first = str(catalog.timelines.head(NAME).position), rng.choice(named)
    there = {f.path for b in catalog.histories.of(NAME, None, first).blocks for f in b.manifest.files}
    with Served(place.catalog, place.warehouse, folder, views) as service:
        if set(service.files(first, known)) != there:
            raise RuntimeError(f"the service is wrong about {first}")
        answered = time.perf_counter() - service.began
        for _ in range(place.size.random):
            service.files(rng.choice(named), known)
        return {"first": answered, "all": time.perf_counter() - service.began}
