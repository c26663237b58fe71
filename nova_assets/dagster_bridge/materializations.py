"""Commits as Dagster shows them: one materialization per block, with everything that can be plotted or looked up."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

from dagster import (
    AssetKey,
    AssetMaterialization,
    DataVersion,
    MetadataValue,
    Output,
    TableColumn,
    TableSchema,
)
from dagster._utils.warnings import BetaWarning

from nova_assets.model.block import Block
from nova_assets.model.commit import Commit
from nova_assets.model.schema import Schema

DATA_VERSION = "dagster/data_version"


def table_schema(schema: Schema) -> TableSchema:
    """A channel's columns as Dagster shows them."""
    return TableSchema(columns=[TableColumn(f.name, str(f.type)) for f in schema.fields])


def metadata_of(commit: Commit, block: Block, warehouse: str) -> dict[str, Any]:
    """The facts of one block. Numbers plot themselves (R17: each carries its commit's id)."""
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
        "dagster/row_count": block.rows,
        "dagster/column_schema": table_schema(block.manifest.schema),
        **({"dagster/uri": f"{warehouse}/{folder}"} if folder else {}),
    }


def output_of(commit: Commit, block: Block, warehouse: str) -> Output[None]:
    """A block as the output of the commit step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # data_version
        return _output(commit, block, warehouse)


def _output(commit: Commit, block: Block, warehouse: str) -> Output[None]:
    return Output(
        None, block.channel, metadata=metadata_of(commit, block, warehouse), data_version=DataVersion(str(block.hi))
    )


def event_of(commit: Commit, block: Block, warehouse: str) -> AssetMaterialization:
    """A block as an event of its own, for commits that no step has reported."""
    tags: Mapping[str, str] = {DATA_VERSION: str(block.hi)}
    return AssetMaterialization(AssetKey(block.channel), metadata=metadata_of(commit, block, warehouse), tags=tags)


def describe(commit: Commit) -> str:
    """One line for the log."""
    numbers = ", ".join(f"{b.channel} {b.range} ({b.rows} rows)" for b in commit.blocks) or "nothing new"
    return f"commit {commit.id[:8]}: {numbers}; consumed {json.dumps({c: h for c, (_, h) in commit.consumed.items()})}"
