"""A warehouse in HDFS: Spark by Hadoop's own protocol, everything else by WebHDFS, on a cluster of one small process.

The cluster is a quarter of a gigabyte of Hadoop's, so this runs where it is asked for: ``make test-remote``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("NOVA_TEST_REMOTE" not in os.environ, reason="needs much of Hadoop's: make test-remote"),
]

CLUSTER = """
import os, shutil, sys
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from nova_assets.engine.session.spark_session import prepare_environment
from nova_assets.engine.session.spark_config import hadoop_version

prepare_environment()
session = SparkSession.builder.master("local[1]")
if len(sys.argv) == 2:  # Spark fetches it; but it has to be loaded together with Spark's own part of Hadoop
    package = f"org.apache.hadoop:hadoop-client-minicluster:{hadoop_version()}"
    spark = session.config("spark.jars.packages", package).getOrCreate()
    kept = shutil.copytree(SparkFiles.getRootDirectory(), f"{sys.argv[1]}.jars")
    spark.stop()
    os.execv(sys.executable, [sys.executable, *sys.argv, f"{kept}/*"])
jvm = session.config("spark.driver.extraClassPath", sys.argv[2]).getOrCreate()._jvm
conf = jvm.org.apache.hadoop.conf.Configuration()
conf.set("hdfs.minidfs.basedir", sys.argv[1])
conf.set("dfs.replication", "1")
made = jvm.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(conf).numDataNodes(1).build()
made.waitActive()
print("READY", made.getNameNodePort(), made.getNameNode().getHttpAddress().getPort(), flush=True)
sys.stdin.read()
made.shutdown()
"""


PUBLISHED = """
from datetime import date
import nova_assets as nova

LAKE = "s3://lake"
keyed = nova.Upsert(key=["dt", "id"])
days = nova.daily("dt", start="2024-01-01")
tables = [nova.hive(LAKE + "/exports/linked"), nova.hive_table(LAKE + "/exports/converted")]
actions = nova.Channel("actions", keyed, "dt date NOT NULL, id bigint NOT NULL, n bigint", days, publish=tables)

with nova.open(nova.Project(channels=[actions]), warehouse=LAKE + "/wh", catalog="sqlite:///c3.db") as store:
    spark = store.engine.session

    def insert(n, *numbers):
        store.insert("actions", [{"dt": date(2024, 1, d), "id": i, "n": n} for d in numbers for i in range(3)])

    def files(table, day):
        rows = spark.read.text(f"{LAKE}/exports/{table}/dt=2024-01-0{day}/manifest").collect()
        return [r.value for r in rows]

    def numbers(addresses):
        return sorted(r.n for r in spark.read.parquet(*addresses).select("n").collect())

    insert(1, 1, 2)
    store.publish("actions")
    first = {table: files(table, 2) for table in ("linked", "converted")}
    assert all(numbers(f) == [1, 1, 1] for f in first.values()), first
    insert(2, 2)
    store._publishing.publisher.superseded_delay = 3600.0
    store.publish("actions")
    for table, old in first.items():
        assert numbers(files(table, 1)) == [1, 1, 1] and numbers(files(table, 2)) == [2, 2, 2]
        assert numbers(old) == [1, 1, 1], "a reader of the old edition finishes"
    store.unpublish("actions")
    assert store.read("actions").to_arrow().num_rows == 6
    path = spark._jvm.org.apache.hadoop.fs.Path(LAKE + "/exports")
    found = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).listFiles(path, True)
    assert not found.hasNext(), found.next().getPath().toString()
print("published and withdrawn in", LAKE)
"""

TAKEN = """
import nova_assets as nova
from nova_assets.engine.read.table_folder import read_table_folder
from nova_assets.model.published_version import ExistingTableFile, TableFileLayout

LAKE = "s3://lake"
old = LAKE + "/exports/old"
days = nova.daily("dt", start="2024-01-01")
actions = nova.Channel("actions", schema="dt date, id bigint, n bigint", partitions=days,
                       publish=nova.hive(LAKE + "/exports/new"))

with nova.open(nova.Project(channels=[actions]), warehouse=LAKE + "/wh2", catalog="sqlite:///c4.db") as store:
    spark = store.engine.session
    frame = spark.sql("SELECT id, CAST(id * 10 AS INT) AS n, DATE_ADD(DATE'2024-01-01', CAST(id % 2 AS INT)) AS dt "
                      "FROM RANGE(6)")
    frame.repartition(2).write.partitionBy("dt").parquet(old)
    before = sorted(map(str, spark.read.parquet(old).collect()))
    [version] = store.publish("actions", take_over_from=old)
    assert version.rows == 6
    for day in (1, 2):
        files = [r.value for r in spark.read.text(f"{LAKE}/exports/new/dt=2024-01-0{day}/manifest").collect()]
        new, theirs = spark.read.parquet(*files), spark.read.parquet(f"{old}/dt=2024-01-0{day}")
        assert new.schema == theirs.schema and sorted(new.collect()) == sorted(theirs.collect())
    assert sorted(map(str, spark.read.parquet(old).collect())) == before

    found = [f for f in store.engine.external_files.list_files(old) if f.path.endswith(".parquet")]
    files = [ExistingTableFile(f.path, f.bytes, {}) for f in found]
    large = read_table_folder(spark, old, files, actions, TableFileLayout())
    assert sorted(map(str, large.collect())) == before, "as a folder that does not fit in memory is read"
print("taken over from", old)
"""


def test_spark_and_webhdfs_share_a_cluster(tmp_path: Path) -> None:
    from nova_assets_tests.cloud.test_spark import STORY

    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "no_proxy": "*"}
    (tmp_path / "cluster.py").write_text(CLUSTER)
    command = [sys.executable, "cluster.py", str(tmp_path / "hdfs")]
    with (tmp_path / "cluster.log").open("w") as log:
        cluster = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert cluster.stdout is not None and cluster.stdin is not None
    try:
        ready = next((line for line in cluster.stdout if line.startswith("READY")), None)
        assert ready is not None, (tmp_path / "cluster.log").read_text()[-6000:]
        _, port, web = ready.split()
        env |= {"WEBHDFS_URL": f"http://127.0.0.1:{web}"}
        for story in (STORY, PUBLISHED, TAKEN):
            (tmp_path / "story.py").write_text(story.replace("s3://lake", f"hdfs://127.0.0.1:{port}/lake"))
            done = subprocess.run(
                [sys.executable, "story.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1200
            )
            assert done.returncode == 0, done.stdout + done.stderr[-6000:]
            print(done.stdout)
    finally:
        cluster.stdin.close()
        cluster.wait(timeout=60)
