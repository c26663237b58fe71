"""Syntax trees encoded as bytes for the cache. The encoding is JSON, and decoding creates syntax nodes only."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

from sqlglot import exp, serde

from nova_assets.sql.parse import dialect

_TYPE_CLASS = "DataType.Type"


def encode_tree(tree: exp.Expr) -> bytes:
    """A syntax tree as bytes.

    Raises:
        TypeError: the tree holds a value that JSON cannot represent.
    """
    return zlib.compress(json.dumps(serde.dump(tree), separators=(",", ":")).encode(), 1)


def decode_tree(data: bytes) -> exp.Expr:
    """The syntax tree from bytes of ``encode_tree``.

    Raises:
        ValueError: the bytes are no encoded tree.
    """
    try:
        found = json.loads(zlib.decompress(data))
        if not all(map(_is_expression_class, _class_names(found))):
            raise ValueError("classes other than syntax nodes")
        tree = serde.load(found)
    except (zlib.error, KeyError, IndexError, TypeError, AttributeError, ImportError, RecursionError) as error:
        raise ValueError(f"not a syntax tree: {error}") from error
    if not isinstance(tree, exp.Expr):
        raise ValueError("not a syntax tree")
    return tree


def _class_names(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Names of all classes that decoding would instantiate."""
    for node in nodes:
        if "c" in node:
            yield node["c"]
        yield from _class_names(node.get("t") or ())


@lru_cache(4096)
def _is_expression_class(class_name: str) -> bool:
    """Whether a name denotes a syntax node class. No other class may be instantiated."""
    if class_name == _TYPE_CLASS:
        return True
    module, _, name = class_name.rpartition(".")
    if module not in ("", exp.__name__, dialect.__name__) and not module.startswith(f"{exp.__name__}."):
        return False
    found = getattr(import_module(module) if module else exp, name, None)
    return isinstance(found, type) and issubclass(found, exp.Expr)
