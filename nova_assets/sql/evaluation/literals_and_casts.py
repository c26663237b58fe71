"""Evaluation rules for literals, parentheses, aliases and casts."""

from __future__ import annotations

import re
from decimal import Decimal

from sqlglot import exp

from nova_assets.model.schema import DataType
from nova_assets.sql.evaluation.casting import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTEGRAL_RANGES, STRING, TIMESTAMP
from nova_assets.sql.evaluation.logic import NULL
from nova_assets.sql.evaluation.operand import Operand, Value
from nova_assets.sql.evaluation.rule_registry import RuleContext, function_rule, syntax_rule
from nova_assets.sql.types.type_nodes import data_type_of_node

_MAX_DIGITS = 38


def constant_operand(type_: DataType, value: Value) -> Operand:
    return Operand(type_, lambda values: value)


@syntax_rule(exp.Literal, allowed_arguments="this is_string")
def _literal_operand(context: RuleContext) -> Operand:
    text = str(context.node.name)
    if context.node.is_string:
        return constant_operand(STRING, text)
    if re.fullmatch(r"[0-9]+", text):
        return _integer_literal_operand(context, int(text))
    if re.fullmatch(r"[0-9]*\.[0-9]*", text) and len(text) <= _MAX_DIGITS:
        value = Decimal(text)
        scale = max(0, -int(value.as_tuple().exponent))
        return constant_operand(DataType("decimal", (max(len(value.as_tuple().digits), scale), scale)), value)
    if re.fullmatch(r"[0-9]*\.?[0-9]*[eE][+-]?[0-9]{1,2}", text):
        return constant_operand(DOUBLE, float(text))
    raise context.not_understood()


def _integer_literal_operand(context: RuleContext, value: int) -> Operand:
    for type_ in (INT, BIGINT):
        if value <= INTEGRAL_RANGES[type_.name][1]:
            return constant_operand(type_, value)
    if len(str(value)) > _MAX_DIGITS:
        raise context.not_understood()
    return constant_operand(DataType("decimal", (len(str(value)), 0)), Decimal(value))


@syntax_rule(exp.Boolean, allowed_arguments="this")
def _boolean_operand(context: RuleContext) -> Operand:
    return constant_operand(BOOLEAN, bool(context.node.this))


@syntax_rule(exp.Null, allowed_arguments="")
def _null_operand(context: RuleContext) -> Operand:
    return NULL


@syntax_rule(exp.Paren, allowed_arguments="this")
def _parentheses(context: RuleContext) -> Operand:
    return context.operand()


@syntax_rule(exp.Alias, allowed_arguments="this alias")
def _alias(context: RuleContext) -> Operand:
    return context.operand()


@syntax_rule(exp.Cast, exp.TryCast, allowed_arguments="this to safe")
def _cast_operand(context: RuleContext) -> Operand:
    target = data_type_of_node(context.node.args["to"])
    if target is None:
        raise context.not_understood()
    return context.cast_operand(context.operand(), target)


for _name, _type in (
    ("string", STRING),
    ("boolean", BOOLEAN),
    ("date", DATE),
    ("timestamp", TIMESTAMP),
    ("double", DOUBLE),
    ("decimal", DataType("decimal", (10, 0))),
    *((name, DataType(name)) for name in INTEGRAL_RANGES),
):

    def _cast_function(context: RuleContext, operand: Operand, type_: DataType = _type) -> Operand:
        return context.cast_operand(operand, type_)

    function_rule(_name, 1)(_cast_function)
