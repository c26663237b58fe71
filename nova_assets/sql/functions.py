"""Which of Spark's expressions are known, and how each is computed from the values of its parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import tzinfo
from decimal import Decimal

from sqlglot import exp

from nova_assets.sql.arithmetic import ARITHMETIC
from nova_assets.sql.computing import CannotCompute, Make, Special, called, strict
from nova_assets.sql.dates import DATES
from nova_assets.sql.logic import LOGIC
from nova_assets.sql.texts import TEXTS
from nova_assets.sql.values import CASTS, Function, Value


def made(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    for kind in type(node).__mro__:
        if kind in _KNOWN:
            return _KNOWN[kind](node, make, zone)
    raise CannotCompute(node, f"{called(node)} cannot be computed from partitions")


def _literal(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    if isinstance(node, exp.Boolean | exp.Null):
        value: Value = node.this if isinstance(node, exp.Boolean) else None
    elif node.is_string:
        value = node.name
    else:
        value = int(node.name) if re.fullmatch(r"\d+", node.name) else Decimal(node.name)
    return lambda values: value


def _inner(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    return make(node.this)


def _cast(node: exp.Expr, make: Make, zone: tzinfo) -> Function:
    to = node.args["to"]
    name = to.this.name if hasattr(to.this, "name") else str(to.this)
    if name not in CASTS:
        raise CannotCompute(node, f"{called(node)} cannot be computed from partitions")
    cast = CASTS[name]
    return strict(lambda v: cast(v, zone), make(node.this))


_KNOWN: Mapping[type[exp.Expr], Special] = {
    **LOGIC,
    **ARITHMETIC,
    **DATES,
    **TEXTS,
    exp.Literal: _literal,
    exp.Boolean: _literal,
    exp.Null: _literal,
    exp.Paren: _inner,
    exp.Alias: _inner,
    exp.Cast: _cast,
    exp.TryCast: _cast,
}
