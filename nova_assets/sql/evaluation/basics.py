"""Literals, brackets and casts."""

from __future__ import annotations

import re
from decimal import Decimal

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import BIGINT, BOOLEAN, DATE, DOUBLE, INT, RANGES, STRING, TIMESTAMP
from nova_assets.sql.evaluation.logic import NULL
from nova_assets.sql.evaluation.operand import Operand
from nova_assets.sql.evaluation.rules import Application, function, syntax
from nova_assets.sql.evaluation.values import Value
from nova_assets.sql.types.type_nodes import of_node

_MOST_DIGITS = 38


def constant(type_: DataType, value: Value) -> Operand:
    return Operand(type_, lambda values: value)


@syntax(exp.Literal, arguments="this is_string")
def _literal(a: Application) -> Operand:
    text = str(a.node.name)
    if a.node.is_string:
        return constant(STRING, text)
    if re.fullmatch(r"[0-9]+", text):
        return _whole(a, int(text))
    if re.fullmatch(r"[0-9]*\.[0-9]*", text) and len(text) <= _MOST_DIGITS:
        value = Decimal(text)
        scale = max(0, -int(value.as_tuple().exponent))
        return constant(DataType("decimal", (max(len(value.as_tuple().digits), scale), scale)), value)
    if re.fullmatch(r"[0-9]*\.?[0-9]*[eE][+-]?[0-9]{1,2}", text):
        return constant(DOUBLE, float(text))
    raise a.not_understood()


def _whole(a: Application, value: int) -> Operand:
    for type_ in (INT, BIGINT):
        if value <= RANGES[type_.name][1]:
            return constant(type_, value)
    if len(str(value)) > _MOST_DIGITS:
        raise a.not_understood()
    return constant(DataType("decimal", (len(str(value)), 0)), Decimal(value))


@syntax(exp.Boolean, arguments="this")
def _boolean(a: Application) -> Operand:
    return constant(BOOLEAN, bool(a.node.this))


@syntax(exp.Null, arguments="")
def _null(a: Application) -> Operand:
    return NULL


@syntax(exp.Paren, arguments="this")
def _brackets(a: Application) -> Operand:
    return a.operand()


@syntax(exp.Alias, arguments="this alias")
def _alias(a: Application) -> Operand:
    return a.operand()


@syntax(exp.Cast, exp.TryCast, arguments="this to safe")
def _cast(a: Application) -> Operand:
    target = of_node(a.node.args["to"])
    if target is None:
        raise a.not_understood()
    return a.as_type(a.operand(), target)


for _name, _type in (
    ("string", STRING),
    ("boolean", BOOLEAN),
    ("date", DATE),
    ("timestamp", TIMESTAMP),
    ("double", DOUBLE),
    ("decimal", DataType("decimal", (10, 0))),
    *((name, DataType(name)) for name in RANGES),
):

    def _cast_function(a: Application, operand: Operand, type_: DataType = _type) -> Operand:
        return a.as_type(operand, type_)

    function(_name, 1)(_cast_function)
