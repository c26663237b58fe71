"""A Spark job that asks a service for files, which is killed, slowed, or made to answer wrongly while the job runs: the
result is the same, the counters tell, and later calls return to the service."""

from __future__ import annotations

import datetime as d
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.settings import load_settings
from nova_assets_tests.effort import long_except
from nova_assets_tests.service.faulty_proxy import run_faulty_proxy
from nova_assets_tests.service.service_process import run_service_process

DAYS = 8
VISITS = nova.Channel(
    "visits",
    merge=nova.Append(),
    schema="dt date, n bigint",
    partitions=[nova.daily("dt", start="2024-01-01")],
)
COUNTED = nova.Channel(
    "counted", merge=nova.Upsert(key="partition"), schema="partition string, files bigint, rows bigint, total bigint"
)


def names() -> list[str]:
    return [f"dt={d.date(2024, 1, 1) + d.timedelta(days=n)}" for n in range(DAYS)]


@nova.task(consumes=nova.all(VISITS), produces=nova.base(COUNTED))
def count(ctx: nova.Context, visits: Any) -> Any:
    """One task of Spark's for each partition: it asks for the files, and opens them itself."""
    views, marks = ctx.views, Path(ctx.params["marks"])

    def told(views: nova.Views) -> tuple[int, int]:
        return views.counts.served, sum(views.counts.fell_back.values())

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in batch.column("partition").to_pylist():
                (marks / "begun" / name).touch()
                while (marks / "wait").exists() and name > names()[2]:
                    time.sleep(0.01)  # until the service has gone wrong
                before = told(views)
                files = views.files("visits", name)
                tables = [pq.read_table(f.path, columns=["n"]) for f in files]
                total = sum(sum(t.column("n").to_pylist()) for t in tables)
                row = (name, len(files), sum(f.rows for f in files), total)
                after = told(views)
                (marks / "asked" / name).write_text(f"{after[0] - before[0]} {after[1] - before[1]}")
                yield pa.RecordBatch.from_pylist(
                    [dict(zip(("partition", "files", "rows", "total"), row, strict=True))],
                    schema=pa.schema(
                        [("partition", pa.string()), ("files", pa.int64()), ("rows", pa.int64()), ("total", pa.int64())]
                    ),
                )

    wanted = ctx.spark.createDataFrame([(name,) for name in names()], "partition string").repartition(DAYS, "partition")
    return wanted.mapInArrow(counted, "partition string, files bigint, rows bigint, total bigint")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("fault", long_except(["dead", "slow", "wrong hash"], "dead"))
def test_a_job_does_not_fail_with_its_service(spark: Any, tmp_path: Path, fault: str) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    marks = tmp_path / "marks"
    for folder in ("begun", "asked"):
        (marks / folder).mkdir(parents=True)
    binding = nova.bind(nova.Workflowette("count", [count]), params={"marks": str(marks)})
    project = nova.Project([binding])
    patience = 3.0 if fault == "slow" else 30.0  # a slow machine is no fault of the service
    settings = load_settings(
        start_folder=tmp_path, catalog=catalog, warehouse=str(tmp_path / "wh"), service_timeout=patience
    )
    with nova.open(project, spark=spark, settings=settings) as store:
        store.register(project)
        for n in range(3):
            store.insert("visits", [{"dt": d.date(2024, 1, 1) + d.timedelta(days=k), "n": n + k} for k in range(DAYS)])
        expected = {name: (3, 3, 3 + 3 * k) for k, name in enumerate(names())}

    def rows(store: nova.Store) -> dict[str, tuple[int, int, int]]:
        found = store.read("counted").to_arrow().to_pylist()
        return {r["partition"]: (r["files"], r["rows"], r["total"]) for r in found}

    def asked() -> tuple[int, int]:
        """How many of the workers' questions the service has answered, and how many not."""
        told = [tuple(map(int, f.read_text().split())) for f in (marks / "asked").iterdir()]
        return sum(a for a, _ in told), sum(b for _, b in told)

    with run_service_process(tmp_path, catalog) as real, run_faulty_proxy(real.url) as before:
        through = replace(settings, service=before.url)
        with nova.open(project, spark=spark, settings=through) as store:
            store.run("count")
            assert rows(store) == expected and asked() == (DAYS, 0)
            (marks / "wait").touch()
            broken = threading.Thread(target=_break, args=(before, fault, marks))
            broken.start()
            store.run("count")
            broken.join()
            assert rows(store) == expected
            served, fell_back = asked()
            assert served + fell_back == DAYS and fell_back >= DAYS - 3, "the counter tells"
            client = store.catalog.views  # type: ignore[attr-defined]
            store.insert("visits", [{"dt": d.date(2024, 1, 1), "n": 100}])
            assert len(store.read("visits").to_arrow()) == 3 * DAYS + 1
            assert sum(client.counts.fell_back.values()) > 0
            before.set_fault("well")
            time.sleep(3)
            served_before = client.counts.served
            store.run("count")
            assert rows(store) == {**expected, names()[0]: (4, 4, 103)}
            assert asked() == (DAYS, 0) and client.counts.served > served_before, "later calls return to the service"


def _break(before: Any, fault: str, marks: Path) -> None:
    """Once the job has begun."""
    for file in (marks / "begun").iterdir():
        file.unlink()
    while not any((marks / "begun").iterdir()):
        time.sleep(0.01)
    before.set_fault(fault)
    (marks / "wait").unlink()
