"""Short notation for histories: ``history("b1 d2 d3 c3 d4")`` is a base at 1, deltas to 2 and 3, a compacted base at 3,
a delta to 4; ``x2`` a number whose blocks were collected."""

from __future__ import annotations

from typing import Any

from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.merge import Append, MergeModel
from nova_assets.model.schema import parse_ddl
from nova_assets.model.timeline import History

SCHEMA = parse_ddl("k bigint, v bigint")


def block(text: str, merge: MergeModel | None = None, rows: int = 1) -> Block:
    """``b3`` a base, ``c3`` a compacted base, ``d3`` the delta 2→3, ``d1-3`` a chained delta."""
    kind, numbers = text[0], [int(n) for n in text[1:].split("-")]
    hi = numbers[-1]
    lo = hi if kind in "bc" else numbers[0] if len(numbers) == 2 else hi - 1
    manifest = Manifest((DataFile(f"blocks/{text}/part-0", rows, 10 * rows),) if rows else (), SCHEMA)
    origin: Any = "compact" if kind == "c" or len(numbers) == 2 else "task"
    return Block(text, "c", "", "base" if kind in "bc" else "delta", lo, hi, manifest, merge or Append(), origin)


def history(text: str, head: int | None = None, merge: MergeModel | None = None) -> History:
    blocks = tuple(block(t, merge) for t in text.split() if t[0] != "x")
    gone = tuple(int(t[1:]) for t in text.split() if t[0] == "x")
    return History(
        "c",
        "",
        max([*(b.hi for b in blocks), *gone], default=0) if head is None else head,
        blocks,
        SCHEMA,
        merge or Append(),
        {"": gone} if gone else {},
        last_merge=blocks[-1].merge if blocks else None,
    )
