"""Executions that are due together over one channel: rows in common computed once, beside one by one.

    python -m benchmarks.shared [--quick] [--json FILE]

2, 5 and 20 bindings begin with the same function over one block. ``cheap`` is a filter of Spark's, so that keeping
the rows costs more than reading them again, unless many read them. ``python`` passes the rows through a Python function
before the fork. Figures are medians of CPU seconds, of this process and of all that it started (Spark's JVM and its
Python workers); the two ways run in turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import nova_assets as nova
from benchmarks import measure

DDL = "k bigint, v bigint, name string, amount double"
raw = nova.Channel("raw", schema=DDL)


def through_python(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A function that looks at each row, as a parser does."""
    for batch in batches:
        names = [name.upper() for name in batch.column("name").to_pylist()]
        yield batch.set_column(2, "name", pa.array(names))


def parse_with_python(rows: Any) -> Any:
    return rows.mapInArrow(through_python, DDL)


def parse_with_spark(rows: Any) -> Any:
    return rows.where("v >= 0")


def project_of(bindings: int, parse: Callable[[Any], Any]) -> nova.Project:
    """Bindings that begin with one function. Each keeps a tenth of the rows."""
    parser = nova.task(name="parse", consumes=nova.new(raw, as_="rows"), produces=nova.delta("parsed"))(parse)

    def bound(n: int) -> nova.Binding:
        def keep(parsed: Any) -> Any:
            return parsed.where(f"k % 10 = {n % 10}")

        target = nova.Channel(f"out{n}", schema=DDL)
        task = nova.task(name="keep", consumes=nova.new("parsed"), produces=nova.delta(target))(keep)
        return nova.bind(nova.Workflowette(f"w{n}", [parser, task]), when=nova.on_data(raw))

    return nova.Project([bound(n) for n in range(bindings)])


def compare(bindings: int, parse: Callable[[Any], Any], rows: int, rounds: int, root: Path) -> dict[str, Any]:
    """Costs of both ways: at once, and one by one. The medians, and the median of the ratios of pairs."""
    project, table = project_of(bindings, parse), _rows(rows)
    with nova.open(project, f"sqlite:///{root}/c.db", str(root / "wh")) as store:
        store.register(project)

        def at_once() -> None:
            store.run_due()

        def one_by_one() -> None:
            for binding in project.bindings:
                store.run_due([binding.name])

        costs: list[list[measure.Cost]] = [[], []]
        for n in range(rounds + 1):  # the first round warms up
            for way, run in ((0, at_once), (1, one_by_one))[:: 1 if n % 2 else -1]:
                store.insert("raw", table)
                cost = measure.cost_of(run)
                if n:
                    costs[way].append(cost)
        assert store.plan_due().steps == ()
        shared = [f["shared"] for e in store.executions("w0", 50) for f in _shared_facts(store, e)]
    ratio = measure.ratio(*costs)
    return {
        "bindings": bindings,
        "shared": any(shared),
        "at once": measure.median(costs[0]).cpu,
        "one by one": measure.median(costs[1]).cpu,
        "ratio": ratio.cpu,
        "ratio of wall": ratio.wall,
    }


def _shared_facts(store: nova.Store, execution: Any) -> list[dict[str, Any]]:
    commit = None if execution.commit_id is None else store.catalog.commits.by_id(execution.commit_id)
    tasks = [] if commit is None else commit.details.get("tasks", [])
    return [fact for t in tasks for fact in t.get("facts", {}).get("shared_rows", ())]


def _rows(rows: int) -> pa.Table:
    ks = range(rows)
    return pa.table(
        {"k": ks, "v": ks, "name": [f"name {k % 1000}" for k in ks], "amount": [k * 0.37 for k in ks]},
    )


def main() -> None:
    given = measure.options(__doc__ or "")
    rows, rounds, sizes = (100_000, 1, (2, 5)) if given.quick else (1_000_000, 3, (2, 5, 20))
    found = []
    for name, parse in (("cheap", parse_with_spark), ("python", parse_with_python)):
        for bindings in sizes:
            with tempfile.TemporaryDirectory() as root:
                found.append({"before the fork": name, **compare(bindings, parse, rows, rounds, Path(root))})
    title = f"Bindings that are due together, over {rows:,} new rows: CPU seconds"
    measure.show(title, list(found[0]), [list(row.values()) for row in found])
    measure.keep(given.json, {"rows": rows, "cases": found})


if __name__ == "__main__":
    main()
