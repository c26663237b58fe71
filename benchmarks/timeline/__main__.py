"""What it costs to ask a service which files a partition has: 10,000 partitions, a million files.

    python -m benchmarks.timeline [--quick] [--json FILE] [--postgresql URL] [--views disk,memory] [--only storages]

A real `nova serve` for each storage of views, over SQLite and PostgreSQL, is asked by 16 processes over connections
that stay; beside it, the catalog is asked itself, folders are listed, and a bucket. Then commits are made, and the
service is started again, with what it kept and without. Clients and server share the machine: the CPU seconds of the
server tell what a core of its own would do. Folders lie in the memory of this machine, and moto's server is no S3:
what listing takes elsewhere, mostly waiting, is not measured here. Then all storages of views are compared at a million
blocks (``storages``).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.metadata import databases
from benchmarks.timeline import askers, events, listed, measured, storages
from benchmarks.timeline.events import FULL, QUICK, Size
from benchmarks.timeline.measured import Place
from nova_assets.settings import VIEW_STORAGES

VIEWS = ("disk", "memory")
_MIB = 2**20


def listings(warehouse: Path, size: Size) -> dict[str, Any]:
    """What listing costs: folders of this machine's disk, and a bucket."""
    named, files = events.names(size), size.blocks * size.files
    folders, objects = named[: size.listed[0]], named[: size.listed[1]]
    job: dict[str, Any] = {"files": files, "seconds": size.seconds}
    found = {"folders": asdict(askers.ask({**job, "way": "folders", "at": str(warehouse)}, size.clients, folders))}
    with listed.bucket(objects, files) as url:
        job |= {"way": "bucket", "at": url, "bucket": listed.BUCKET}
        found["bucket"] = asdict(askers.ask(job, size.clients, objects))
    return found


def run(urls: Mapping[str, str], folder: Path, size: Size, kinds: Sequence[str]) -> dict[str, Any]:
    """All figures."""
    warehouse = folder / "warehouse"
    listed.plant(warehouse, events.names(size)[: size.listed[0]], size.blocks * size.files)
    figures: dict[str, Any] = {"files": size.all_files, "listed": listings(warehouse, size), "catalogs": {}}
    for name, url in urls.items():
        events.fill(url, size, warehouse)
        place = Place(url, warehouse, folder / name, size)
        place.folder.mkdir()
        of = figures["catalogs"][name] = {"asked": measured.asked_of_catalog(place)}
        of["views"] = {views: measured.measured(place, views) for views in kinds}
    return figures


def show(figures: Mapping[str, Any], size: Size) -> None:
    each = [(f"{c}, {v}", of) for c, found in figures["catalogs"].items() for v, of in found["views"].items()]
    rows = [_lookup(f"service: {name}", of["lookups"]) for name, of in each]
    rows += [_lookup(f"service: {name}", of["alone"]) for name, of in each]
    rows += [_lookup(f"views in process: {name}", of["in process"]) for name, of in each]
    rows += [_lookup(f"catalog: {name}", of["asked"]) for name, of in figures["catalogs"].items()]
    rows += [_lookup("folders, listed", figures["listed"]["folders"])]
    rows += [_lookup("bucket (moto), listed", figures["listed"]["bucket"])]
    columns = ("", "clients", "a second", "p50 ms", "p99 ms", "CPU ms", "of the server")
    title = f"Lookups of a partition's files: {size.partitions:,} partitions of {size.blocks * size.files} files"
    measure.show(title, columns, rows)
    measure.show(
        f"MiB in memory (of these, pages of files) and on disk; {size.all_files:,} files",
        ("", "started", "loaded", "after lookups", "on disk", "s to load", "folders listed"),
        [
            (
                name,
                *(_memory(of[f"memory {when}"]) for when in ("before", "loaded", "asked")),
                f"{of['on disk'] / _MIB:.0f}",
                f"{of['loaded']:.1f}",
                "not counted" if of["listings"] is None else f"{of['listings']:,} of {of['lookups']['lookups']:,}",
            )
            for name, of in each
        ],
    )
    whats = list(each[0][1]["sync"])
    measure.show(
        "A lookup, ms: after a commit that touched so many partitions, and when nothing has happened",
        ("", *whats, "all loaded anew"),
        [(n, *(f"{of['sync'][w] * 1e3:.1f}" for w in whats), f"{of['loaded'] * 1e3:,.0f}") for n, of in each],
    )
    asked = list(each[0][1]["unloaded"])
    measure.show(
        "Asked of the whole channel, ms: before anything is loaded, and afterwards",
        ("", *asked, *(f"{a}, loaded" for a in asked)),
        [(n, *(f"{of[w][a] * 1e3:.1f}" for w in ("unloaded", "all loaded") for a in asked)) for n, of in each],
    )
    measure.show(
        f"Seconds from the start of the process: until the first answer, and until {size.random:,} more",
        ("", "first", "all", "nothing kept: first", "all", "to stop"),
        [
            (
                name,
                *(of[how][when] for how in ("restarted", "started empty") for when in ("first", "all")),
                of["stopped"],
            )
            for name, of in each
        ],
    )


def _lookup(name: str, of: Mapping[str, Any]) -> Sequence[str]:
    server = "" if of["server"] is None else f"{of['server'] * 1e3:.2f}"
    times = (f"{of['p50'] * 1e3:.2f}", f"{of['p99'] * 1e3:.2f}", f"{of['cpu'] * 1e3:.2f}")
    return name, f"{of['clients']}", f"{of['rate']:,.0f}", *times, server


def _memory(of: Sequence[int]) -> str:
    return f"{of[0] / _MIB:.0f} ({(of[0] - of[1]) / _MIB:.0f})"


def headline(figures: Mapping[str, Any]) -> str:
    found = []
    for name, of in figures["catalogs"].items():
        best = max((v["lookups"] for v in of["views"].values()), key=lambda told: told["rate"])
        ratio = best["rate"] / of["asked"]["rate"]
        core = f"{1 / best['server']:,.0f} of a core" if best["server"] else "too few to tell"
        found.append(
            f"{name} {best['rate']:,.0f} lookups a second ({core}), p99 {best['p99'] * 1e3:.0f} ms, "
            f"{ratio:.0f} times the catalog's"
        )
    return "timeline: " + "; ".join(found)


def compare_storages(given: argparse.Namespace) -> dict[str, Any]:
    """Compare the storages of views, and print what came of it."""
    size = storages.QUICK if given.quick else storages.FULL
    kinds = given.views.split(",") if given.views else VIEW_STORAGES
    with tempfile.TemporaryDirectory(prefix="storages-") as folder:
        figures = storages.compare(Path(folder), size, kinds)
    storages.show(figures, size)
    if given.only:
        measure.keep(given.json, figures)
    print(storages.headline(figures))
    return figures


def main() -> None:
    given = measure.options(
        "What it costs to ask a service which files a partition has.",
        postgresql="an empty database, as superuser",
        views="storages of views, with a comma; by default those that need no extra, and all where they are compared",
        only="storages: compare the storages of views, and measure nothing else",
    )
    size = QUICK if given.quick else FULL
    if given.only == "storages":
        compare_storages(given)
        return
    kinds = (given.views or ",".join(VIEWS)).split(",")
    with tempfile.TemporaryDirectory(prefix="timeline-") as folder, databases(Path(folder), given.postgresql) as urls:
        figures = run(urls, Path(folder), size, kinds)
    show(figures, size)
    figures["storages"] = compare_storages(given)
    measure.keep(given.json, figures)
    print(headline(figures))


if __name__ == "__main__":
    main()
