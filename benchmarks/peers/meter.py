"""What a step costs: time, processors, memory, and what it writes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import measure

_LOOK = 0.2  # seconds
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Step:
    """Seconds on the clock and of all processors; bytes and files written; the most memory (resident, of the whole
    process tree; shared pages count for each process) in bytes."""

    wall: float = 0.0
    cpu: float = 0.0
    written: int = 0
    files: int = 0
    peak: int = 0

    def __add__(self, other: Step) -> Step:
        sums = (self.wall + other.wall, self.cpu + other.cpu, self.written + other.written, self.files + other.files)
        return Step(*sums, max(self.peak, other.peak))

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def metered(work: Callable[[], object], folder: Path) -> Step:
    """What a call costs, and writes into a folder."""
    before = _listing(folder)
    with _Memory() as memory:
        cost = measure.cost_of(work)
    new = {k for k in _listing(folder) if k not in before}
    return Step(cost.wall, cost.cpu, sum(size for _, _, size in new), len(new), memory.peak)


def on_disk(folder: Path) -> int:
    return sum(size for _, _, size in _listing(folder))


def _listing(folder: Path) -> set[tuple[str, int, int]]:
    """Path, time and size of every file: one that is written over is another."""
    found = set()
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                stat = os.stat(os.path.join(root, name))
            except FileNotFoundError:
                continue
            found.add((os.path.join(root, name), stat.st_mtime_ns, stat.st_size))
    return found


class _Memory:
    """Looks at the memory of this process and all below it, for as long as a block lasts."""

    def __init__(self) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, resident())
            if self._over.wait(_LOOK):
                return


def resident() -> int:
    """Bytes in memory of this process and all below it."""
    pages = 0
    for pid in measure.process_tree(os.getpid()):
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * _PAGE
