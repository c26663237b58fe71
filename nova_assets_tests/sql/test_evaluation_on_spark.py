"""What is evaluated on partitions is what Spark would make of the same, or unknown: every function, operator and
optional argument, on values of every type, with ANSI rules and without.

``NOVA_FUZZ_STEPS`` is the number of cases of each expression, ``NOVA_FUZZ_SEED`` begins elsewhere.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from sqlglot import exp

from nova_assets.sql.evaluation import rules
from nova_assets.sql.evaluation.operand import Operand
from nova_assets.sql.evaluation.rule_registry import Application
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.text import SqlText
from nova_assets_tests.effort import examples
from nova_assets_tests.sql.spark_judge import TEMPLATES, Case, cases, differences, functions

EACH = examples(2, 8)
SEED = int(os.environ.get("NOVA_FUZZ_SEED", "25"))

FOUND = (Case("pmod({0}, {1})", ("tinyint", "bigint"), (-128, -(2**63))),)
"""Values that were wrong once."""


@pytest.fixture(scope="module", autouse=True)
def utc(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark").conf.set("spark.sql.session.timeZone", "UTC")


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
    assert set(rules._SYNTAX) - tried <= others


def _like_that_ignores_not(a: Application) -> Operand:
    return rules._FUNCTIONS["like"].rule(a, a.operand(), a.operand("expression"))


def _concat_for_concat_ws(a: Application, *operands: Operand) -> Operand:
    return rules._FUNCTIONS["concat"].rule(a, *operands)


def _unit_q_is_a_quarter(a: Application, of: Operand, unit: Operand) -> Operand:
    long = a.null_propagating(unit.type, lambda name: {"Q": "QUARTER"}.get(name, name), unit) if unit.type else unit
    return _TRUNC(a, of, long)


_TRUNC = rules._FUNCTIONS["trunc"].rule


@pytest.mark.spark
@pytest.mark.parametrize(
    "fault", ["an ignored argument", "a subclass taken for its parent", "a unit Spark does not know"]
)
def test_planted_faults_are_found(spark: Any, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault == "an ignored argument":
        monkeypatch.setitem(
            rules._SYNTAX, exp.Like, rules._Syntax(_like_that_ignores_not, frozenset(("this", "expression", "negate")))
        )
        templates = [t for t in TEMPLATES if "LIKE" in t]
    elif fault == "a subclass taken for its parent":
        monkeypatch.setitem(rules._FUNCTIONS, "concat_ws", rules._Function(_concat_for_concat_ws, 1, None))
        templates = [t for t in (*TEMPLATES, *functions()) if "concat_ws" in t.lower()]
    else:
        monkeypatch.setitem(rules._FUNCTIONS, "trunc", rules._Function(_unit_q_is_a_quarter, 2, 2))
        templates = [t for t in TEMPLATES if t.startswith("TRUNC")]
    different, _ = differences(spark, list(cases(random.Random(SEED), templates, 30)))
    assert different
