"""Changes of few rows, and of few bytes, are computed in the process of a task."""

from __future__ import annotations

import pytest

from nova_assets.execution.input_view import MAX_LOCAL_BYTES, MAX_LOCAL_ROWS, is_small_change
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.merge import Append
from nova_assets.model.reads import DeltaChain
from nova_assets.model.schema import Schema

ROWS, BYTES = MAX_LOCAL_ROWS // 2, MAX_LOCAL_BYTES // 2
"""Of each of two deltas."""


@pytest.mark.parametrize(
    ("rows", "file_bytes", "uncompressed_bytes", "is_small"),
    [
        (ROWS, 1000, BYTES, True),
        (ROWS + 1, 1000, BYTES // 2, False),
        (1000, 1000, BYTES, True),
        (1000, 1000, 2 * BYTES, False),
        (1000, BYTES // 4, 0, False),  # of an unknown size
        (1000, BYTES // 64, 0, True),
    ],
)
def test_rows_and_bytes_decide(rows: int, file_bytes: int, uncompressed_bytes: int, is_small: bool) -> None:
    file = DataFile("f", rows, file_bytes, uncompressed_bytes=uncompressed_bytes)
    deltas = [Block(f"b{n}", "c", "", "delta", n, n + 1, Manifest((file,), Schema(())), Append()) for n in range(2)]
    assert is_small_change(DeltaChain("c", 0, 2, tuple(deltas), Schema(()), Append())) == is_small
