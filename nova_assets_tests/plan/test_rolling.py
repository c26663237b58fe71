"""Small files of a channel that is only added to are rolled into larger ones, each row a few times."""

from __future__ import annotations

import random

import pytest

from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.compaction import Compaction
from nova_assets.model.merge import Append, Upsert
from nova_assets.model.schema import parse_ddl
from nova_assets.model.timeline import History
from nova_assets.plan.compaction import file_count_for, reusable_files

SCHEMA = parse_ddl("k bigint")
TARGET = 128
POLICY = Compaction(target=TARGET)


def kept(sizes: list[int], *, final: bool = False, partition: str = "", merge: object = None) -> list[int]:
    """The sizes of those files that would be left as they are."""
    files = tuple(DataFile(f"blocks/x/{n}", 1, size) for n, size in enumerate(sizes))
    model = merge or Append()
    block = Block("b", "c", partition, "delta", 0, 1, Manifest(files, SCHEMA), model)  # type: ignore[arg-type]
    history = History("c", "", 1, (block,), SCHEMA, model)  # type: ignore[arg-type]
    found = reusable_files(history, {"b": block}, POLICY, "parquet", is_final=final)
    return sorted((f.bytes for f in files if f.path in found), reverse=True)


def test_large_files_are_kept_and_small_ones_put_together() -> None:
    assert kept([200, 128, 1, 1]) == [200, 128]
    assert kept([65, 32, 16, 8, 4]) == [65, 32, 16, 8, 4], "each holds more than all smaller ones together"
    assert kept([65, 32, 16, 8, 8]) == [65], "and now only the first does"
    assert kept([100, 10, 10, 10]) == [100]
    assert kept([5]) == [5], "one alone has nothing to be put together with"
    assert kept([200, 5], final=True) == [200, 5]
    assert kept([200, 100, 60, 5], final=True) == [200]
    assert kept([1, 1], merge=Upsert(key="k")) == []


@pytest.mark.parametrize("seed", range(5))
def test_however_many_come_each_is_written_a_few_times(seed: int) -> None:
    """A day of arrivals: so many batches of a size between 0.1 and 2, rolled whenever sixteen have come."""
    rng = random.Random(seed)
    files: list[int] = []
    came = written = most = 0
    for n in range(2880):
        files.append(rng.randint(1, 3))
        came += files[-1]
        if n % 16 == 15:
            left = kept(files)
            rolled = sum(files) - sum(left)
            files = [*left, *_written(rolled)]
            written += rolled
        most = max(most, len(files))
    assert sum(files) == came
    assert written < 6 * came
    assert most <= 16 + came / TARGET + 8, "and there are never many more files than need be"


def _written(rolled: int) -> list[int]:
    if not rolled:
        return []
    n = file_count_for(rolled, TARGET)
    return [rolled // n] * (n - 1) + [rolled - rolled // n * (n - 1)]
