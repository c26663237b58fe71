"""Texts, as Spark computes with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import tzinfo

from sqlglot import exp

from nova_assets.sql.computing import CannotCompute, Make, Special, called, strict
from nova_assets.sql.values import Function, Value, as_text


def _substring(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    parts = [make(node.this), make(node.args["start"])]
    length = node.args.get("length")
    return strict(_cut, *parts, *([make(length)] if length is not None else []))


def _cut(value: Value, start: int, length: int | None = None) -> str:
    """Counted from 1; from the end where it is negative."""
    text = as_text(value)
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = len(text) if length is None else begin + length
    return text[max(0, begin) : max(0, end)]


def _texts(function: Callable[..., Value], *names: str) -> Special:
    """A function of texts that are its arguments of these names."""

    def made(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
        return strict(lambda *v: function(*map(as_text, v)), *(make(node.args[n]) for n in names))

    return made


def _concat(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
    return strict(lambda *v: "".join(map(as_text, v)), *map(make, parts))


def _left(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    return strict(lambda v, n: as_text(v)[: max(0, n)], make(node.this), make(node.expression))


def _right(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    return strict(lambda v, n: as_text(v)[-n:] if n > 0 else "", make(node.this), make(node.expression))


def _like(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    if not isinstance(node.expression, exp.Literal):
        raise CannotCompute(node, f"{called(node)} has no fixed pattern")
    pattern = re.compile(_as_regex(node.expression.name), re.DOTALL)
    return strict(lambda v: pattern.fullmatch(as_text(v)) is not None, make(node.this))


def _as_regex(like: str) -> str:
    """A pattern of LIKE, with its backslash, as a regular expression."""
    found, n = [], 0
    while n < len(like):
        if like[n] == "\\" and n + 1 < len(like):
            found.append(re.escape(like[n + 1]))
            n += 1
        else:
            found.append({"%": ".*", "_": "."}.get(like[n], re.escape(like[n])))
        n += 1
    return "".join(found)


def _trim(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    if node.args.get("expression") is not None or node.args.get("position"):
        raise CannotCompute(node, f"{called(node)} cannot be computed from partitions")
    return strict(lambda v: as_text(v).strip(" "), make(node.this))


def _pad(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    fill = node.args.get("fill_pattern")
    parts = [make(node.this), make(node.expression), *([make(fill)] if fill is not None else [])]
    left = bool(node.args.get("is_left"))
    return strict(lambda v, n, by=" ": _padded(as_text(v), int(n), as_text(by), left), *parts)


def _padded(text: str, width: int, by: str, left: bool) -> str:
    if len(text) >= width or not by:
        return text[: max(0, width)]
    filling = (by * width)[: width - len(text)]
    return filling + text if left else text + filling


TEXTS: Mapping[type[exp.Expr], Special] = {
    exp.Like: _like,
    exp.Substring: _substring,
    exp.Left: _left,
    exp.Right: _right,
    exp.Upper: _texts(str.upper, "this"),
    exp.Lower: _texts(str.lower, "this"),
    exp.Trim: _trim,
    exp.Length: _texts(len, "this"),
    exp.StartsWith: _texts(str.startswith, "this", "expression"),
    exp.EndsWith: _texts(str.endswith, "this", "expression"),
    exp.Contains: _texts(lambda v, part: part in v, "this", "expression"),
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.Pad: _pad,
}
