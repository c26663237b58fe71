"""Digests of rows, independent of row order, of the division into files, and of the input type.

The hash of a row is the sum of the hashes of its values, each mixed with the identity of its column. Nulls add nothing.
The digest is the sum of the row hashes. It can therefore be computed piece by piece in any order, and a column that is
added later does not change it. Numbers are hashed by value: neither a wider type nor another scale changes a digest.
0.0 and -0.0 are equal, and NaN equals NaN.
"""

# The hashes detect mistakes. A caller who looks for a collision may write any rows to the channel anyway.

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.hashing import Hashes, hash_bytes
from nova_assets.engine.buckets.spark_jobs import ARROW_BATCH_SETTINGS
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.engine.session.spark_config import READ_SETTINGS
from nova_assets.engine.storage import file_io
from nova_assets.formats.column_conversion import to_unencoded_column
from nova_assets.model.schema import DELETED, Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UINT64_MASK = (1 << 64) - 1
_DAY_MICROS = 86_400_000_000
_BATCH_ROWS = 1 << 16
_FEW_ROWS = 1 << 12
_LOCAL_READ_BYTES = 64 * 2**20
_EXACT = Context(prec=80)
_ABSENT = np.uint64(0)


@dataclass(frozen=True, slots=True)
class Digest:
    """Digest of some rows. The sum of the digests of all parts is the digest of the whole."""

    rows: int = 0
    first_hash: int = 0
    second_hash: int = 0

    def __add__(self, other: Digest) -> Digest:
        first, second = (
            (self.first_hash + other.first_hash) & _UINT64_MASK,
            (self.second_hash + other.second_hash) & _UINT64_MASK,
        )
        return Digest(self.rows + other.rows, first, second)

    def __str__(self) -> str:
        return f"{self.rows}:{self.first_hash:016x}{self.second_hash:016x}"

    @staticmethod
    def parse(text: str) -> Digest:
        rows, hashes = text.split(":")
        return Digest(int(rows), int(hashes[:16], 16), int(hashes[16:], 16))


def digest_of(table: pa.Table, schema: Schema | None) -> Digest:
    """Digest of the rows of a table.

    Args:
        schema: schema whose column identities survive renames; None to identify columns by name.
    """
    seeds = seed_by_column(table.column_names, schema)
    total = Digest()
    for batch in table.to_batches(_BATCH_ROWS):
        total += _digest_batch(batch, seeds)
    return total


def digest_of_frame(session: LazySparkSession, frame: DataFrame, schema: Schema | None) -> Digest:
    """Digest of the rows of a Spark frame. Spark's Python workers compute it if they can run this package."""
    if not session.can_use_workers:
        return digest_of(session.to_table(frame), schema)
    with temporary_settings(session.get(), ARROW_BATCH_SETTINGS):
        parts = frame.mapInArrow(digest_job(seed_by_column(frame.columns, schema)), "digest string").collect()
    return sum((Digest.parse(row[0]) for row in parts), Digest())


def digest_of_files(session: LazySparkSession, paths: Sequence[str], schema: Schema) -> Digest:
    """Digest of the rows of files that Spark has written. Small files are read in this process.

    Args:
        schema: schema of the files.
    """
    # The files and not their frame: a second evaluation could give other rows.
    if sum(file_io.size_of(p) for p in paths) > _LOCAL_READ_BYTES and session.can_use_workers:
        from nova_assets.engine.rows.spark_types import to_struct
        from nova_assets.engine.session.literal_paths import load_paths

        spark = session.get()
        reader = spark.read.format("parquet").schema(to_struct(schema.with_all_nullable()))
        with temporary_settings(spark, READ_SETTINGS):
            return digest_of_frame(session, load_paths(reader, spark, list(paths)), schema)
    batches = (b for path in paths for b in file_io.open_parquet_file(path).iter_batches(_FEW_ROWS))
    return sum((digest_of(pa.Table.from_batches([b]), schema) for b in batches), Digest())


def seed_by_column(column_names: Iterable[str], schema: Schema | None) -> dict[str, int]:
    """Hash seed of each column. The seed distinguishes equal values of different columns."""
    identities = {} if schema is None else {f.name: f.identity for f in schema.fields}
    return {n: _text_seed(identities.get(n, n)) for n in column_names}


