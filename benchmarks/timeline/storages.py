"""Storages of views compared, each in processes of its own: memory, build, lookups and restart at a million blocks.

    python -m benchmarks.timeline --only storages [--quick] [--views disk,memory] [--json FILE]

The views are loaded from a catalog on SQLite, which takes most of the build. A restart ends with the first right answer
after a commit that the views have not seen.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.timeline import events, process
from benchmarks.timeline.events import NAME, Size
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.sqlite_storage import open_storage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.model.timeline import TimelinePosition
from nova_assets.settings import VIEW_STORAGES

_ROOT = Path(__file__).parents[2]
_MIB = 2**20

FULL = Size(10_000, 100, files=1)
QUICK = Size(200, 5, files=1, together=20, seconds=2.0, touched=(1, 20), random=200)

MEMORY = 64 * _MIB
"""The limit of memory: the default of the setting ``views_memory``."""


def compare(folder: Path, size: Size, kinds: Sequence[str] = VIEW_STORAGES) -> dict[str, Any]:
    """Figures of each storage."""
    url = f"sqlite:///{folder}/catalog.db"
    events.fill(url, size, folder / "warehouse")
    figures: dict[str, Any] = {"blocks": size.partitions * size.blocks, "storages": {}}
    for kind in kinds:
        job = {"catalog": url, "folder": str(folder / kind), "kind": kind, "seconds": size.seconds}
        job |= {"partitions": events.names(size), "files": size.blocks * size.files, "random": size.random}
        built = _in_process("build", job)
        catalog = open_catalog(url)
        events.commit(catalog, random.Random(kind).sample(events.names(size), size.touched[-1]))
        catalog.close()
        figures["storages"][kind] = {"build": built, "restart": _in_process("restart", job)}
    return figures


def _in_process(phase: str, job: Mapping[str, Any]) -> Any:
    command = [sys.executable, "-m", "benchmarks.timeline.storages", phase]
    began = time.time()
    done = subprocess.run(
        command, input=json.dumps({**job, "began": began}), stdout=subprocess.PIPE, text=True, cwd=_ROOT, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


class _Views:
    """Views of one storage in this process."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.job = job
        self.catalog = open_catalog(job["catalog"])
        self.storage = open_storage(job["kind"], Path(job["folder"]), MEMORY, self.catalog.identity.get())
        if self.storage.name != job["kind"]:
            raise RuntimeError(f"{job['kind']} could not be opened")
        self.handler = ViewQueryHandler(TimelineFollower(self.catalog, self.storage))

    def files(self, partition: str, known: TimelinePosition | None = None) -> int:
        return self.handler.files_answer(NAME, partition, None, known, allow_stale=True).count(b'"path":')

    def lookups(self) -> dict[str, float]:
        """Seconds of lookups at random partitions, one after the other."""
        known = self.catalog.timelines.head(NAME).position
        rng, seconds, partitions = random.Random(1), [], self.job["partitions"]
        end = time.perf_counter() + self.job["seconds"]
        while (began := time.perf_counter()) < end:
            if self.files(rng.choice(partitions), known) < self.job["files"]:
                raise RuntimeError("files are missing")
            seconds.append(time.perf_counter() - began)
        seconds.sort()
        return {
            "lookups": len(seconds),
            "p50": seconds[len(seconds) // 2],
            "p99": seconds[int(len(seconds) * 0.99)],
        }


def build(job: Mapping[str, Any]) -> dict[str, Any]:
    """Load all views, look partitions up, and save."""
    views = _Views(job)
    before = _memory()
    began = time.perf_counter()
    views.handler.follower.ask(NAME, lambda view: None)
    built = time.perf_counter() - began
    figures = {"seconds": built, "memory built": _memory() - before, **views.lookups()}
    figures["memory"] = _memory() - before
    began = time.perf_counter()
    views.handler.follower.close()
    figures["save"] = time.perf_counter() - began
    files = (f for f in Path(job["folder"]).rglob("*") if f.is_file())
    return {**figures, "on disk": sum(f.stat().st_size for f in files)}


def restart(job: Mapping[str, Any]) -> dict[str, Any]:
    """Go on from what was saved."""
    views = _Views(job)
    opened = time.time() - job["began"]
    views.files(job["partitions"][0])
    first = time.time() - job["began"]
    rng = random.Random(2)
    for _ in range(job["random"]):
        views.files(rng.choice(job["partitions"]))
    figures = {"opened": opened, "first": first, "all": time.time() - job["began"], "memory": _memory()}
    loaded = views.handler.follower.counts.loaded
    views.handler.follower.close()
    return {**figures, "loaded": loaded}


def _memory() -> int:
    """Bytes of this process's own memory."""
    return process.memory(os.getpid())[1]


def show(figures: Mapping[str, Any], size: Size) -> None:
    columns = ("", "MiB built", "MiB, asked", "MiB on disk", "s to build", "s to save", "p50 ms", "p99 ms")
    rows = [
        (
            kind,
            *(f"{of['build'][what] / _MIB:.0f}" for what in ("memory built", "memory", "on disk")),
            *(f"{of['build'][what]:.1f}" for what in ("seconds", "save")),
            *(f"{of['build'][what] * 1e3:.2f}" for what in ("p50", "p99")),
        )
        for kind, of in figures["storages"].items()
    ]
    measure.show(f"Storages of views: {figures['blocks']:,} blocks, limit {MEMORY // _MIB} MiB", columns, rows)
    measure.show(
        f"Restart after a commit on {size.touched[-1]:,} partitions: seconds from the start of the process",
        ("", "opened", "first answer", f"{size.random:,} more", "MiB", "partitions loaded"),
        [
            (
                kind,
                *(f"{of['restart'][what]:.2f}" for what in ("opened", "first", "all")),
                f"{of['restart']['memory'] / _MIB:.0f}",
                of["restart"]["loaded"],
            )
            for kind, of in figures["storages"].items()
        ],
    )


def headline(figures: Mapping[str, Any]) -> str:
    return "timeline storages: " + "; ".join(
        f"{kind} {of['build']['memory'] / _MIB:.0f} MiB, p99 {of['build']['p99'] * 1e3:.2f} ms, "
        f"restart {of['restart']['first']:.1f} s"
        for kind, of in figures["storages"].items()
    )


if __name__ == "__main__":
    phases = {"build": build, "restart": restart}
    print(json.dumps(phases[sys.argv[1]](json.load(sys.stdin))))
