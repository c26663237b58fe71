"""Hashes of keys that select buckets: XXH64 of the key columns, equal to Spark's ``xxhash64``. Uses Arrow and NumPy
alone.

The algorithm is Yann Collet's XXH64. As in Spark, several columns are hashed one after the other, each with the
previous hash as its seed, and the first with 42. Every engine with Spark's function therefore finds the bucket of a
key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.buckets.key_order import to_single_array

Hashes: TypeAlias = npt.NDArray[np.uint64]

SEED = 42

_BATCH_BYTES = 1 << 22
"""Bytes of strings to gather at a time. Each of these bytes temporarily needs an index of eight bytes."""


_P1, _P2, _P3, _P4, _P5 = map(
    np.uint64,
    (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261),
)


def hash_keys(table: pa.Table, key_columns: Sequence[str]) -> Hashes:
    """Hash of each row's key.

    Args:
        table: rows without nulls in the key columns, whose types are among ``model.key_layout.HASHED_TYPES``.
    """
    found = np.full(table.num_rows, SEED, np.uint64)
    with np.errstate(over="ignore"):
        for name in key_columns:
            found = _hash_column(to_single_array(table.column(name)), found)
    return found


def _hash_column(values: pa.Array, seeds: Hashes) -> Hashes:
    type_ = values.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_) or pa.types.is_large_string(type_):
        return hash_bytes(values, seeds)
    if pa.types.is_boolean(type_):
        return _hash_ints(values.cast(pa.int8()).to_numpy(zero_copy_only=False), seeds)
    if pa.types.is_date32(type_):
        return _hash_ints(values.cast(pa.int32()).to_numpy(), seeds)
    if pa.types.is_integer(type_) and type_.bit_width < 64:
        return _hash_ints(values.to_numpy(), seeds)
    return _hash_longs(values.cast(pa.int64()).to_numpy(), seeds)


def _hash_ints(values: npt.NDArray[np.signedinteger], seeds: Hashes) -> Hashes:
    word = values.astype(np.int32).view(np.uint32).astype(np.uint64)
    return _finalize_hash(_mix_in_uint32(seeds + _P5 + np.uint64(4), word))


def _hash_longs(values: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    return _finalize_hash(_mix_in_uint64(seeds + _P5 + np.uint64(8), values.view(np.uint64)))


def hash_bytes(values: pa.Array, seeds: Hashes) -> Hashes:
    """Hashes of strings or bytes, computed for all values of one length at a time, so that each step is vectorized."""
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    width = np.int64 if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type) else np.int32
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, width)[values.offset : values.offset + len(values)].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    found = np.empty(len(values), np.uint64)
    by_length = np.argsort(lengths, kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[by_length])) + 1
    for same in np.split(by_length, bounds) if len(values) else ():
        length = int(lengths[same[0]])
        at_once = max(1, _BATCH_BYTES // max(1, length))
        for some in np.split(same, range(at_once, len(same), at_once)):
            gathered = content[starts[some][:, None] + np.arange(length)] if length else None
            found[some] = _hash_equal_length_bytes(gathered, length, seeds[some])
    return found


def _hash_equal_length_bytes(rows_of_bytes: npt.NDArray[np.uint8] | None, length: int, seeds: Hashes) -> Hashes:
    done = 0
    if length >= 32:
        assert rows_of_bytes is not None
        lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
        while done + 32 <= length:
            lanes = [
                _rotate_left(v + _read_uint64(rows_of_bytes, done + 8 * n) * _P2, 31) * _P1 for n, v in enumerate(lanes)
            ]
            done += 32
        found = sum(
            (_rotate_left(v, r) for v, r in zip(lanes[1:], (7, 12, 18), strict=True)), _rotate_left(lanes[0], 1)
        )
        for lane in lanes:
            found = (found ^ (_rotate_left(lane * _P2, 31) * _P1)) * _P1 + _P4
    else:
        found = seeds + _P5
    found = found + np.uint64(length)
    while done + 8 <= length:
        assert rows_of_bytes is not None
        found = _mix_in_uint64(found, _read_uint64(rows_of_bytes, done))
        done += 8
    if done + 4 <= length:
        assert rows_of_bytes is not None
        word = np.ascontiguousarray(rows_of_bytes[:, done : done + 4]).view("<u4")[:, 0].astype(np.uint64)
        found = _mix_in_uint32(found, word)
        done += 4
    while done < length:
        assert rows_of_bytes is not None
        found = _rotate_left(found ^ (rows_of_bytes[:, done].astype(np.uint64) * _P5), 11) * _P1
        done += 1
    return _finalize_hash(found)


def _read_uint64(rows_of_bytes: npt.NDArray[np.uint8], offset: int) -> Hashes:
    return np.ascontiguousarray(rows_of_bytes[:, offset : offset + 8]).view("<u8")[:, 0]


def _mix_in_uint32(state: Hashes, word: Hashes) -> Hashes:
    return _rotate_left(state ^ (word * _P1), 23) * _P2 + _P3


def _mix_in_uint64(state: Hashes, word: Hashes) -> Hashes:
    return _rotate_left(state ^ (_rotate_left(word * _P2, 31) * _P1), 27) * _P1 + _P4


def _finalize_hash(state: Hashes) -> Hashes:
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


def _rotate_left(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
