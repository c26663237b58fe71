"""Answers of servers that speak Spark's protocol, and what is held against them."""

from __future__ import annotations

import pytest

from nova_assets.plan.engine_probe import (
    OVERFLOW_QUERIES,
    FailedProbe,
    failed_overflow,
    failed_persisted_frame,
    failed_values,
)

SPARK = ["1.666667", "9" * 38, "2", "1", "true", "1.0E7", "6"]
"""Answers of Spark 4.3."""

OTHERS = ["1.666666", "9" * 15, "3", "0", "false", "10000000.0", "-1"]
"""Answers of other engines: most are those of Sail 0.7."""


def test_the_answers_of_spark_pass() -> None:
    assert failed_values(SPARK, 1) is None
    for probe in OVERFLOW_QUERIES:
        assert (
            failed_overflow(probe, None, "ArithmeticException: [ARITHMETIC_OVERFLOW] overflow. Use 'try_add'") is None
        )
    assert failed_persisted_frame([("a",)], [("a",)]) is None


@pytest.mark.parametrize("position", range(len(SPARK)))
def test_each_other_answer_fails(position: int) -> None:
    found = failed_values([*SPARK[:position], OTHERS[position], *SPARK[position + 1 :]], 1)
    assert found is not None and (found.found, found.expected) == (repr(OTHERS[position]), SPARK[position])


@pytest.mark.parametrize("rows", [None, 0, 2])
def test_an_observation_that_counts_otherwise_fails(rows: int | None) -> None:
    assert failed_values(SPARK, rows) == FailedProbe("observed rows of a query", repr(rows), "1")


def test_an_overflow_must_be_an_error_and_no_other_one() -> None:
    wrapped = failed_overflow("a SUM that overflows", -(2**63), None)
    assert wrapped is not None and wrapped.found == "the value -9223372036854775808"
    unknown = failed_overflow("a SUM that overflows", None, "UnsupportedOperationException: sum")
    assert unknown is not None and unknown.found == "UnsupportedOperationException: sum"


def test_a_frame_that_is_computed_again_fails() -> None:
    assert failed_persisted_frame([("a",)], [("b",)]) == FailedProbe(
        "a persisted frame that is read twice", "[('a',)], then [('b',)]", "the same rows twice"
    )
