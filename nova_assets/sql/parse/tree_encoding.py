"""Parts of queries as bytes, to be kept and read again: JSON, of which nothing but parts of queries is ever made."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

from sqlglot import exp, serde

from nova_assets.sql.parse import dialect

_TYPES = "DataType.Type"


def packed(tree: exp.Expr) -> bytes:
    """A part of a query, as bytes.

    Raises:
        TypeError: it holds something that JSON has not.
    """
    return zlib.compress(json.dumps(serde.dump(tree), separators=(",", ":")).encode(), 1)


def unpacked(data: bytes) -> exp.Expr:
    """What was packed.

    Raises:
        ValueError: it was not.
    """
    try:
        found = json.loads(zlib.decompress(data))
        if not all(map(_is_part, _kinds(found))):
            raise ValueError("something else than parts of queries")
        tree = serde.load(found)
    except (zlib.error, KeyError, IndexError, TypeError, AttributeError, ImportError, RecursionError) as error:
        raise ValueError(f"no part of a query: {error}") from error
    if not isinstance(tree, exp.Expr):
        raise ValueError("no part of a query")
    return tree


def _kinds(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """All that is going to be made."""
    for node in nodes:
        if "c" in node:
            yield node["c"]
        yield from _kinds(node.get("t") or ())


@lru_cache(4096)
def _is_part(kind: str) -> bool:
    """Whether a name is that of a part of queries: what else could be called by it is not."""
    if kind == _TYPES:
        return True
    module, _, name = kind.rpartition(".")
    if module not in ("", exp.__name__, dialect.__name__) and not module.startswith(f"{exp.__name__}."):
        return False
    found = getattr(import_module(module) if module else exp, name, None)
    return isinstance(found, type) and issubclass(found, exp.Expr)
