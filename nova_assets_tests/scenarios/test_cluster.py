"""A session on a standalone cluster. The workers share a folder with the driver, and lack this package, the user's
code, and most packages that both import."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_assets_tests.cluster import JAVA_OPTIONS, Cluster, spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]

FILES = {
    "shop/__init__.py": "",
    "shop/channels.py": """
import nova_assets as nova

orders = nova.Channel("orders", nova.Upsert(key="id"), "id bigint, city string, price bigint, note string")
cleaned = nova.Channel("cleaned", nova.Upsert(key="id"), "id bigint, city string, price bigint, module string")
totals = nova.Channel("totals", nova.Keyed(key="city", combine={"price": "sum"}), "city string, price bigint")
""",
    "shop/cities.txt": "Bonn\nOslo\nRiga\n",
    "shop/cleaning.py": """
from importlib.resources import files

import nova_assets
from shop.channels import orders  # workers import definitions, too

CITIES = files("shop").joinpath("cities.txt").read_text().split()

def city_of(text):
    return next((c for c in CITIES if c.lower() == text.strip().lower()), None)
""",
    "shop/pipeline.py": """
import dagster  # which the workers lack
import pyarrow as pa
from pyspark.sql import functions as F

import nova_assets as nova
from shop import cleaning
from shop.channels import cleaned, orders, totals

def code_of_workers(batches):
    for batch in batches:
        column = pa.array([nova.__file__ + " " + cleaning.__file__] * batch.num_rows)
        yield pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, "module"])

@nova.task(consumes=nova.new(orders), produces=nova.delta(cleaned))
def clean(orders):
    rows = orders.select("id", F.udf(cleaning.city_of, "string")("city").alias("city"), "price")
    return rows.mapInArrow(code_of_workers, "id bigint, city string, price bigint, module string")

@nova.task(consumes=nova.new(orders), produces=nova.delta(totals))
def add(orders):
    city = F.udf(cleaning.city_of, "string")("city").alias("city")
    return orders.groupBy(city).agg(F.sum("price").alias("price"))

project = nova.Project([nova.bind(nova.Workflowette("clean", [clean])), nova.bind(nova.Workflowette("add", [add]))])
""",
    "story.py": """
import nova_assets as nova
from pyspark.sql import functions as F

with nova.open() as store:
    spark = store.engine.session
    assert spark.sparkContext.master.startswith("spark://"), spark.sparkContext.master
    names = F.element_at(F.array(*map(F.lit, (" bonn", "OSLO ", "Riga"))), (F.col("id") % 3 + 1).cast("int"))
    rows = spark.range(0, 20_000, 1, 4).select("id", names.alias("city"), (F.col("id") % 10).alias("price"))
    store.insert("orders", rows.withColumn("note", F.lit("x")))
    assert store.run("clean").state == store.run("add").state == "committed"
    found = store.read("cleaned").to_arrow().to_pylist()
    assert len(found) == 20_000
    assert all(r["city"] == ("Bonn", "Oslo", "Riga")[r["id"] % 3] and r["price"] == r["id"] % 10 for r in found)
    [modules] = {r["module"] for r in found}
    assert all(".zip/" in part for part in modules.split()), modules
    expected = {}
    for r in found:
        expected[r["city"]] = expected.get(r["city"], 0) + r["price"]
    assert {r["city"]: r["price"] for r in store.read("totals").to_spark().collect()} == expected
    [block] = [b for b in store.catalog.histories.of("orders").blocks]
    assert block.manifest.layout is not None, "the workers wrote the rows by this package's code"
    changed = spark.range(0, 100).withColumn("price", F.lit(1).cast("bigint"))
    store.insert("orders", changed.selectExpr("id", "'riga' city", "price", "'y' note"))
    store.engine.reader.forced_strategy = "buckets"  # units are merged by the workers
    assert [w["way"] for w in store.compact("orders").details["ways"]] == ["buckets"]
    assert store.read("orders").to_spark().where("note = 'y'").count() == 100
    store.engine.reader.forced_strategy = None
    assert store.run("clean").state == "committed"
    riga = [r for r in store.read("cleaned").to_arrow().to_pylist() if r["id"] < 100]
    assert len(riga) == 100 and {r["city"] for r in riga} == {"Riga"}
print("done")
""",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def settings(cluster: Cluster, warehouse: str) -> str:
    config = {
        "spark.pyspark.python": str(cluster.python),
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "768m",
        "spark.sql.shuffle.partitions": "4",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    }
    lines = "".join(f"{name!r} = {value!r}\n".replace("'", '"') for name, value in config.items())
    return (
        f'[tool.nova]\nproject = "shop.pipeline:project"\nwarehouse = "{warehouse}"\nspark = "{cluster.master}"\n'
        f"[tool.nova.spark_config]\n{lines}"
    )


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NOVA_", "SPARK_", "PYSPARK_"))}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **variables}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=1100
    )


@pytest.mark.exhaustive
def test_a_project_runs_on_workers_that_lack_its_code_and_this_package(cluster: Cluster, tmp_path: Path) -> None:
    for package in ("nova_assets", "sqlglot", "dagster", "shop"):
        command = [cluster.python, "-c", f"import {package}"]
        lacking = subprocess.run(command, env={}, cwd=tmp_path, capture_output=True, text=True)
        assert "ModuleNotFoundError" in lacking.stderr, package
    for name, text in {**FILES, "pyproject.toml": settings(cluster, "warehouse")}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = run(tmp_path, "story.py")
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    print(done.stdout)
    first, second = cluster.applications_by_worker
    assert first & second, "both workers took part"
