"""Failures as a person reads them: the user's line first; and nothing of them is visible afterwards (R3)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.user_code_errors import summarize_user_error

source, out = nova.Channel("source", schema="k int, v string"), nova.Channel("out", schema="k int, v string")

PIPELINE = """
from pyspark.sql import functions as F
import nova_assets as nova

source, out = nova.Channel("source", schema="k int, v string"), nova.Channel("out", schema="k int, v string")

def price_of(text):
    if text == "x":
        raise ValueError("no price in " + text)
    return text

@nova.task(consumes=nova.new(source), produces=nova.delta(out))
def work(source):
    {body}

project = nova.Project([nova.bind(nova.Workflowette("w", [work]))])
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> Any:
    """Run a task with this body; gives the error and the store."""
    stores: list[nova.Store] = []

    def go(body: str) -> tuple[nova.TaskFailed, nova.Store]:
        name = f"pipeline_{len(list(tmp_path.glob('*.py')))}_{os.getpid()}_{time.monotonic_ns()}"
        (tmp_path / f"{name}.py").write_text(PIPELINE.replace("{body}", textwrap.indent(body, "    ").strip()))
        monkeypatch.syspath_prepend(str(tmp_path))
        store = nova.open(f"{name}:project", f"sqlite:///{tmp_path}/{name}.db", tmp_path / "wh", spark)
        stores.append(store)
        store.insert("source", [{"k": 1, "v": "x"}])
        with pytest.raises(nova.TaskFailed) as met:
            store.run("w")
        assert store.catalog.definitions.channel("out").head == 0 and all(c.seq == 0 for c in store.cursors())
        return met.value, store

    yield go
    for store in stores:
        store.close()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("body", "says", "at"),
    [
        ("return price_of('x')", "raised ValueError: no price in x", r", in price_of: raise ValueError"),
        ("return source.select('nope')", "raised AnalysisException: .*UNRESOLVED_COLUMN.*nope", r"line \d+"),
        (
            "return source.withColumn('v', F.raise_error(F.lit('by hand')).cast('string'))",
            "rows were computed: .*by hand",
            "",
        ),
        (
            "return source.withColumn('k', (F.col('k') / 0).cast('int'))",
            "rows were computed: .*DIVIDE_BY_ZERO",
            r"line \d+" if version("pyspark") >= "4" else "",  # which Spark 3.5 does not tell
        ),
    ],
)
def test_a_task_that_fails_names_the_line(body: str, says: str, at: str, run: Any) -> None:
    error, _ = run(body)
    assert re.search(says, error.what), error.what
    assert re.search(at, error.found or ""), error.found
    assert len(str(error).splitlines()) <= 6, "not 200 lines of the JVM"
    assert error.__cause__ is not None, "which are there for who wants them"


@pytest.mark.spark
def test_a_udf_that_raises_names_its_own_line(run: Any) -> None:
    error, _ = run(
        "def parse(text):\n    return str(int(text))\nreturn source.withColumn('v', F.udf(parse)('v'))",
    )
    assert "failed while its rows were computed: ValueError: invalid literal for int() with base 10: 'x'" in error.what
    assert re.search(r"line 15, in parse", error.found), error.found


@pytest.mark.spark
def test_a_worker_that_dies_is_told(run: Any) -> None:
    error, store = run("import os\nreturn source.withColumn('v', F.udf(lambda v: os._exit(3))('v'))")
    assert re.search(r"rows were computed: .*(crashed|EOF|exited)", error.what), error.what
    store.insert("source", [{"k": 2, "v": "y"}])  # the session lives on


SLOW = """
import time

def wait(batches):
    for batch in batches:
        time.sleep(1)
        yield batch

rows = source.select(F.explode(F.sequence(F.lit(1), F.lit(60))).alias("k"), "v").repartition(60).mapInArrow(
    wait, "k int, v string"
)
"""
ENDS = {
    "lazily": "return rows",
    "at once, and tidies up": """
try:
    return rows.localCheckpoint()
finally:
    source.sparkSession.conf.set("spark.tidied", "yes")
""",
}


