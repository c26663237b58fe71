"""A Spark Connect server that ``nova`` starts and keeps: shared by commands, and by Dagster's steps in processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(version("pyspark") < "4.3", reason="PySpark keeps such a server from 4.3 on"),
]

HELPER = """
import random

def draw(k):
    return random.random()
"""

PIPELINE = """
import dagster as dg
import nova_assets as nova
from pyspark.sql import functions as F

import helper
from nova_assets.dagster_bridge import build_definitions

source, left, right = (nova.Channel(n) for n in ("source", "left", "right"))

@nova.task(consumes=nova.new(source), produces=nova.delta("drawn"))
def draw(source):
    return source.withColumn("u", F.udf(helper.draw, "double")("k"))

@nova.task(consumes=nova.new("drawn"), produces=[nova.delta(left), nova.delta(right)])
def split(drawn):
    doubled = drawn.withColumn("w", F.udf(helper.draw, "double")("k"))
    return {"left": doubled, "right": doubled.where("k % 2 = 0").select("w", "k", "u")}

@nova.check(nova.new(left))
def drawn_from_one(left):
    return left.where("u < 0 or u > 1")

project = nova.Project([nova.bind(nova.Workflowette("w", [draw, split], checks=[drawn_from_one]))])
defs = build_definitions(project, spark="server", executor=dg.multiprocess_executor)
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    (tmp_path / "pyproject.toml").write_text('[tool.nova]\nproject = "pipeline:project"\nspark = "server"\n')
    yield tmp_path
    nova(tmp_path, "spark", "stop")


