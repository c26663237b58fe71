"""Number of the parts into which shuffles divide rows."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.model.resources import Parallelism

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def shuffle_partitions(spark: SparkSession, parallelism: Parallelism) -> AbstractContextManager[None]:
    """Context in which a session divides shuffled rows as an execution needs it.

    A number by cost never lowers that of the session: a shuffle with few large parts does not fit into memory, while
    Spark joins small parts.
    """
    wanted = parallelism.shuffle_partitions
    if not parallelism.is_stated and (wanted == 1 or wanted <= int(spark.conf.get(SHUFFLE_PARTITIONS) or 0)):
        return nullcontext()
    return temporary_settings(spark, {SHUFFLE_PARTITIONS: str(wanted)})
