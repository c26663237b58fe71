"""Rows so wide that Spark's own batches of them do not fit a small Java process; and a Java process that dies."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.engine.session.shared_settings import batch_limit_scope, temporary_settings
from nova_assets.plan.batch_size import RowWidth

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
READER = "spark.sql.parquet.columnarReaderBatchSize"
ARROW = "spark.sql.execution.arrow.maxRecordsPerBatch"

DDL = "id bigint, html string"
PAGES = nova.Channel("pages", schema=DDL)
COPIES = nova.Channel("copies", merge=nova.Upsert(key="id"), schema=DDL)

in_task: dict[str, Any] = {}


@nova.task(consumes=nova.new(PAGES), produces=nova.delta(COPIES))
def copy(ctx: nova.Context, pages: Any) -> Any:
    in_task.update({name: ctx.spark.conf.get(name, None) for name in (READER, ARROW)})
    return pages


PROJECT = nova.Project(bindings=[nova.bind(nova.Workflowette("copy", [copy]))])


def wide(first: int, count: int, size: int) -> pa.Table:
    """Rows that are wide and pack well: what a file takes says little of how wide its rows are."""
    return pa.table({"id": range(first, first + count), "html": [f"{n} " + "<p>" * (size // 3) for n in range(count)]})


def test_batches_are_as_the_rows_need_while_they_are_read(spark: Any, tmp_path: Path) -> None:
    with nova.open(PROJECT, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        store.register(PROJECT)
        store.insert("pages", wide(0, 40, 300_000))
        [block] = store.catalog.histories.of("pages").blocks
        assert sum(f.uncompressed_bytes for f in block.manifest.files) > 10_000_000 > 100 * block.bytes
        store.run("copy")
        assert int(in_task[READER]) < 40 and int(in_task[ARROW]) < 100
        assert spark.conf.get(READER, None) is None, "as it was before"
        with temporary_settings(spark, {READER: "77"}):  # a user has set it: that counts
            store.insert("pages", wide(40, 5, 300_000))
            store.run("copy")
            assert in_task[READER] == "77" and spark.conf.get(READER) == "77"
        frame = store.read("copies").to_spark()  # executed whenever its user likes
        assert int(spark.conf.get(READER)) < 40 and frame.count() == 45
    assert spark.conf.get(READER, None) is None


@pytest.mark.core
def test_of_several_that_hold_a_limit_the_least_counts_and_all_is_put_back(spark: Any) -> None:
    """In whatever order they begin and end, in threads of their own."""
    before = spark.conf.get(READER, None)
    steps = [threading.Barrier(2, timeout=20) for _ in range(3)]
    found: list[int] = []

    def other() -> None:
        with batch_limit_scope() as narrower:
            steps[0].wait()
            narrower.limit_batches(lambda: spark, RowWidth(1_000_000, 0.5))
            steps[1].wait()
            steps[2].wait()

    thread = threading.Thread(target=other)
    thread.start()
    with batch_limit_scope() as mine:
        mine.limit_batches(lambda: spark, RowWidth(10_000, 0.5))
        found.append(int(spark.conf.get(READER)))
        steps[0].wait()
        steps[1].wait()
        found.append(int(spark.conf.get(READER)))
    found.append(int(spark.conf.get(READER)))  # the other one still needs it
    steps[2].wait()
    thread.join()
    assert found == [838, 8, 8] and spark.conf.get(READER, None) == before


SCRIPT = """
import os, signal, sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from pyspark.sql import functions as F
import nova_assets as nova

root, size = Path(sys.argv[1]), 400_000
pages = nova.Channel("pages", schema="id bigint, html string")
cut = nova.Channel("cut", schema="id bigint, lines array<string>")
copies = nova.Channel("copies", merge=nova.Upsert(key="id"), schema="id bigint, html string")
killed = []

def lines(html: str) -> list[str]:
    return [html[n : n + 1000] for n in range(0, len(html), 1000)]

@nova.task(consumes=nova.new(pages), produces=nova.delta(cut))
def cut_pages(pages):
    return pages.select("id", F.udf(lines, "array<string>", useArrow=True)("html").alias("lines"))

@nova.task(consumes=nova.new(pages), produces=nova.base(copies))
def copy(pages):
    return pages.mapInArrow(lambda batches: batches, "id bigint, html string")

@nova.task(consumes=nova.all(pages), produces=nova.delta("ids"))
def pass_on(pages):
    return pages.select("id")

@nova.task(consumes=nova.new("ids"), produces=nova.base(nova.Channel("last", schema="id bigint")), retries=1)
def die_once(ctx, ids):
    if len(killed) < int(os.environ["DEATHS"]):
        java = ctx.spark.sparkContext._gateway.proc
        killed.append(java.pid)
        os.kill(java.pid, signal.SIGKILL)
        java.wait()
    return ids

bindings = [nova.bind(nova.Workflowette(t[0].name, t)) for t in ([cut_pages], [copy], [pass_on, die_once])]
project = nova.Project(bindings=bindings)

def opened(spark=None):
    return nova.open(project, f"sqlite:///{root}/c.db", root / "wh", spark)

os.environ["NOVA_SPARK_CONFIG"] = "spark.driver.memory=500m;spark.sql.shuffle.partitions=2"
os.environ["DEATHS"] = "1"
with opened() as store:
    store.register(project)
    html = [f"{n} " + "abc" * (size // 3) for n in range(350)]
    store.insert("pages", pa.table({"id": range(350), "html": html}))
    store.insert("pages", pa.table({"id": [350], "html": ["a"]}))
    for verb in ("cut_pages", "copy"):
        print(verb, sum(b.rows for b in store.run(verb).commit.blocks), flush=True)
    print("summed", store.read("copies").to_spark().selectExpr("sum(length(html)) > 0").collect()[0][0])
    store.compact("pages"); store.compact("copies")
    print("retried", sum(b.rows for b in store.run("pass_on").commit.blocks), len(killed), flush=True)
    mine = store.engine.session
os.environ["DEATHS"] = "9"
with opened(mine) as store:
    from nova_assets.engine.session import spark_session
    spark_session._own_contexts.clear()
    try:
        store.run("pass_on")
    except nova.NovaError as error:
        import traceback
        print("told", error.code, error.what)
        print("chain", "Py4J" in "".join(traceback.format_exception(error)))
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.exhaustive
def test_wide_rows_fit_a_small_java_process_and_one_that_dies_is_replaced(tmp_path: Path) -> None:
    """Another one is started for a retry if it was our own; a user's ends in one error, without what broke by it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, tmp_path], env=environment, capture_output=True, text=True, timeout=280, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert (said["cut_pages"], said["copy"], said["summed"], said["retried"]) == ("351", "351", "True", "351 1")
    assert said["told"] == "NOVA-ENGINE-UNAVAILABLE the Spark session that was passed to the store has ended"
    assert said["chain"] == "False"
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
