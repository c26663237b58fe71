"""Wall and CPU time of this process with everything below it (the JVM and Spark's Python workers), and tables of it."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds that something took: on the clock, and of all processors."""

    wall: float
    cpu: float


def cost_of(work: Callable[[], object]) -> Cost:
    """What a call costs."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    work()
    return Cost(time.perf_counter() - wall, cpu_seconds() - cpu)


def cpu_seconds() -> float:
    """CPU seconds so far of this process, of all that it started, and of those that have ended since."""
    ticks = 0
    for pid in process_tree(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # utime and stime (of this process there is a finer clock), and those of children that were waited for
        ticks += sum(int(n) for n in fields[13 if pid == os.getpid() else 11 : 15])
    return ticks / _TICK + time.process_time()


def process_tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        found.append(pid := todo.pop())
        todo += children.get(pid, [])
    return found


def median(costs: Sequence[Cost]) -> Cost:
    return Cost(statistics.median(c.wall for c in costs), statistics.median(c.cpu for c in costs))


def ratio(of: Sequence[Cost], to: Sequence[Cost]) -> Cost:
    """The median of the ratios of pairs that ran one after the other: what the machine does meanwhile cancels out."""
    pairs = list(zip(of, to, strict=True))
    return Cost(
        statistics.median(a.wall / b.wall for a, b in pairs),
        statistics.median(a.cpu / max(b.cpu, 1e-3) for a, b in pairs),
    )


def interleaved(rounds: int, *works: Callable[[], object]) -> list[list[Cost]]:
    """Each in turn, so many times, after one round to warm up. Every other round goes backwards."""
    costs: list[list[Cost]] = [[] for _ in works]
    for n in range(rounds + 1):
        order = range(len(works)) if n % 2 else reversed(range(len(works)))
        for i in order:
            cost = cost_of(works[i])
            if n:
                costs[i].append(cost)
    return costs


def options(about: str, *, rows: int | None = None, **more: str) -> argparse.Namespace:
    """``--quick`` and ``--json FILE``, which every benchmark takes.

    Args:
        rows: the default of ``--rows``, where there is that.
        more: other options of one value, with what is said of them.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    if rows is not None:
        parser.add_argument("--rows", type=int, default=rows, help=f"of the (smaller) table; {rows:,} by default")
    for name, said in more.items():
        parser.add_argument(f"--{name}", metavar="VALUE", help=said)
    return parser.parse_args()


def fill_in(given: argparse.Namespace, usual: Mapping[str, tuple[object, object]]) -> argparse.Namespace:
    """The options with a value, as text, for each one that was left out.

    Args:
        usual: option -> its value with ``--quick``, and without.
    """
    for name, (quick, full) in usual.items():
        if getattr(given, name) is None:
            setattr(given, name, str(quick if given.quick else full))
    return given


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for n, column in enumerate(columns):
        table.add_column(column, justify="left" if n == 0 else "right")
    for row in rows:
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row))
    Console(width=110).print(table)


def keep(file: Path | None, figures: dict[str, Any]) -> None:
    if file is not None:
        file.write_text(json.dumps(figures, indent=2) + "\n")
