"""What is evaluated on partitions is what Spark would make of the same, or unknown: every function, operator and
optional argument, on values of every type, with ANSI rules and without.

``NOVA_FUZZ_STEPS`` is the number of cases of each expression, ``NOVA_FUZZ_SEED`` begins elsewhere.
"""

from __future__ import annotations

import os
import random
from decimal import Decimal
from typing import Any

import pytest
from sqlglot import exp

from nova_assets.sql.evaluation.operand import Operand
from nova_assets.sql.evaluation.rule_registry import (
    _ENTRY_BY_FUNCTION,
    _ENTRY_BY_NODE_CLASS,
    RuleContext,
    _FunctionEntry,
    _SyntaxEntry,
)
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.text import SqlText
from nova_assets_tests.effort import examples
from nova_assets_tests.sql.spark_judge import TEMPLATES, Case, cases, differences, functions

EACH = examples(2, 8)
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "25"))

LONG = Decimal("123456789012345678901234567890.12")
FOUND = (
    Case("pmod({0}, {1})", ("tinyint", "bigint"), (-128, -(2**63))),
    *(Case(sql, ("decimal(32,2)", "decimal(4,2)"), (LONG, Decimal("0.01"))) for sql in ("{0} + {1}", "{0} - {1}")),
    *(Case(sql, ("decimal(32,2)",), (LONG,)) for sql in ("abs({0})", "-{0}")),
)
"""Values that were wrong once."""


@pytest.fixture(scope="module", autouse=True)
def utc(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark").conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.core
@pytest.mark.spark
@pytest.mark.timeout(max(600, 60 * EACH))
def test_every_decided_value_is_sparks(spark: Any) -> None:
    rng = random.Random(SEED)
    different, decided = differences(spark, [*FOUND, *cases(rng, [*TEMPLATES, *functions()], EACH)])
    assert different == [], f"{len(different)} of {decided}:\n" + "\n".join(different[:40])
    assert decided > min(150 * EACH, 8000)  # the more there are, the more often a case comes twice


def test_every_kind_of_syntax_that_is_evaluated_is_tried() -> None:
    tried: set[type] = set()
    for template in TEMPLATES:
        case = Case(template, ("int",) * 3, (1, 2, 3))
        tried |= {type(n) for n in parse_statement(SqlText("x", f"SELECT {case.sql()} AS x")).walk()}
    others = {exp.NullSafeNEQ, exp.Coalesce, exp.Left, exp.Right, exp.If}  # made by the parser of other syntax alone
    assert set(_ENTRY_BY_NODE_CLASS) - tried <= others


def _like_that_ignores_not(context: RuleContext) -> Operand:
    return _ENTRY_BY_FUNCTION["like"].rule(context, context.operand(), context.operand("expression"))


def _concat_for_concat_ws(context: RuleContext, *operands: Operand) -> Operand:
    return _ENTRY_BY_FUNCTION["concat"].rule(context, *operands)


def _unit_q_is_a_quarter(context: RuleContext, of: Operand, unit: Operand) -> Operand:
    long = (
        context.null_propagating_operand(unit.type, lambda name: {"Q": "QUARTER"}.get(name, name), unit)
        if unit.type
        else unit
    )
    return _TRUNC(context, of, long)


_TRUNC = _ENTRY_BY_FUNCTION["trunc"].rule


@pytest.mark.spark
@pytest.mark.parametrize(
    "fault", ["an ignored argument", "a subclass taken for its parent", "a unit Spark does not know"]
)
def test_planted_faults_are_found(spark: Any, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault == "an ignored argument":
        monkeypatch.setitem(
            _ENTRY_BY_NODE_CLASS,
            exp.Like,
            _SyntaxEntry(_like_that_ignores_not, frozenset(("this", "expression", "negate"))),
        )
        templates = [t for t in TEMPLATES if "LIKE" in t]
    elif fault == "a subclass taken for its parent":
        monkeypatch.setitem(_ENTRY_BY_FUNCTION, "concat_ws", _FunctionEntry(_concat_for_concat_ws, 1, None))
        templates = [t for t in (*TEMPLATES, *functions()) if "concat_ws" in t.lower()]
    else:
        monkeypatch.setitem(_ENTRY_BY_FUNCTION, "trunc", _FunctionEntry(_unit_q_is_a_quarter, 2, 2))
        templates = [t for t in TEMPLATES if t.startswith("TRUNC")]
    different, _ = differences(spark, list(cases(random.Random(SEED), templates, 30)))
    assert different
