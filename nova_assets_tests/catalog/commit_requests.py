"""Executions and commits of a channel with one column, without files."""

from __future__ import annotations

import uuid

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.model.block import DataFile, Manifest
from nova_assets.model.commit import AddBlock, CommitRequest
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets.model.key_layout import HashBuckets, KeyLayout
from nova_assets.model.merge import Append
from nova_assets.model.schema import parse_ddl

SCHEMA = parse_ddl("k bigint")
LAYOUT = KeyLayout(("k",))
PLACEMENT = HashBuckets(4, 2, (1, 3))


channel = nova.Channel("c", schema="k bigint")


def begin_execution(catalog: Catalog, name: str = "c") -> Execution:
    return catalog.executions.begin(BeginRequest(uuid.uuid4().hex, None, pinned_channels=(name,), owner="test"))


def build_commit_request(execution: Execution, rows: int = 1, key: str | None = None) -> CommitRequest:
    block = uuid.uuid4().hex
    manifest = Manifest(
        (DataFile(f"blocks/{block}/0", rows, 10, {"k": (1, 5)}, PLACEMENT),) if rows else (), SCHEMA, layout=LAYOUT
    )
    publish = (AddBlock(block, "c", "delta", manifest, Append(), origin="insert"),)
    return CommitRequest(
        uuid.uuid4().hex, execution.id, execution.epoch, None, publish, idempotency=None if key is None else ("c", key)
    )