def digest_job(column_seeds: Mapping[str, int]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Task for Spark: consumes rows, and yields their digest."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = Digest()
        for batch in batches:
            total += _digest_batch(batch, column_seeds)
        yield pa.RecordBatch.from_pydict({"digest": [str(total)]})

    return run


def _digest_batch(batch: pa.RecordBatch, column_seeds: Mapping[str, int]) -> Digest:
    rows = np.zeros(batch.num_rows, np.uint64)
    with np.errstate(over="ignore"):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values = pa.concat_arrays(to_unencoded_column(pa.chunked_array([column]), name).chunks)
            if name == DELETED:  # a false mark must not differ from an absent mark
                values = pc.if_else(values, values, None)
            rows += _hash_values_with_seed(values, np.uint64(column_seeds[name]))
        hashes = _splitmix64(rows + _GOLDEN)
        first, second = hashes.sum(dtype=np.uint64), _splitmix64(hashes ^ _GOLDEN).sum(dtype=np.uint64)
    return Digest(batch.num_rows, int(first), int(second))


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _text_seed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _splitmix64(values: Hashes) -> Hashes:
    """Finalizer of SplitMix64: each output bit depends on all input bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hash_values_with_seed(values: pa.Array, seed: np.uint64) -> Hashes:
    """Hashes of the values of one column, struct field, or list position; 0 for null."""
    hashes = _splitmix64(_splitmix64(_hash_values(values)) + seed)
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), hashes, _ABSENT)


def _hash_values(values: pa.Array) -> Hashes:
    """Hash of each value. Equal values have equal hashes; the hash of a null is arbitrary."""
    type_, is_ = values.type, pa.types
    if is_.is_null(type_):
        return np.zeros(len(values), np.uint64)
    if is_.is_struct(type_):
        return _hash_structs(values)
    if is_.is_map(type_):
        return _hash_other_values(values)
    if is_.is_nested(type_):
        return _hash_lists(values)
    if is_.is_decimal(type_):
        return _hash_decimals(values)
    if is_.is_floating(type_):
        return _hash_floats_like_equal_integers(
            pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        )
    if is_.is_date(type_):
        days = pc.fill_null(values.cast(pa.date32()).cast(pa.int32()), 0).to_numpy(zero_copy_only=False)
        return _hash_integers(pa.array(days.astype(np.int64) * _DAY_MICROS))
    if is_.is_timestamp(type_):
        micros = values.cast(pa.timestamp("us", type_.tz)).cast(pa.int64())
        return _hash_integers(pc.fill_null(micros, 0))
    if is_.is_boolean(type_):
        return _hash_integers(pc.fill_null(values, False).cast(pa.int8()))
    if is_.is_integer(type_):
        return _hash_integers(pc.fill_null(values, 0))
    if is_.is_string(type_) or is_.is_large_string(type_) or is_.is_binary(type_) or is_.is_large_binary(type_):
        empty = "" if is_.is_string(type_) or is_.is_large_string(type_) else b""
        return hash_bytes(pc.fill_null(values, empty), np.zeros(len(values), np.uint64))
    return _hash_other_values(values)


def _hash_integers(values: pa.Array) -> Hashes:
    numbers: Hashes = values.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return numbers


def _hash_floats_like_equal_integers(values: Any) -> Hashes:
    """Hashes of floats. A whole number has the same hash as the equal integer."""
    values = np.where(np.isnan(values), np.nan, values + 0.0)
    with np.errstate(invalid="ignore"):
        whole = (np.rint(values) == values) & (np.abs(values) < 2.0**63)
        integers = np.where(whole, values, 0.0).astype(np.int64).view(np.uint64)
    return np.where(whole, integers, _splitmix64(values.view(np.uint64) + _GOLDEN))


def _hash_decimals(values: pa.Array) -> Hashes:
    """Hashes of decimals by their numeric value, independent of the scale."""
    scaled = pc.fill_null(values.cast(pa.decimal256(76, 38)), 0)
    data = scaled.buffers()[1]
    lanes = np.frombuffer(data, np.uint64)[4 * scaled.offset : 4 * (scaled.offset + len(scaled))].reshape(-1, 4)
    hashes = np.zeros(len(scaled), np.uint64)
    for n in range(4):
        hashes = _splitmix64(hashes + lanes[:, n] + np.uint64(n + 1))
    return hashes


def _hash_structs(values: pa.Array) -> Hashes:
    hashes = np.full(len(values), 1, np.uint64)
    for field, part in zip(values.type, values.flatten(), strict=True):
        hashes += _hash_values_with_seed(part, np.uint64(_text_seed(field.name)))
    return hashes


def _hash_lists(values: pa.Array) -> Hashes:
    """Hashes of lists. Each element, including a null, is hashed together with its position."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    elements = values.flatten()
    places = (np.arange(len(elements)) - np.repeat(ends - lengths, lengths)).astype(np.uint64)
    sums = np.concatenate(
        [
            [np.uint64(0)],
            np.cumsum(_splitmix64(_hash_values_with_seed(elements, _GOLDEN) + _splitmix64(places + _GOLDEN))),
        ]
    )
    hashes: Hashes = _splitmix64(lengths.astype(np.uint64)) + sums[ends] - sums[ends - lengths]
    return hashes


def _hash_other_values(values: pa.Array) -> Hashes:
    """Hashes of all other types, computed value by value: maps, whose entries have no order, and any further type."""
    return np.array([_text_seed(_canonical_text(v)) for v in values.to_pylist()], np.uint64)


def _canonical_text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(v, tuple) for v in value):
        return "{" + ",".join(sorted(f"{_canonical_text(k)}:{_canonical_text(v)}" for k, v in value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical_text, value)) + "]"
    if isinstance(value, dict):
        return json.dumps({k: _canonical_text(v) for k, v in sorted(value.items()) if v is not None})
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    is_whole = isinstance(value, float) and np.isfinite(value) and value == int(value)
    if isinstance(value, Decimal):
        return format(value.normalize(_EXACT), "f")
    return repr(int(value)) if is_whole else repr(value)
