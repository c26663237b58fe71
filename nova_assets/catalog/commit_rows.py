"""Rows of commits, and of the blocks that a commit adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, select

from nova_assets.catalog.block_rows import read_blocks
from nova_assets.catalog.database.transactions import query_as_dict
from nova_assets.catalog.execution_rows import storable_text
from nova_assets.catalog.tables import (
    blocks,
    commit_numbers,
    commits,
    idempotency_keys,
)
from nova_assets.errors import ValueRefused
from nova_assets.model.commit import AddBlock, Commit, IdempotentCommit

_BLOCKS_PER_QUERY = 300
"""Maximum number of blocks in one query."""


def find_already_added_blocks(c: Connection, added: Sequence[AddBlock]) -> Iterator[AddBlock]:
    """Blocks that another process has added meanwhile: several processes may maintain one channel."""
    for n in range(0, len(added), _BLOCKS_PER_QUERY):
        candidates_by_key = {
            (p.channel, p.partition, p.kind, *sequence_range(p)): p for p in added[n : n + _BLOCKS_PER_QUERY]
        }
        key_columns = (blocks.c.channel, blocks.c.partition, blocks.c.kind, blocks.c.lo, blocks.c.hi)
        is_candidate = [
            column.in_(sorted(set(values)))
            for column, values in zip(key_columns, zip(*candidates_by_key, strict=True), strict=True)
        ]
        is_compacted = (blocks.c.origin == "compact", blocks.c.collected_at.is_(None))
        for row in c.execute(select(*key_columns).where(*is_candidate, *is_compacted)):
            if tuple(row) in candidates_by_key:
                yield candidates_by_key[tuple(row)]


def blocks_with_same_range_condition(publish: AddBlock) -> tuple[Any, ...]:
    lo, hi = sequence_range(publish)
    conditions = (
        blocks.c.channel == publish.channel,
        blocks.c.partition == publish.partition,
        blocks.c.kind == publish.kind,
    )
    return (*conditions, blocks.c.hi == hi, blocks.c.lo == lo)


def sequence_range(publish: AddBlock) -> tuple[int, int]:
    """Sequence numbers of a block that maintenance adds. A base is at a single number."""
    assert publish.span is not None
    return (publish.span[1], publish.span[1]) if publish.kind == "base" else publish.span


def block_row(publish: AddBlock, commit_id: str, head: int, seq: int) -> dict[str, Any]:
    """Row of a block. A delta leads from the head to the commit's number, even if numbers in between are left out."""
    lo, hi = publish.span or (head, seq)
    return {
        "id": publish.block_id,
        "channel": publish.channel,
        "partition": publish.partition,
        "kind": publish.kind,
        "lo": hi if publish.kind == "base" else lo,
        "hi": hi,
        "rows": publish.manifest.rows,
        "bytes": publish.manifest.bytes,
        "deletes": publish.manifest.deletes,
        "schema": publish.manifest.schema.as_json(),
        "format": publish.manifest.format,
        "keeps_all": publish.manifest.drops_no_rows,
        "layout": None if publish.manifest.layout is None else publish.manifest.layout.as_json(),
        "outside": None if publish.manifest.external_folder is None else publish.manifest.external_folder.as_json(),
        "merge": publish.merge.as_json(),
        "channel_merge": None if publish.channel_merge is None else publish.channel_merge.as_json(),
        "origin": publish.origin,
        "commit_id": commit_id,
    }


def read_commit(c: Connection, condition: Any) -> Commit | None:
    row = c.execute(select(commits).where(condition)).mappings().first()
    if row is None:
        return None
    numbers_by_channel = query_as_dict(
        c, select(commit_numbers.c.channel, commit_numbers.c.seq).where(commit_numbers.c.commit_id == row["id"])
    )
    return Commit(
        row["id"],
        row["execution_id"],
        row["binding"],
        row["at"],
        numbers_by_channel,
        tuple(read_blocks(c, select(blocks).where(blocks.c.commit_id == row["id"]))),
        row["heads"],
        {n: (v[0], v[1]) for n, v in row["consumed"].items()},
        details=row["details"],
    )


def read_commit_by_idempotency_key(c: Connection, channel: str, key: str) -> IdempotentCommit | None:
    query = select(idempotency_keys.c.commit_id, idempotency_keys.c.digest).where(
        idempotency_keys.c.channel == channel, idempotency_keys.c.key == key
    )
    row = c.execute(query).first()
    commit = None if row is None else read_commit(c, commits.c.id == row.commit_id)
    return None if row is None or commit is None else IdempotentCommit(key, commit, row.digest)


MAX_KEY_LENGTH: int = idempotency_keys.c.key.type.length  # type: ignore[attr-defined]
"""Maximum length of an idempotency key, in characters."""


def check_idempotency_key(channel: str, key: str) -> None:
    """Check that every kind of catalog can store a key, before anything is staged.

    Raises:
        ValueRefused: the key is too long, or contains null characters or lone surrogates.
    """
    if len(key) > MAX_KEY_LENGTH or "\x00" in key or (not key.isascii() and storable_text(key) != key):
        raise ValueRefused(
            f"an idempotency key for channel {channel!r} cannot be stored",
            found=f"{len(key)} characters: {storable_text(key)[:40]!r}",
            expected=f"at most {MAX_KEY_LENGTH} characters, without null characters and lone surrogates",
            channel=channel,
        )
