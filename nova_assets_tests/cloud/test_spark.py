"""A warehouse in an object store, with Spark: what it writes and reads as ``s3a://`` Arrow does as ``s3://``.

Spark's module for S3 is half a gigabyte, so this runs where it is asked for: ``make test-remote``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("NOVA_TEST_REMOTE" not in os.environ, reason="needs much of Spark's: make test-remote"),
]

STORY = """
import os
from datetime import date
import nova_assets as nova
from pyspark.sql import functions as F

days = nova.daily("dt", start="2024-01-01")
logs = nova.Channel("logs", schema="id bigint, dt date, n bigint", partitions=days)
people = nova.Channel("people", nova.Upsert(key="id"), "id bigint, n bigint")
totals = nova.Channel("totals", nova.Keyed(key="dt", combine={"n": "sum"}), "dt date, n bigint")

@nova.task(consumes=nova.new(logs), produces=nova.delta(totals))
def add(logs):
    return logs.groupBy("dt").agg(F.sum("n").alias("n"))

project = nova.Project([nova.bind(nova.Workflowette("add", [add]))], channels=[people])
with nova.open(project, warehouse="s3://lake/wh", catalog="sqlite:///c.db") as store:
    spark = store.engine.session
    for k in range(3):
        rows = spark.range(1000 * k, 1000 * (k + 1)).withColumn("n", F.lit(k).cast("bigint"))
        store.insert("logs", rows.withColumn("dt", F.expr("date_add(date '2024-01-01', int(id % 3))")))
        store.insert("people", rows.withColumn("id", F.col("id") % 1500))
        store.run("add")
    assert store.read("logs").to_spark().count() == store.read("logs").to_arrow().num_rows == 3000
    assert store.read("people").to_spark().count() == store.read("people").to_arrow().num_rows == 1500
    def by_day(): return sorted((str(r["dt"]), r["n"]) for r in store.read("totals").to_arrow().to_pylist())
    spark_says = sorted((str(r.dt), r.n) for r in store.read("totals").to_spark().collect())
    assert by_day() == spark_says and sum(n for _, n in by_day()) == 3000, by_day()
    for way in ("spark", "buckets", "arrow"):
        store.insert("people", spark.range(0, 100).withColumn("n", F.lit(9).cast("bigint")))
        store.engine.reader.forced_strategy = way
        commit = store.compact("people")
        assert [w["way"] for w in commit.details["ways"]] == [way], commit.details
        assert store.read("people").to_spark().where("n = 9").count() == 100
    store.engine.reader.forced_strategy = None
    store.compact("logs"); store.collect_garbage("logs"); store.collect_garbage("people")
    store._retention.deletion_delay = 0.0
    print("deleted", store.delete_collected(), "files")
    assert store.read("logs").to_spark().count() == 3000

print("PySpark", spark.version, "and Arrow agree on s3://lake/wh")
"""

THEIRS = """
import pyarrow as pa, pyarrow.parquet as pq
from pyarrow import fs
for day, price in (("2022-03-30", 1), ("2022-03-31", 2)):
    bucket = fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"].removeprefix("http://"), scheme="http")
    pq.write_table(pa.table({"price": [price]}), f"lake/theirs/day={day}/a.parquet", filesystem=bucket)
theirs = nova.Channel("theirs", schema="price bigint, day string", partitions=nova.dynamic("day"),
                      external=nova.external("s3://lake/theirs"))
with nova.open(nova.Project(channels=[theirs]), warehouse="s3://lake/wh2", catalog="sqlite:///c2.db") as store:
    assert store.refresh("theirs").seq == 1
    found = store.read("theirs").to_spark().collect()
    assert sorted((r.day, r.price) for r in found) == [("2022-03-30", 1), ("2022-03-31", 2)], found
"""


def test_spark_and_arrow_share_a_bucket(endpoint: str, tmp_path: Path) -> None:
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="lake")
    (tmp_path / "story.py").write_text(STORY + THEIRS)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "story.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    print(done.stdout)
    left = boto3.client("s3", endpoint_url=endpoint).list_objects_v2(Bucket="lake")["Contents"]
    assert sum(o["Key"].startswith("theirs/") for o in left) == 2, "what others keep is theirs"
    assert not [o["Key"] for o in left if "_temporary" in o["Key"] or o["Key"].endswith("_SUCCESS")]
