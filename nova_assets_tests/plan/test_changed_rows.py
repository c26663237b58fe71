"""When the rows of a change are the changed rows as they are now."""

from __future__ import annotations

from dataclasses import replace

import pytest

import nova_assets as nova
from nova_assets.model.merge import MergeModel
from nova_assets.model.reads import Snapshot
from nova_assets.model.schema import parse_ddl
from nova_assets.plan import modes
from nova_assets.plan.manifest_rows import has_rows_after
from nova_assets_tests.plan.histories import SCHEMA, history

UPSERT = nova.Upsert("k")


def is_known(merge: MergeModel, blocks: str = "b1 d2 d3", declared: MergeModel | None = None) -> bool:
    channel, past = nova.Channel("c", merge=declared or merge, schema=SCHEMA), history(blocks, merge=merge)
    return has_rows_after(modes.changes(past, 1), channel, modes.snapshot(past))


@pytest.mark.parametrize("blocks", ["b1 d2 d3", "d1 d2", "b1 d2 c2 d3", "b1 b2 d3"])
def test_a_row_that_replaces_its_earlier_row_is_the_row_afterwards(blocks: str) -> None:
    assert is_known(UPSERT, blocks)


@pytest.mark.parametrize(
    "merge",
    [nova.Append(), nova.Multiset(), nova.Upsert("k", order_by="v"), nova.Keyed("k", combine={"v": "sum"})],
)
def test_other_models_may_need_the_earlier_row(merge: MergeModel) -> None:
    assert not is_known(merge)


def test_blocks_of_another_model_are_merged() -> None:
    assert not is_known(nova.Upsert("k", order_by="v"), declared=UPSERT)


def test_other_columns_or_partitions_need_a_lookup() -> None:
    past, channel = history("b1 d2 d3", merge=UPSERT), nova.Channel("c", merge=UPSERT, schema=SCHEMA)
    change, now = modes.changes(past, 1), modes.snapshot(past)
    assert isinstance(now, Snapshot) and has_rows_after(change, channel, now)
    assert not has_rows_after(change, channel, replace(now, schema=parse_ddl("k bigint, v bigint, w bigint")))
    moved = replace(now, bases=tuple(replace(b, partition="2026-01-01") for b in now.bases))  # type: ignore[type-var]
    assert not has_rows_after(change, channel, moved)
