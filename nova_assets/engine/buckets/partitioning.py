"""Which partition rows are in (R13), by the values of their partition columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.bucket_files import Written
from nova_assets.engine.buckets.key_order import one_chunk
from nova_assets.errors import PartitionError
from nova_assets.formats.derived_partitions import with_derived
from nova_assets.model.partitions import Dimension, within
from nova_assets.model.schema import DataType, Schema, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

_PLACE = "__nova_place"
_HOUR = 3_600_000_000  # microseconds
_DAY = 24 * _HOUR


def value_of(dimension: Dimension, text: str | None, type_: DataType) -> Any:
    """What a partition's name says of one dimension, as a value of its column."""
    if text is None or type_.name == "string":
        return text
    if type_.name == "boolean":
        return text == "true"
    if type_.name == "date":
        return date.fromisoformat(text)
    if type_.name in ("timestamp", "timestamp_ntz"):
        moment = datetime.fromisoformat(text)
        if type_.name == "timestamp_ntz":
            return moment.replace(tzinfo=None)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(dimension.tz or "UTC"))
    return int(text)


def derived(frame: Any, dimensions: Sequence[Dimension], schema: Schema | None) -> Any:
    """A frame, or a table, with those partition columns that follow from others, where it lacks them.

    Raises:
        PartitionError: it lacks the column from which one follows, too, or that holds no moments.
    """
    if isinstance(frame, pa.Table):
        return with_derived(frame, dimensions, schema)
    for d in dimensions:
        if d.of is not None and d.column not in frame.columns:
            frame = _with_derived(frame, d, schema)
    return frame


def _with_derived(frame: Any, d: Dimension, schema: Schema | None) -> Any:
    """Independent of the session's own zone, which a given session may have set to any."""
    from pyspark.sql import functions as F

    from nova_assets.engine.rows.spark_types import to_spark

    kinds = dict(frame.dtypes)
    if kinds.get(d.of) not in ("timestamp", "timestamp_ntz", "date"):
        raise d.cannot_derive([f"{n} {t}" for n, t in kinds.items()])
    moment = F.col(quoted(str(d.of)))
    if kinds[str(d.of)] != "timestamp":
        value = F.to_date(moment)
    else:
        if d.kind == "hourly":
            value = _full_hour(_full_hour(moment, d), d)  # twice, for clocks that change by half an hour (model/clock)
        else:
            value = F.date_from_unix_date(F.floor(_local_micros(moment, d) / _DAY).cast("int"))
    return frame.withColumn(d.column, value.cast(to_spark(d.derived_type(schema))))


def _full_hour(moment: Column, d: Dimension) -> Column:
    from pyspark.sql import functions as F

    return F.timestamp_micros(F.unix_micros(moment) - F.pmod(_local_micros(moment, d), F.lit(_HOUR)))


def _local_micros(moment: Column, d: Dimension) -> Column:
    from pyspark.sql import functions as F

    return F.unix_micros(F.from_utc_timestamp(moment, d.tz or "UTC"))


def split(table: pa.Table, columns: Sequence[str]) -> list[pa.Table]:
    """The rows of each partition, in their order."""
    places = table.select(list(columns)).append_column(_PLACE, pa.array(np.arange(table.num_rows)))
    groups = places.group_by(list(columns), use_threads=False).aggregate([(_PLACE, "list")]).column(f"{_PLACE}_list")
    if len(groups) == 1:
        return [table]
    # Brought side by side at once, and then cut: to take rows out for each partition costs as much for each.
    beside = one_chunk(table).take(pc.list_flatten(groups))
    lengths = pc.list_value_length(groups).to_pylist()
    return [beside.slice(end - n, n) for n, end in zip(lengths, accumulate(lengths), strict=True)]


def partition_of_file(written: Written, scope: str, where: str) -> str:
    """The one partition that all rows of a file are in.

    Raises:
        PartitionError: a row is in no partition, or in one outside the scope.
    """
    if written.refusal is not None:
        raise PartitionError(**written.refusal)
    outside = [p for p in written.partitions if not within(p, scope)]
    if outside:
        raise PartitionError(
            f"{where} was given rows of another partition than {scope}",
            found=", ".join(outside[:3]) + ("" if len(outside) <= 3 else f" and {len(outside) - 3} more"),
            expected=f"rows of {scope} alone",
            next="leave the others out, or write without naming a partition",
        )
    [partition] = written.partitions
    return partition
