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
        (tmp_path / "story.py").write_text(STORY.replace("s3://lake/wh", f"hdfs://127.0.0.1:{port}/lake/wh"))
        done = subprocess.run(
            [sys.executable, "story.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1200
        )
        assert done.returncode == 0, done.stdout + done.stderr[-6000:]
        print(done.stdout)
    finally:
        cluster.stdin.close()
        cluster.wait(timeout=60)
