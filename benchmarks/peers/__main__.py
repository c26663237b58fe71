"""nova beside other table formats on one Spark, and beside what one machine can do without Spark.

    python -m benchmarks.peers [--quick] [--json FILE] [--systems a,b] [--workloads a,b] [--rows N] [--work DIR]
    python -m benchmarks.peers --table FILE [--svg FILE]

Every result is a line of FILE at once. Started again with the same FILE and sizes, it goes on where it was; what has
failed is tried again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.peers import chart, markdown, registry, tables, workloads
from benchmarks.peers.results import Key, Result, Results
from benchmarks.peers.workloads import Sizes

FULL, QUICK = Sizes(10_000_000), Sizes(1_000_000, series=2, small=2)

QUICK_ONES = ("upsert-uniform-1", "upsert-clustered-1", "compact", "changes", "delete", "small")
"""What is enough to see that everything works; the others differ by the size or number of their batches."""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="nova beside other table formats.")
    parser.add_argument("--quick", action="store_true", help="1 M rows, fewer workloads, two repeats")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results there, a line each, and go on")
    parser.add_argument("--systems", default="", help=f"some of {','.join(registry.NAMES)}")
    parser.add_argument("--workloads", default="", help=f"some of {','.join(w.name for w in workloads.ALL)}")
    parser.add_argument("--rows", type=int, help="of the table; 10 M by default")
    parser.add_argument("--repeats", type=int, help="three by default")
    parser.add_argument("--work", type=Path, help="data and tables; a temporary folder by default")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for a workload")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print these results as Markdown, and run nothing")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="with --table: draw them, too")
    return parser.parse_args()


def keys(given: argparse.Namespace, sizes: Sizes) -> list[Key]:
    """All that is to be run, in turn. The order of the systems rotates from repeat to repeat."""
    systems = registry.named(_listed(given.systems))
    chosen = workloads.named(_listed(given.workloads) or (QUICK_ONES if given.quick else ()))
    repeats = given.repeats or (2 if given.quick else 3)
    return [
        Key(system, workload.name, repeat, sizes.rows, sizes.series, sizes.small)
        for repeat in range(repeats)
        for system in rotated(systems, repeat)
        for workload in chosen
    ]


def rotated(names: Sequence[str], by: int) -> list[str]:
    n = by % len(names)
    return [*names[n:], *names[:n]]


def together(todo: Sequence[Key], *, quick: bool = False) -> list[list[Key]]:
    """Which are run by one process: all of a system and repeat; to be quick, its repeats, too, as most of the time is
    taken by what comes before the first of them."""
    groups: dict[tuple[str, int], list[Key]] = {}
    for key in todo:
        groups.setdefault((key.system, 0 if quick else key.repeat), []).append(key)
    return list(groups.values())


def run(group: Sequence[Key], work: Path, results: Results, timeout: float) -> None:
    """Run some in a process of their own. What it does not say itself is recorded as failed.

    Args:
        timeout: seconds for each of them.
    """
    work.mkdir(parents=True, exist_ok=True)
    (work / "keys.json").write_text(json.dumps([asdict(k) for k in group]))
    log = work / "logs" / f"{group[0].system}-{group[0].workload}-{group[0].repeat}.log"
    log.parent.mkdir(exist_ok=True)
    limit = timeout * len(group)
    command = [sys.executable, "-m", "benchmarks.peers.worker", str(work / "keys.json"), str(work), str(results.file)]
    with log.open("w") as out:
        try:
            code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=limit).returncode
            why = f"the process ended with {code}"
        except subprocess.TimeoutExpired:
            why = f"not done after {limit:.0f} s"
    said = {r.key for r in results.all()}
    for key in group:
        if key not in said:
            results.add(Result(key, error=f"{why}: see {log.name}"))


def show(results: Sequence[Result]) -> None:
    console = Console(width=130)
    for workload in workloads.ALL:
        found = tables.lines(results, workload)
        if not found:
            continue
        table = Table(title=f"{workload.title} ({workload.name})", title_justify="left")
        for n, column in enumerate(tables.columns(workload, found)):
            table.add_column(column, justify="left" if n == 0 else "right")
        for row in tables.cells(workload, found):
            table.add_row(*row)
        console.print(table)
    for trouble in tables.troubles(results):
        console.print(trouble, style="bold red", markup=False)
    print(tables.headline(results))


def _listed(names: str) -> list[str]:
    return [n for n in names.split(",") if n]


def main() -> None:
    given = options()
    if given.table is not None:
        found = Results(given.table).all()
        if given.svg is not None:
            given.svg.write_text(chart.svg(found))
        print(markdown.markdown(found, given.svg.name if given.svg else None))
        return
    sizes = QUICK if given.quick else FULL
    if given.rows:
        sizes = Sizes(given.rows, sizes.series, sizes.small)
    work = given.work or Path(tempfile.mkdtemp(prefix="peers-"))
    results = Results(given.json or work / "results.jsonl")
    wanted = keys(given, sizes)
    todo = results.missing(wanted)
    groups = together(todo, quick=given.quick)
    for n, group in enumerate(groups, 1):
        names = ", ".join(dict.fromkeys(k.workload for k in group))
        repeats = ", ".join(str(r + 1) for r in dict.fromkeys(k.repeat for k in group))
        print(f"{n}/{len(groups)} {group[0].system}, repeat {repeats}: {names}", file=sys.stderr, flush=True)
        run(group, work.resolve(), results, given.timeout)
    found = results.all()
    show([r for r in found if r.key in set(wanted)])


if __name__ == "__main__":
    main()
