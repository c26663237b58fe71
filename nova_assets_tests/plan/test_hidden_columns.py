"""Hidden columns of blocks: who sees them, and which compactions keep them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nova_assets.errors import SchemaMismatch
from nova_assets.execution.staging import resolve_block_schema
from nova_assets.model.block import Block
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Multiset
from nova_assets.model.schema import Field, Schema, parse_ddl, parse_type
from nova_assets.plan.compaction import PlannedCompaction, group_by_written_schema
from nova_assets.plan.modes import schema_at_version, snapshot
from nova_assets_tests.plan.histories import SCHEMA, history

HIDDEN = (Field("_nova_hidden_a_0", parse_type("bigint")), Field("_nova_hidden_a_1", parse_type("decimal(20,2)")))


def with_hidden(block: Block, hidden: tuple[Field, ...]) -> Block:
    return replace(block, manifest=replace(block.manifest, schema=replace(SCHEMA, hidden=hidden)))


def test_a_schema_shows_its_hidden_columns_to_those_who_ask_for_them() -> None:
    schema = Schema(SCHEMA.fields, HIDDEN)
    assert Schema.from_json(schema.as_json()) == schema != schema.visible == SCHEMA
    assert schema.names == ("k", "v")
    assert schema.of_files.names == ("k", "v", "_nova_hidden_a_0", "_nova_hidden_a_1")
    for other in (schema.without_columns("v"), schema.with_all_nullable(), schema.with_deleted()):
        assert not other.hidden and not {h.name for h in HIDDEN} & set(other.names)


@pytest.mark.parametrize(
    ("blocks", "hidden_by_block", "kept"),
    [
        ("b1 d2 d3", (HIDDEN, HIDDEN, HIDDEN), HIDDEN),
        ("b1 d2 d3", (HIDDEN, (), HIDDEN), ()),  # another writer
        ("b1 d2 d3", ((), HIDDEN, HIDDEN), ()),
        ("b1 d2 d3", (HIDDEN, HIDDEN[:1], HIDDEN), ()),
        ("b1 b2 d3", ((), HIDDEN, HIDDEN), HIDDEN),  # nobody reads the first base
        ("d1 d2 d3", (HIDDEN, HIDDEN, HIDDEN), HIDDEN),
    ],
)
def test_a_compaction_keeps_hidden_columns_that_all_its_blocks_have(
    blocks: str, hidden_by_block: tuple[tuple[Field, ...], ...], kept: tuple[Field, ...]
) -> None:
    plain = history(blocks, merge=Multiset())
    changed = replace(
        plain, blocks=tuple(with_hidden(b, h) for b, h in zip(plain.blocks, hidden_by_block, strict=True))
    )
    [schema] = group_by_written_schema([PlannedCompaction("", 3, "requested")], changed)
    assert (schema.fields, schema.hidden) == (SCHEMA.fields, kept)
    assert schema_at_version(changed, 2) == SCHEMA == snapshot(changed).schema


def test_only_a_maintained_result_may_have_hidden_columns() -> None:
    channel, empty = Channel("c", merge=Multiset()), replace(history(""), schema=None, merge=Multiset())
    frame = parse_ddl("k bigint, _nova_hidden_a_0 bigint NOT NULL")
    written = resolve_block_schema(channel, empty, "delta", frame, may_hide=True)
    assert (written.names, written.hidden) == (("k",), HIDDEN[:1])
    with pytest.raises(SchemaMismatch, match="column '_nova_hidden_a_0' has a reserved name"):
        resolve_block_schema(channel, empty, "delta", frame)
