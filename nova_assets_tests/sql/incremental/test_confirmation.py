"""What makes two of Spark's plans the same: structure and sources, not the names that a query gives to its columns."""

from __future__ import annotations

import pytest

from nova_assets.sql.incremental.confirmation import without_names

PLAN = """Project [site#1, n#2L]
+- Filter (count(1)#3L > 2)
   +- Aggregate [site#1], [site#1, sum(a#4) AS n#2L, count(1) AS count(1)#3L]
      :- Relation [site#1,a#4,b#5] parquet
      +- LocalRelation [c#6]"""


def test_names_are_removed_but_not_those_of_sources() -> None:
    assert without_names(PLAN) == (
        "Project [#1, #2L]\n"
        "+- Filter (#3L > 2)\n"
        "   +- Aggregate [#1], [#1, sum(#4) AS #2L, count(1) AS #3L]\n"
        "      :- Relation [site#1,a#4,b#5] parquet\n"
        "      +- LocalRelation [c#6]"
    )


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("n#2L", "other#2L", True),
        ("count(1)#3L", "_nova_hidden_0#3L", True),
        ("count(1) AS count(1)#3L", "count(1) AS `a b`#3L", False),  # another column is filtered
        ("site#1,a#4,b#5", "site#1,b#4,a#5", False),
        ("sum(a#4)", "sum(b#5)", False),
        ("sum(a#4)", "max(a#4)", False),
        ("> 2", "> 3", False),
        ("> 2", "> a#77", False),
    ],
)
def test_plans_differ_in_more_than_names(old: str, new: str, is_same: bool) -> None:
    assert old in PLAN
    assert (without_names(PLAN.replace(old, new)) == without_names(PLAN)) == is_same


def test_a_text_that_looks_like_a_column_stays() -> None:
    one, other = (PLAN.replace("> 2", f"> {text}#77") for text in ("x", "y"))
    assert without_names(one) != without_names(other)
