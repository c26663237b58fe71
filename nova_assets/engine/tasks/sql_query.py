"""Queries in Spark SQL, over frames and local tables."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.literal_paths import load_paths
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.engine.session.spark_config import is_connect_session
from nova_assets.errors import QueryRefused
from nova_assets.masking import get_logger
from nova_assets.model.arrow_types import from_arrow_schema
from nova_assets.model.engine import Frames

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame, SparkSession

log = get_logger("nova_assets.engine")

_NEAR = re.compile(r"near '(?P<token>[^']+)'")
_PLACE = re.compile(r"[;.]?\s*(SQLSTATE: \w+)?[;.]?\s*(\(?line \d+, pos \d+\)?|line \d+ pos \d+)?;?\s*$")
_OPTIMIZED_PLAN = re.compile(r"== Optimized Logical Plan ==\n(.*?)(?=\n== |\Z)", re.DOTALL)

_COMPLETE_PLANS = {
    "spark.sql.debug.maxToStringFields": str(2**31 - 1),
    "spark.sql.maxPlanStringLength": str(2**31 - 16),
}
"""Settings with which Spark shortens no plan. By default, it leaves out columns beyond the 25th."""


class SparkQueries:
    """The protocol ``Queries`` over a Spark session."""

    def __init__(self, session: LazySparkSession, frames: Frames) -> None:
        self.session = session
        self.frames = frames

    def create_frame(self, sql: str, values: Mapping[str, Any], frames: Mapping[str, Any]) -> Any:
        spark_frames = {name: self.frames.to_frame(f) for name, f in frames.items()}
        return analyze_query(self.session.get(), sql, values, spark_frames)

    def compute(self, sql: str, values: Mapping[str, Any], frames: Mapping[str, Any], max_rows: int) -> Any | None:
        spark = self.session.get()
        with frames_with_files(spark, frames) as spark_frames:
            return self.session.to_table_of_few(analyze_query(spark, sql, values, spark_frames), max_rows)

    def optimized_plan(self, frame: Any) -> str | None:
        with temporary_settings(self.session.get(), _COMPLETE_PLANS):
            frame = self.frames.to_frame(frame)
            lines = self.session.get().sql("EXPLAIN EXTENDED SELECT * FROM {rows}", rows=frame).collect()
        found = _OPTIMIZED_PLAN.search("\n".join(line[0] for line in lines))
        return None if found is None else found[1]


def analyze_query(spark: Any, sql: str, values: Mapping[str, Any], frames: Mapping[str, Any]) -> Any:
    """Frame of a query, analyzed but not computed.

    Args:
        sql: query as ``SparkSession.sql`` accepts it, with ``{name}`` for each frame and ``:name`` for each value.

    Raises:
        QueryRefused: Spark's parser or analyzer rejects the query.
    """
    from pyspark.errors import AnalysisException

    try:
        # Spark unescapes doubled braces only if the query has a frame.
        frame = spark.sql(sql if frames else sql.format(), args=dict(values), **frames)
        _ = frame.schema  # Spark Connect analyzes the query only now
    except AnalysisException as error:
        raise _query_refused_error(error) from error
    return frame


def _query_refused_error(error: AnalysisException) -> QueryRefused:
    message = " ".join(line for line in str(error).strip().split("\n\n")[0].splitlines() if not line.startswith("'"))
    reason = _PLACE.sub("", message)
    near = _NEAR.search(message)
    return QueryRefused(reason, fragment=near["token"] if near else _failing_fragment(error), reason=reason)


def _failing_fragment(error: AnalysisException) -> str | None:
    """Part of the query to which the analyzer's error refers, if the error names one."""
    for context in error.getQueryContext() or ():
        fragment: str = context.fragment()
        if fragment:
            return fragment
    return None


# local tables

MIN_ROWS_OF_FILE = 5_000
"""Rows from which a file is faster: at 20,000 rows, a star join takes 0.8 of the CPU time, and 0.5 at 200,000 rows."""

_TYPES = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_binary,
)


@contextmanager
def frames_with_files(spark: SparkSession, frames: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Context with Spark frames of local tables. The frames of large tables can be computed in the context only.

    Spark reads a large table faster from a file than from this process: rows that this process hands over are not
    columnar, and are sent to the tasks one by one.

    Args:
        frames: local tables and Spark frames, by name.
    """
    from nova_assets.engine.rows.spark_versions import frame_from_arrow

    with ExitStack() as stack:
        folder: Path | None = None
        spark_frames: dict[str, Any] = {}
        for name, rows in frames.items():
            if not isinstance(rows, pa.Table):
                spark_frames[name] = rows
            elif rows.num_rows < MIN_ROWS_OF_FILE or not _can_be_file(spark, rows):
                spark_frames[name] = frame_from_arrow(spark, rows)
            else:
                if folder is None:
                    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-tables-")))
                spark_frames[name] = _frame_of_file(spark, rows, folder / f"{len(spark_frames)}.parquet")
        yield spark_frames


def _frame_of_file(spark: SparkSession, table: pa.Table, path: Path) -> DataFrame:
    from nova_assets.engine.rows.spark_types import to_struct
    from nova_assets.engine.rows.spark_versions import frame_from_arrow

    try:
        rows_per_group = max(MIN_ROWS_OF_FILE, -(-table.num_rows // (os.cpu_count() or 1)))  # a core reads a row group
        pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=rows_per_group)
    except OSError as error:  # such as a full disk
        log.debug("a table of %d rows is handed to Spark without a file: %s", table.num_rows, error)
        return frame_from_arrow(spark, table)
    reader = spark.read.format("parquet").schema(to_struct(from_arrow_schema(table.schema)))
    reader = reader.options(ignoreMissingFiles="false", ignoreCorruptFiles="false", datetimeRebaseMode="CORRECTED")
    return load_paths(reader, spark, [f"file://{path}"])  # a path alone belongs to Hadoop's default file system


def _can_be_file(spark: Any, table: pa.Table) -> bool:
    """Whether Spark can read files of this process, and gets the same columns from the file."""
    has_flat_columns = all(any(is_kind(t) for is_kind in _TYPES) for t in table.schema.types)
    if not has_flat_columns or is_connect_session(spark):
        return False
    is_encrypted = spark.conf.get("spark.io.encryption.enabled", "false").lower() == "true"
    return not is_encrypted and str(spark.sparkContext.master).startswith("local")