@pytest.fixture(params=ENDS.values(), ids=ENDS)
def slow(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> Iterator[nova.Store]:
    """A store with a binding that is at work for half a minute or more."""
    monkeypatch.setattr("nova_assets.engine.tasks.progress.REPORT_SECONDS", 1.0)
    body = textwrap.indent(SLOW + request.param, "    ").strip()
    (tmp_path / "slow_pipeline.py").write_text(PIPELINE.replace("{body}", body))
    monkeypatch.syspath_prepend(str(tmp_path))
    with nova.open("slow_pipeline:project", f"sqlite:///{tmp_path}/c.db", tmp_path / "wh", spark) as store:
        store.insert("source", [{"k": 1, "v": "x"}])
        yield store
    sys.modules.pop("slow_pipeline")
    spark.conf.unset("spark.tidied")


@pytest.mark.spark
@pytest.mark.slow
def test_what_spark_is_doing_is_told_and_a_cancelled_run_stops_it(
    slow: nova.Store, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Cancelled(BaseException):
        """As Dagster interrupts a run that was cancelled."""

    heard: list[Any] = []
    killed = threading.Event()

    def cancel(*_: Any) -> None:
        raise Cancelled

    def hear(event: str, subject: Any) -> None:
        if event == "progress":
            if subject.done > 1 and subject.total >= 60 and not killed.is_set():
                killed.set()
                os.kill(os.getpid(), signal.SIGALRM)
            heard.append(subject)

    caplog.set_level("INFO", "nova_assets.task")
    before = signal.signal(signal.SIGALRM, cancel)
    try:
        with pytest.raises(Cancelled):
            slow.run("w", observer=hear)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert all(p.task == "work" and 0 <= p.done <= p.total for p in heard) and str(heard[-1]) in caplog.text
    assert re.fullmatch(r"work: \d+ of \d+ Spark tasks done", str(heard[-1]))

    assert heard[-1].done < heard[-1].total / 2, "it was told to stop, and went on"
    assert spark.range(3).count() == 3, "the session answers what it is asked"
    until = time.monotonic() + 10
    while (running := spark.sparkContext.statusTracker().getActiveJobsIds()) and time.monotonic() < until:
        time.sleep(0.1)
    assert not running
    assert (
        slow.catalog.definitions.channel("out").head == 0
        and not slow.cursors()
        and slow.executions("w")[0].state == "failed"
    )


def test_a_jvm_out_of_memory_is_told_in_one_line() -> None:
    class Py4JJavaError(Exception):
        pass

    Py4JJavaError.__module__ = "py4j.protocol"
    text = "An error occurred while calling o1.parquet.\n: org.apache.spark.SparkException: Job aborted\n\tat a.b.C\n"
    text += "Caused by: java.lang.OutOfMemoryError: Java heap space\n\tat java.base/x\n"
    found = summarize_user_error(Py4JJavaError(text))
    assert found.message.startswith(
        "OutOfMemoryError: Java heap space (the data of one step does not fit into memory: give it more"
    )
    over = Py4JJavaError(
        "An error occurred.\n: org.apache.spark.SparkException: Job 0 cancelled because SparkContext was shut down"
    )
    assert (
        "ended" not in summarize_user_error(ConnectionRefusedError("Connection refused")).message
    )  # by a service of the user's
    assert "(Spark has ended, usually because it ran out of memory" in summarize_user_error(over).message


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.exhaustive
def test_a_spark_that_runs_out_of_memory_publishes_nothing_and_says_how_to_give_it_more(tmp_path: Path) -> None:
    body = """huge = F.repeat(F.lit("x"), 450_000_000)
return source.withColumn("v", huge).withColumn("v", F.concat("v", "v"))"""
    (tmp_path / "shop.py").write_text(PIPELINE.replace("{body}", textwrap.indent(body, "    ").strip()))
    (tmp_path / "data.csv").write_text("k,v\n1,x\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.nova]\nproject = "shop:project"\nspark_config = {"spark.driver.memory" = "512m"}\n'
    )
    command = [sys.executable, "-m", "nova_assets.cli"]
    subprocess.run([*command, "insert", "source", "data.csv"], cwd=tmp_path, check=True)
    done = subprocess.run([*command, "run", "w"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and re.search(
        r"NOVA-TASK-FAILED.* 'work' .*(OutOfMemoryError|has ended meanwhile).*spark.driver.memory", done.stderr
    ), done.stderr
    with nova.open(
        catalog=f"sqlite:///{tmp_path}/.nova/catalog.db", warehouse=tmp_path / ".nova" / "warehouse"
    ) as store:
        assert store.catalog.definitions.channel("out").head == 0 and store.executions("w")[0].state == "failed"
        assert all(c.seq == 0 for c in store.cursors())


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_that_is_interrupted_leaves_nothing_and_can_be_resumed(tmp_path: Path) -> None:
    body = "import time\nfrom pathlib import Path\nPath('started').touch()\ntime.sleep(60)\nreturn source"
    (tmp_path / "shop.py").write_text(PIPELINE.replace("{body}", textwrap.indent(body, "    ").strip()))
    (tmp_path / "data.csv").write_text("k,v\n1,x\n")
    nova_command = [sys.executable, "-m", "nova_assets.cli", "--project", "shop:project"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run([*nova_command, "insert", "source", "data.csv"], cwd=tmp_path, env=environment, check=True)
    running = subprocess.Popen(
        [*nova_command, "run", "w"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60
    while not (tmp_path / "started").exists() and time.monotonic() < until:
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode not in (0, None) and re.search(r"nothing was committed.*--resume \w+", said), said
    with nova.open(
        catalog=f"sqlite:///{tmp_path}/.nova/catalog.db", warehouse=tmp_path / ".nova" / "warehouse"
    ) as store:
        assert store.catalog.definitions.channel("out").head == 0 and store.executions("w")[0].state == "failed"
