"""Commits as Dagster shows them: one materialization per block, with everything that can be plotted or looked up."""

from __future__ import annotations

import json
import warnings
from typing import Any

from dagster import (
    AssetKey,
    AssetMaterialization,
    BetaWarning,
    DataVersion,
    MetadataValue,
    Output,
    TableColumn,
    TableSchema,
)

from nova_assets.model.block import Block
from nova_assets.model.commit import Commit
from nova_assets.model.schema import Schema

DATA_VERSION = "dagster/data_version"


def table_schema(schema: Schema) -> TableSchema:
    """A channel's columns as Dagster shows them."""
    return TableSchema(columns=[TableColumn(f.name, str(f.type)) for f in schema.fields])


def metadata_of(commit: Commit, block: Block, warehouse: str, seconds: float | None = None) -> dict[str, Any]:
    """The facts of one block. Numbers plot themselves (R17: each carries its commit's id).

    Args:
        seconds: from begin to commit of the execution, where it is known.
    """
    folder = block.manifest.files[0].path.rpartition("/")[0] if block.manifest.files else ""
    consumed = {c: {"cursor": cursor, "head": head} for c, (cursor, head) in commit.consumed.items()}
    return {
        "nova/seq": block.hi,
        "nova/kind": block.kind,
        "nova/range": block.range,
        "nova/commit": commit.id,
        "nova/consumed": MetadataValue.json(consumed),
        "nova/deletes": block.manifest.deletes,
        "nova/files": len(block.manifest.files),
        "nova/bytes": block.bytes,
        **({} if seconds is None else {"nova/seconds": round(seconds, 3)}),
        "dagster/row_count": block.rows,
        "dagster/column_schema": table_schema(block.manifest.schema),
        **({"dagster/uri": f"{warehouse}/{folder}"} if folder else {}),
    }


def tags_of(commit: Commit, block: Block) -> dict[str, str]:
    """By these, events can be told apart and found again."""
    return {"nova/commit": commit.id, "nova/kind": block.kind}


def output_of(commit: Commit, block: Block, warehouse: str, seconds: float | None = None) -> Output[None]:
    """A block as the output of the commit step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # data_version
        return Output(
            None,
            block.channel,
            metadata=metadata_of(commit, block, warehouse, seconds),
            data_version=DataVersion(str(block.hi)),
            tags=tags_of(commit, block),
        )


def event_of(commit: Commit, block: Block, warehouse: str, seconds: float | None = None) -> AssetMaterialization:
    """A block as an event of its own, for commits that no step has reported."""
    tags = {**tags_of(commit, block), DATA_VERSION: str(block.hi)}
    metadata = metadata_of(commit, block, warehouse, seconds)
    return AssetMaterialization(AssetKey(block.channel), metadata=metadata, tags=tags)


def describe(commit: Commit) -> str:
    """One line for the log."""
    numbers = ", ".join(f"{b.channel} {b.range} ({b.rows} rows)" for b in commit.blocks) or "nothing new"
    return f"commit {commit.id[:8]}: {numbers}; consumed {json.dumps({c: h for c, (_, h) in commit.consumed.items()})}"
