"""The news and the actions example on a standalone cluster, with a warehouse in S3 and a catalog in PostgreSQL.

Where the tests run as root on Linux, the driver's folders and this package are hidden from the workers. Hadoop's module
for S3 is half a gigabyte, so this runs where it is asked for: ``make test-remote``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import lxml
import pytest

from nova_assets_tests.cluster import JAVA_OPTIONS, Cluster, can_hide_folders, spark_cluster

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("NOVA_TEST_REMOTE" not in os.environ, reason="needs much of Spark's: make test-remote"),
]

STORY = """
import gzip, json, os, random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nova_assets as nova
from examples.actions import pipeline as actions
from examples.actions.__main__ import deliver_and_receive
from examples.actions.unreliable_delivery import UnreliableDelivery
from examples.news import pipeline as news
from examples.news.check import _find_run_problems
from examples.news.replay import replay_crawls
from examples.news.sources import load_bundled_feed
from pyspark.sql import functions as F

def where_workers_run(batches):
    import nova_assets, os
    for batch in batches:
        seen = f"{os.path.exists(HOME)} {os.path.exists(PACKAGE)} {nova_assets.__file__}"
        yield type(batch).from_pydict({"seen": [seen] * batch.num_rows})

HOME, PACKAGE = os.path.abspath("story.py"), nova.__file__
source = load_bundled_feed()
with nova.open(news.project, warehouse="s3://lake/news") as store:
    spark = store.engine.session
    assert spark.sparkContext.master.startswith("spark://")
    seen = {r.seen for r in spark.range(0, 8, 1, 4).mapInArrow(where_workers_run, "seen string").collect()}
    print("workers see the driver's folder, this package's folder, and import:", *sorted(seen), sep="\\n  ")
    assert all(".zip/" in s for s in seen)
    assert "HIDDEN" not in os.environ or all(s.startswith("False False ") for s in seen), seen
    arrivals = replay_crawls(store, source)
    assert all(run.state == "committed" for arrival in arrivals for run in arrival.runs)
    tagged = store.read("tagged_articles").to_arrow().to_pylist()
    assert not list(_find_run_problems(store, arrivals, tagged))
    unique = store.read("unique_articles")
    count = unique.to_spark().count()
    assert count == unique.to_arrow().num_rows > 0
    print("news:", len(arrivals), "crawls,", len(tagged), "tagged,", count, "unique articles")
    store.engine.reader.forced_strategy = "buckets"  # the workers' own code reads and writes S3
    print("compacted:", [w["way"] for w in store.compact("seen").details["ways"]])

logs, landing = Path("logs"), Path("landing")
logs.mkdir(), landing.mkdir()
rng, expected = random.Random(1), Counter()
for n in range(9):
    rows = []
    for k in range(200):
        at = datetime(2024, 1, 1 + n % 3, tzinfo=UTC) + timedelta(seconds=400 * k)
        rows.append({"ts": at.isoformat(), "action": rng.choice(["view", "click", "buy"]), "user": k})
        expected[str(at.date()), rows[-1]["action"]] += 1
    with gzip.open(logs / f"{n}.json.gz", "wt") as out:
        out.write("".join(json.dumps(r) + "\\n" for r in rows))
project, catalog = actions.project(landing.absolute()), os.environ["CATALOG_2"]
with nova.open(project, catalog, "s3://lake/actions") as store:
    total = deliver_and_receive(store, UnreliableDelivery(logs, landing), lambda part: None)
    rows = store.read("actions").to_spark()
    counts = {(str(r.dt), r.action): r["count"] for r in rows.groupBy("dt", "action").count().collect()}
    assert counts == dict(expected), (counts, expected)
    print("actions:", total.files, "files,", total.rows, "rows,", len(counts), "partitions; counts equal the truth")
    assert store.compact("actions") is not None
    assert rows.sparkSession.sparkContext.applicationId == spark.sparkContext.applicationId
    assert store.read("actions").to_spark().count() == sum(expected.values())
"""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster"), tmp_path, ROOT / "nova_assets") as cluster:
        yield cluster


def test_the_examples_run_on_workers_that_reach_only_s3(
    cluster: Cluster, endpoint: str, postgres_url: str, postgres_catalog_url: str, tmp_path: Path
) -> None:
    from nova_assets_tests import postgres

    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="lake")
    (tmp_path / "story.py").write_text(STORY)
    with tarfile.open(tmp_path / "deps.tar.gz", "w:gz") as archive:  # as `pip install --target deps lxml` makes it
        archive.add(Path(lxml.__file__).parent, "lxml")
    config = {
        "spark.pyspark.python": cluster.python,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "768m",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": "4",
        "spark.archives": f"{tmp_path}/deps.tar.gz#deps",
        "spark.executorEnv.PYTHONPATH": "deps",
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NOVA_", "SPARK_", "PYSPARK_"))}
    with postgres.fresh_database(postgres_url) as second:
        env = {
            **kept,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "NOVA_SPARK": cluster.master,
            "NOVA_SPARK_CONFIG": ";".join(f"{name}={value}" for name, value in config.items()),
            "NOVA_CATALOG": postgres_catalog_url,
            "CATALOG_2": second,
            **({"HIDDEN": "yes"} if can_hide_folders() else {}),
        }
        done = subprocess.run(
            [sys.executable, "story.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1500
        )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    print(done.stdout)
    first, second_worker = cluster.applications_by_worker
    assert first & second_worker, "both workers took part"
