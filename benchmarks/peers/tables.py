"""Results as tables: medians over the repeats, and their ratios to nova."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.peers.results import Result
from benchmarks.peers.workloads import ALL, Workload

OWN = "nova"

LIMITS = ("delta-rs", "polars", "duckdb")
"""Those without Spark: shown as limits, and left out of the headline."""


@dataclass(frozen=True)
class Line:
    """One system in one workload.

    Args:
        says: instead of figures: ``-``, or that it failed; beside them, that it is wrong.
        steps: step -> medians over the repeats.
        runs: so many repeats.
    """

    system: str
    says: str = ""
    steps: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    live: Mapping[str, float] = field(default_factory=dict)
    runs: int = 0

    def total(self, what: str, of: Sequence[str]) -> float:
        return sum(self.steps[s][what] for s in of if s in self.steps)

    @property
    def right(self) -> bool:
        return bool(self.steps) and not self.says


def lines(results: Iterable[Result], workload: Workload) -> list[Line]:
    """A line for each system, in the order of the first results."""
    by_system: dict[str, list[Result]] = {}
    for result in results:
        if result.key.workload == workload.name:
            by_system.setdefault(result.key.system, []).append(result)
    return [_line(name, found) for name, found in by_system.items()]


def _line(system: str, results: Sequence[Result]) -> Line:
    good = [r for r in results if r.error is None and not r.cannot]
    if not good:
        return Line(system, "-" if any(r.cannot for r in results) else "FAILED")
    says = "WRONG" if any(r.wrong for r in results) else ""
    steps = {s: _medians([r.steps[s] for r in good if s in r.steps]) for s in good[0].steps}
    return Line(system, says, steps, _medians([r.live for r in good]), len(good))


def _medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {k: statistics.median(r[k] for r in rows) for k in rows[0]}


def columns(workload: Workload, found: Sequence[Line]) -> list[str]:
    steps = [s for s in workload.total if any(s in line.steps for line in found)]
    each = [f"{s} s" for s in steps] if len(steps) > 1 else []
    cost = ["wall s", "CPU s", "wall / nova", "CPU / nova"]
    return ["", *each, *cost, "written MB", "files", "disk MB", "peak GB", "runs"]


def cells(workload: Workload, found: Sequence[Line]) -> list[list[str]]:
    """The table of a workload, without its head."""
    steps = [s for s in workload.total if any(s in line.steps for line in found)]
    own = next((line for line in found if line.system == OWN and line.steps), None)
    return [_cells(line, own, steps) for line in found]


def _cells(line: Line, own: Line | None, steps: Sequence[str]) -> list[str]:
    each = len(steps) if len(steps) > 1 else 0
    if not line.steps:
        return [line.system, *[line.says] * (each + 9)]
    wall, cpu = (line.total(what, steps) for what in ("wall", "cpu"))
    ratios = [_ratio(line.total(w, steps), own.total(w, steps) if own else 0) for w in ("wall", "cpu")]
    written, files = (line.total(what, steps) for what in ("written", "files"))
    return [
        f"{line.system} {line.says}".strip(),
        *[f"{line.steps[s]['wall']:.2f}" if s in line.steps else "-" for s in steps if each],
        f"{wall:.2f}",
        f"{cpu:.2f}",
        *ratios,
        f"{written / 1e6:.1f}",
        f"{files:.0f}",
        f"{line.live.get('disk', 0) / 1e6:.1f}",
        f"{max(s['peak'] for s in line.steps.values()) / 1e9:.1f}",
        str(line.runs),
    ]


def _ratio(of: float, to: float) -> str:
    return f"{of / to:.2f}" if to else ""


def headline(results: Sequence[Result]) -> str:
    """nova beside the best of the peers on Spark, workload by workload."""
    ratios: dict[str, list[float]] = {"wall": [], "cpu": []}
    for workload in ALL:
        found = [line for line in lines(results, workload) if line.right and line.system not in LIMITS]
        own = next((line for line in found if line.system == OWN), None)
        peers = [line for line in found if line is not own]
        if own is None or not peers:
            continue
        for what, each in ratios.items():
            best = min(p.total(what, workload.total) for p in peers)
            each.append(own.total(what, workload.total) / best if best else 1.0)
    wrong = sorted({r.key.system for r in results if r.wrong})
    alarm = f"; WRONG ANSWERS: {', '.join(wrong)}" if wrong else ""
    if not ratios["wall"]:
        return f"peers: nothing to compare{alarm}"
    wall, cpu = (statistics.median(ratios[w]) for w in ("wall", "cpu"))
    of = f"median of {len(ratios['wall'])} workloads"
    return f"peers: nova takes {wall:.2f} x the wall and {cpu:.2f} x the CPU of the best peer on Spark ({of}){alarm}"


def troubles(results: Iterable[Result]) -> list[str]:
    """Every wrong answer and failure, in words."""
    found = []
    for r in results:
        name = f"{r.key.system}, {r.key.workload}, repeat {r.key.repeat + 1}"
        found += [f"WRONG: {name}: {w}" for w in r.wrong]
        found += [f"FAILED: {name}: {r.error.splitlines()[0]}"] if r.error is not None else []
    return found
