"""Runs for a range of partitions of a binding, as the commands of Dagster start them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

import nova_assets as nova

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

PIPELINE = """
import dagster as dg
import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions

day = nova.daily("day", start="2026-01-01")
clicks, counts = (nova.Channel(n, schema="day date, n bigint", partitions=day) for n in ("clicks", "counts"))

@nova.task(consumes=nova.new(clicks), produces=nova.delta(counts), skip_if_no_new=True)
def count(clicks):
    return clicks.groupBy("day").count().withColumnRenamed("count", "n")

project = nova.Project([nova.bind(nova.Workflowette("counting", [count]))])
defs = build_definitions(project, steps="one", backfill_policy=dg.BackfillPolicy.single_run())
"""
PYPROJECT = """
[project]
name = "days"
version = "0"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "days"
code_location_target_module = "days"
"""


@pytest.mark.exhaustive
def test_one_run_carries_out_a_range(tmp_path: Path) -> None:
    """``dagster asset materialize`` has rows to read. ``dg launch`` has none, so it needs no Spark."""
    (tmp_path / "days.py").write_text(PIPELINE)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "home").mkdir()
    catalog, day = f"sqlite:///{tmp_path}/c.db", nova.daily("day", start="2026-01-01")
    settings = {"DAGSTER_HOME": str(tmp_path / "home"), "NOVA_CATALOG": catalog, "NOVA_WAREHOUSE": str(tmp_path / "wh")}
    environment = {**os.environ, **settings, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}

    def run(*command: str) -> None:
        program = str(Path(sys.executable).with_name(command[0]))
        done = subprocess.run(
            [program, *command[1:]], env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    with nova.open(catalog=catalog, warehouse=tmp_path / "wh") as store:
        clicks = nova.Channel("clicks", schema="day date, n bigint", partitions=day)
        store.register(clicks)
        store.insert("clicks", [{"day": f"2026-01-0{d}", "n": n} for d in (1, 2, 4, 9) for n in range(d)])
        run(*"dagster asset materialize --select counts --partition-range 2026-01-02...2026-01-04 -m days".split())
        assert [(str(r["day"]), r["n"]) for r in store.read("counts").to_arrow().to_pylist()] == [
            ("2026-01-02", 2),
            ("2026-01-04", 4),
        ]
        assert {c.partition for c in store.cursors("counting")} == {f"day=2026-01-0{d}" for d in (2, 3, 4)}
        run(*"dg launch --assets counts --partition-range 2026-01-03...2026-01-05".split())
        assert {c.partition for c in store.cursors("counting")} == {f"day=2026-01-0{d}" for d in (2, 3, 4, 5)}
        assert [i.seq for i in store.timeline("counts")] == [1, 2], "one commit for each partition with rows"
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        assert versions_by_run(instance) == [{"2026-01-02": "1", "2026-01-03": "0", "2026-01-04": "2"}, UNCHANGED]


UNCHANGED = {"2026-01-03": "0", "2026-01-04": "2", "2026-01-05": "0"}


def versions_by_run(instance: dg.DagsterInstance) -> list[dict[str, str]]:
    """Partition -> data version of its materialization, for each run, oldest first."""
    found: dict[str, dict[str, str]] = {}
    for record in reversed(instance.fetch_materializations(dg.AssetKey("counts"), limit=100).records):
        event = record.asset_materialization
        assert event is not None and event.partition is not None and event.tags is not None
        found.setdefault(record.run_id, {})[event.partition] = event.tags["dagster/data_version"]
    return list(found.values())