def environment(place: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NOVA_", "SPARK_", "DAGSTER_"))}
    # MASTER names the server's own, and is in no client's way.
    return {**kept, "DAGSTER_HOME": str(place / "home"), "MASTER": "local[2]"}


def nova(place: Path, *arguments: str) -> dict[str, Any]:
    program = str(Path(sys.executable).with_name("nova"))  # which does not put this folder on its path
    done = subprocess.run(
        [program, *arguments, "--json"],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(place: Path, channel: str) -> dict[int, tuple[float, float]]:
    return {r["k"]: (r["u"], r["w"]) for r in nova(place, "read", channel)["rows"]}


@pytest.mark.exhaustive
def test_one_warm_server_serves_commands_and_the_steps_of_dagster(place: Path) -> None:
    for part in range(2):
        (place / f"{part}.jsonl").write_text("".join(f'{{"k": {100 * part + n}}}\n' for n in range(100)))
    started = nova(place, "spark", "start")
    assert started["running"] and started["used"] and started["address"].startswith("sc://localhost:")

    nova(place, "insert", "source", "0.jsonl")
    assert nova(place, "run", "w")["state"] == "committed"

    nova(place, "insert", "source", "1.jsonl")
    job = [sys.executable, "-m", "dagster", "job", "execute", "-f", "pipeline.py", "-j", "w"]
    done = subprocess.run(job, cwd=place, env=environment(place), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Launching subprocess for" in done.stderr

    assert nova(place, "spark")["pid"] == started["pid"]
    settings = place / "pyproject.toml"
    settings.write_text(settings.read_text() + 'spark_config = {"spark.driver.memory" = "3g"}\n')
    program = str(Path(sys.executable).with_name("nova"))
    said = subprocess.run([program, "run", "w"], cwd=place, env=environment(place), capture_output=True, text=True)
    assert said.returncode == 0 and "nova spark stop" in said.stderr, said.stderr
    heads = {c["name"]: c["head"] for c in nova(place, "channels")["channels"]}
    assert heads == {"source": 2, "left": 2, "right": 2}
    left, right = rows(place, "left"), rows(place, "right")
    assert len(left) == 200 and right == {k: v for k, v in left.items() if k % 2 == 0}  # R4, on Connect, too

    assert not nova(place, "spark", "stop")["running"]


@pytest.mark.exhaustive
def test_a_server_whose_start_nobody_lived_to_record_is_in_nobodys_way(place: Path) -> None:
    """Whoever starts one records it when it is ready, and may be killed before."""
    unrecorded = nova(place, "spark", "start")["pid"]
    (place / ".nova" / "spark" / "server.json").unlink()
    started = nova(place, "spark", "start")
    assert started["running"] and started["pid"] != unrecorded and not is_server(unrecorded)

    (place / ".nova" / "spark" / "server.json").unlink()
    assert not nova(place, "spark", "stop")["running"]
    assert not is_server(started["pid"])


@pytest.mark.exhaustive
def test_a_server_that_does_not_end_when_it_is_stopped_is_killed(place: Path) -> None:
    pid = nova(place, "spark", "start")["pid"]
    os.kill(pid, signal.SIGSTOP)  # it hears of nothing any more
    assert not nova(place, "spark", "stop")["running"]
    until = time.monotonic() + 5
    while is_server(pid) and time.monotonic() < until:
        time.sleep(0.1)
    assert not is_server(pid)


LOSING = """
import json, os, signal, sys, time
from pathlib import Path
import nova_assets as nova
from nova_assets.settings import load_settings

def pid():
    return json.loads(Path(".nova/spark/server.json").read_text())["pid"]

with nova.open(settings=load_settings()) as store:
    source = nova.Channel("source", schema="k bigint")
    store.insert(source, [{"k": 1}])
    assert store.read("source").to_spark().count() == 1
    frame, before = store.read("source").to_spark(), pid()
    os.kill(before, signal.SIGKILL)
    began = time.monotonic()
    try:
        frame.count()
    except Exception as error:
        print("failed after", time.monotonic() - began, type(error).__name__)
        assert time.monotonic() - began < 30
    else:
        sys.exit("it is not known that the server has gone")
    assert store.read("source").to_spark().count() == 1 and pid() != before
    os.kill(pid(), signal.SIGKILL)
"""


@pytest.mark.exhaustive
def test_whoever_uses_a_server_that_is_killed_hears_of_it_at_once_and_gets_another(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOSING],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "failed after" in done.stdout


USING = """
import nova_assets as nova
from nova_assets.settings import load_settings

with nova.open(settings=load_settings()) as store:
    spark = store.engine.session
    from pyspark.sql import functions as F
    assert spark.range(2).select(F.udf(lambda n: n + 1, "long")("id")).collect()[1][0] == 2
    print(spark.session_id)
"""

LATER = """
import sys
import nova_assets as nova
from nova_assets.settings import load_settings
from pyspark.sql.connect.session import SparkSession

with nova.open(settings=load_settings()) as store:
    store.engine.session  # knows the server's token
try:
    SparkSession.builder.remote(f"{sys.argv[1]}/;session_id={sys.argv[2]}").create().range(1).count()
except Exception as error:
    print(type(error).__name__, str(error)[:200])
"""


@pytest.mark.exhaustive
def test_a_session_ends_with_its_process_and_its_daemon_when_it_is_idle(place: Path) -> None:
    def printed(program: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=place,
            env=environment(place),
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    started = nova(place, "spark", "start")
    server = started["pid"]
    sessions = [printed(USING) for _ in range(2)]
    assert "SESSION_CLOSED" in printed(LATER, started["address"], sessions[0])
    daemons = daemons_of(server)
    assert len(daemons) == 2, "one for each session that ran Python"
    until = time.monotonic() + 480
    while daemons_of(server) and time.monotonic() < until:
        time.sleep(5)
    assert not daemons_of(server)


def daemons_of(server: int) -> list[str]:
    listed = subprocess.run(["ps", "-ww", "--ppid", str(server), "-o", "command="], capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if "nova_assets.engine.session.python_daemon" in line]


def is_server(pid: int) -> bool:
    listed = subprocess.run(["ps", "-ww", "-p", str(pid), "-o", "command="], capture_output=True, text=True)
    return "SparkConnectServer" in listed.stdout
