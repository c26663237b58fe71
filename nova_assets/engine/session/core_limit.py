"""Limits of cores. Spark limits only whole sessions, so a limit decides how a session is started."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nova_assets.engine.session.spark_config import is_connect_session
from nova_assets.errors import EngineUnavailable

CLUSTER_CORES = "spark.cores.max"
EXECUTOR_CORES = "spark.executor.cores"

_LOCAL_MASTER = re.compile(r"local(?:\[(?P<cores>\*|\d+)(?:,.*)?\])?")


def limited_settings(settings: Mapping[str, str], max_cores: int | None) -> dict[str, str]:
    """Settings of a session that is about to start, with at most so many cores. A smaller number in the settings stays.

    The settings of a master that cannot be limited stay as they are (``check_core_limit``).

    Args:
        settings: with ``spark.master``.
        max_cores: number of tasks at once; None for no limit.
    """
    master = settings["spark.master"]
    if max_cores is None:
        return dict(settings)
    if (local := _LOCAL_MASTER.fullmatch(master)) is not None:
        stated = local["cores"] or "1"
        return {**settings, "spark.master": f"local[{_smaller(None if stated == '*' else stated, max_cores)}]"}
    if master.startswith("spark://"):
        limited = {**settings, CLUSTER_CORES: _smaller(settings.get(CLUSTER_CORES), max_cores)}
        if EXECUTOR_CORES in settings:  # no executor starts that would have more cores than the session may use
            limited[EXECUTOR_CORES] = _smaller(settings[EXECUTOR_CORES], max_cores)
        return limited
    return dict(settings)


def check_core_limit(spark: Any, max_cores: int) -> None:
    """Check that a session runs at most so many tasks at once. A limit that holds only sometimes would mislead.

    Raises:
        EngineUnavailable: it has more cores, or their number is not known.
    """
    cores = session_cores(spark)
    if cores is not None and cores <= max_cores:
        return
    raise EngineUnavailable(
        f"an execution may use at most {max_cores} cores, and the Spark session of this process is not limited to that",
        found="a session whose number of cores is not known" if cores is None else f"a session with {cores} cores",
        expected=f"resources=nova.Resources(max_cores={max_cores})",
        next='run the binding in a process of its own (nova run BINDING), with spark = "local" or "spark://host:port", '
        f"or pass a session of at most {max_cores} cores",
    )


def session_cores(spark: Any) -> int | None:
    """Largest number of tasks that a session runs at once; None if it is not known."""
    if is_connect_session(spark):
        return None
    context = spark.sparkContext
    if (local := _LOCAL_MASTER.fullmatch(str(context.master))) is not None:
        if local["cores"] == "*":
            return int(spark._jvm.java.lang.Runtime.getRuntime().availableProcessors())
        return int(local["cores"] or 1)
    stated = context.getConf().get(CLUSTER_CORES) if str(context.master).startswith("spark://") else None
    return None if stated is None else int(stated)


def _smaller(stated: str | None, max_cores: int) -> str:
    return str(max_cores if stated is None else min(int(stated), max_cores))
