"""Python processes that start at once: copies of a process that has imported this package, Dagster and PySpark.

Tests that kill a process at many points need as many processes. The imports of each would take longer than the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PRELOADED = (
    "nova_assets.wiring.open_store",
    "nova_assets.dagster_bridge",
    "nova_assets_tests.stub_engine",
    # What short processes spend most of their time on: the imports of the tests, of an insert and of a read.
    "nova_assets_tests.catalog_acts",
    "pandas",
    "pyarrow.parquet",
    "sqlalchemy.dialects.sqlite",
    "nova_assets.catalog.catalog",
    "nova_assets.engine.spark_engine",
)


def run_python(
    arguments: Sequence[str], environment: Mapping[str, str], timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Do what ``python ARGUMENTS`` does, in a process of its own, in the folder of this one.

    Args:
        arguments: ``-m MODULE`` or ``-c CODE``, with the arguments of the program.
        environment: variables of the process, beside those of this process.
        timeout: seconds.

    Raises:
        subprocess.TimeoutExpired: the process has been killed after this time.
    """
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([*PRELOADED])
    with tempfile.TemporaryDirectory() as folder:
        for name in ("out", "err"):
            (Path(folder) / name).touch()
        process = processes.Process(
            target=_run, args=([*arguments], {**os.environ, **environment}, folder, os.getcwd())
        )
        process.start()
        process.join(timeout)
        out, err = ((Path(folder) / name).read_text(errors="replace") for name in ("out", "err"))
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired([*arguments], timeout, out, err)
        return subprocess.CompletedProcess([*arguments], process.exitcode, out, err)


def _run(arguments: Sequence[str], environment: Mapping[str, str], folder: str, working_folder: str) -> None:
    os.chdir(working_folder)
    for name, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_APPEND), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    kind, program, *given = arguments
    sys.argv = [kind, *given]
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
