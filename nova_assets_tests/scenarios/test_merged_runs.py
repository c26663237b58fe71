"""Merged executions on Spark: a Python function before the fork runs once, and each binding has its own rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova

pytestmark = pytest.mark.spark

DDL = "k bigint, v bigint"
raw = nova.Channel("raw", schema=DDL)


def bindings(runs_python: bool, counted: Path) -> list[nova.Binding]:
    """Three bindings that begin with one function. It counts, in a file, the rows that pass through Python."""

    def through_python(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with counted.open("a") as file:
                file.write("x" * batch.num_rows)
            yield batch

    def parse(rows: Any) -> Any:
        return rows.mapInArrow(through_python, DDL) if runs_python else rows.where("v >= 0")

    parser = nova.task(name="parse", consumes=nova.new(raw, as_="rows"), produces=nova.delta("parsed"))(parse)

    def bound(n: int) -> nova.Binding:
        def keep(parsed: Any) -> Any:
            return parsed.where(f"k % 3 = {n}")

        target = nova.Channel(f"out{n}", schema=DDL)
        task = nova.task(name="keep", consumes=nova.new("parsed"), produces=nova.delta(target))(keep)
        return nova.bind(nova.Workflowette(f"w{n}", [parser, task]), when=nova.on_data(raw))

    return [bound(n) for n in range(3)]


@pytest.mark.parametrize("runs_python", [True, False], ids=["python", "cheap"])
def test_rows_pass_through_python_once(tmp_path: Path, spark: Any, runs_python: bool) -> None:
    counted = tmp_path / "counted"
    counted.touch()
    project = nova.Project(bindings(runs_python, counted))
    rows = 600_000
    with nova.open(project, f"sqlite:///{tmp_path}/c.db", str(tmp_path / "wh"), spark=spark) as store:
        store.register(project)
        store.insert("raw", pa.table({"k": range(rows), "v": range(rows)}))
        [shared] = store.plan_due().shared
        assert shared.executions == ("w0", "w1", "w2") and shared.runs_python is None
        done = store.run_due()
        assert all(r.execution is not None for r in done)
        for n in range(3):
            assert sorted(store.read(f"out{n}").to_arrow()["k"].to_pylist()) == list(range(n, rows, 3))
        [facts] = {
            str([(f["shared"], f["runs_python"]) for f in t.facts["shared_rows"]])
            for r in done
            if r.execution is not None
            for t in r.execution.tasks
            if t.task == "parse"
        }
        assert facts == str([(runs_python, runs_python)]), "keeping cheap rows would cost more than reading them again"
        assert not spark.sparkContext._jsc.sc().getPersistentRDDs().size(), "nothing stays in memory"
    if runs_python:
        assert counted.stat().st_size == rows
