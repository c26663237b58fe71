"""Sessions on a cluster, whose workers have neither this package nor the user's code, and may be other machines.

The package is shipped to them by Spark's own means (``addPyFile``). Everything else that the workers need is stated in
settings of Spark: their Python, and the packages that they import.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova_assets.engine.session.environment import temporary_environment
from nova_assets.engine.session.shipped_code import ship_modules
from nova_assets.engine.session.spark_config import is_connect_session
from nova_assets.engine.storage.file_io import is_remote
from nova_assets.errors import EngineUnavailable
from nova_assets.spark_location import is_cluster_master
from nova_assets.user_code_errors import summarize_user_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKER_PYTHON_SETTING = "spark.pyspark.python"
DEFAULT_WORKER_PYTHON = "python3"
"""Spark's own default: the ``python3`` on the ``PATH`` of the workers. The path of this Python may not exist there."""

SHIPPED_PACKAGES = ("nova_assets", "sqlglot")
"""Packages that are shipped to the workers: this one, and the one which modules that define channels need."""

_S3_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
)


def is_cluster_session(spark: Any) -> bool:
    """Whether the tasks of a session run in other processes than the driver. False for Spark Connect, whose server
    knows its own workers."""
    return not is_connect_session(spark) and is_cluster_master(str(spark.sparkContext.master))


@contextmanager
def cluster_python_environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Context in which a session on a cluster is created. It decides the Python of the workers.

    The setting ``spark.pyspark.python`` names that Python, then the variable ``PYSPARK_PYTHON``. PySpark itself reads
    only the variable, unless the program was started by ``spark-submit``.
    """
    python = settings.get(WORKER_PYTHON_SETTING) or os.environ.get("PYSPARK_PYTHON") or DEFAULT_WORKER_PYTHON
    with temporary_environment(PYSPARK_PYTHON=python):
        yield


def prepare_workers(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Ship this package to the workers of a session that this package has created, and the access to an S3 warehouse.

    Spark passes the credentials of S3 to its executors, but not to their Python processes. They travel with each Python
    function. A setting ``spark.executorEnv`` would show them in the list of processes.
    """
    ship_modules(spark, SHIPPED_PACKAGES)
    if any(name.startswith("spark.hadoop.fs.s3a.") for name in settings):
        environment: dict[str, str] = spark.sparkContext.environment
        for name in _S3_VARIABLES:
            if name in os.environ:
                environment.setdefault(name, os.environ[name])


def check_workers_share_warehouse(warehouse: str, spark: SparkSession) -> None:
    """Check that files which the workers write into a warehouse arrive on this machine, if it is a folder.

    If each machine had a folder of its own at this path, Spark would write rows there and report success, and the rows
    would be missing here. The check runs tasks for every core that the session has now.

    Raises:
        EngineUnavailable: a file is missing here, or a worker cannot write into the folder.
    """
    if is_remote(warehouse) or not is_cluster_session(spark):
        return
    folder = Path(warehouse)
    probe = folder / f".nova-probe-{uuid.uuid4().hex}"
    tasks = max(4, 2 * spark.sparkContext.defaultParallelism)
    advice = "set warehouse to a folder that all machines share, at the same path, or to s3://BUCKET/PREFIX"
    expected = f"{folder} shared by this machine and all workers"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # Spark's own writer also works in a session of the user, whose workers may lack this package.
        spark.range(0, tasks, 1, tasks).write.parquet(probe.as_uri())
        arrived = len(list(probe.glob("part-*")))
    except Exception as error:
        raise EngineUnavailable(
            "the workers of the Spark cluster cannot write into the warehouse",
            found=summarize_user_error(error).message,
            expected=expected,
            next=advice,
        ) from error
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    if arrived != tasks:
        raise EngineUnavailable(
            "the workers of the Spark cluster write into another folder than this machine",
            found=f"{arrived} of {tasks} files that they wrote to {folder}",
            expected=expected,
            next=advice,
        )
