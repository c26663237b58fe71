"""Key layouts of two columns, and which models can be merged outside Spark."""

from __future__ import annotations

from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.declared_schema import schema_from_declaration
from nova_assets.model.key_layout import KeyLayout, KeyRange
from nova_assets.model.merge import Keyed, MergeModel, Upsert
from nova_assets.model.reads import Snapshot
from nova_assets.plan.block_layout import can_merge_outside_spark, changed_key_range


@nova.associative
def combine_by_own_rule(left: Any, right: Any) -> Any:
    return left


SCHEMA = schema_from_declaration("day string, id bigint, price double, tags map<string, int>")


def test_the_range_of_changed_keys_is_that_of_the_first_layout_column() -> None:
    layout = KeyLayout(("day", "id"), ("string", "bigint"), clustered=True)
    ranges = [KeyRange(("a", 7), ("c", 2)), KeyRange(("b", 1), ("d", 9))]
    files = tuple(DataFile(f"f{n}", 1, 100, key_placement=of) for n, of in enumerate(ranges))
    delta = Block("d", "c", "", "delta", 1, 2, Manifest(files, SCHEMA, layout=layout), Upsert(key=("day", "id")))
    assert changed_key_range(Snapshot("c", 2, (), (delta,), SCHEMA, delta.merge)) == ("day", "a", "d")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Upsert(key="id"), True),
        (Upsert(key="id", order_by="price"), True),
        (Upsert(key="id", order_by="tags"), False),
        (Keyed(key="id", combine={"price": "max"}), True),
        (Keyed(key="id", combine={"tags": "max"}), False),
        (Keyed(key="id", combine={"price": combine_by_own_rule}), False),
        (Keyed(key="id", combine={"price": "sum"}, order_by="tags"), False),
    ],
)
def test_arrow_merges_what_it_can_order_and_combine_as_spark_does(model: MergeModel, expected: bool) -> None:
    assert can_merge_outside_spark(model, SCHEMA) == expected
