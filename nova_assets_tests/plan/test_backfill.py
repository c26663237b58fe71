"""Which partitions a backfill makes again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_assets.errors import DefinitionError, PartitionError
from nova_assets.plan.backfill import backfill_scope, select_partitions
from nova_assets_tests.plan.test_tick import TASKS, needs

DAYS = [f"day=2022-03-{d:02}/store={s}" for d in (1, 2, 3, 10) for s in ("Oslo", "Paris", "Bonn")]
COLUMNS = ("day", "store")


def test_what_was_made_of_it_follows() -> None:
    found = backfill_scope(TASKS, needs, "stores", ["2/a"])
    assert found.parts == (("stores", "2/a"), ("products", "2"), ("weekly", ""))
    assert found.downstream_datasets == ("products", "weekly")
    assert not found.excluded_counts


def test_nothing_follows_if_it_is_not_to() -> None:
    found = backfill_scope(TASKS, needs, "stores", ["1/a", "1/b"], ())
    assert found.parts == (("stores", "1/a"), ("stores", "1/b"))
    assert found.excluded_counts == {"products": 1}


def test_some_follow() -> None:
    found = backfill_scope(TASKS, needs, "stores", ["1/a"], ("products",))
    assert found.parts == (("stores", "1/a"), ("products", "1"))
    assert found.excluded_counts == {"weekly": 1}


def test_what_lies_between_has_to_follow_too() -> None:
    with pytest.raises(DefinitionError, match="'weekly': depends on no partition of the backfill") as raised:
        backfill_scope(TASKS, needs, "stores", ["1/a"], ("weekly",))
    assert raised.value.expected == "some of: products"
    with pytest.raises(DefinitionError, match="'tickets'"):
        backfill_scope(TASKS, needs, "stores", ["1/a"], ("products", "tickets"))


@settings(deadline=None)
@given(st.sets(st.sampled_from(TASKS["stores"]), min_size=1))
def test_it_is_all_that_is_reached(partitions: set[str]) -> None:
    found = set(backfill_scope(TASKS, needs, "stores", sorted(partitions)).parts)
    reached = {("stores", p) for p in partitions}
    for _ in TASKS:
        reached |= {
            (d, p) for d in TASKS for p in TASKS[d] if any((r, q) in reached for r, qs in needs(d, p) for q in qs)
        }
    assert found == reached


@pytest.mark.parametrize(
    ("terms", "picked"),
    [
        (["day=2022-03-02"], DAYS[3:6]),
        (["day=2022-03-02..2022-03-03"], DAYS[3:9]),
        (["day=2022-03-02..2022-03-09"], DAYS[3:9]),
        (["day=2022-03-03.."], DAYS[6:]),
        (["day=..2022-03-01"], DAYS[:3]),
        (["store=Paris", "day=2022-03-01"], DAYS[1:2]),
        (["store=Oslo..Paris", "day=2022-03-01"], DAYS[:2]),  # in the order in which they are written
        ([], DAYS),
    ],
)
def test_terms_pick(terms: list[str], picked: list[str]) -> None:
    assert select_partitions("sales", DAYS, COLUMNS, terms) == picked


def test_numbers_are_in_the_order_of_numbers() -> None:
    hours = [f"h={n}" for n in range(1, 13)]
    assert select_partitions("x", hours, ("h",), ["h=1..30"]) == hours
    assert select_partitions("x", hours, ("h",), ["h=8..20"]) == hours[7:]


def test_what_cannot_be_made_again_is_left() -> None:
    found = backfill_scope(TASKS, needs, "stores", ["1/a"], None, lambda name: name != "products")
    assert found.parts == (("stores", "1/a"),) and found.excluded_counts == {"products": 1}


@pytest.mark.parametrize("term", ["shop=Paris", "day", "day=", "day=2022-04-01", "day=2022-03-04..2022-03-09"])
def test_a_term_that_picks_nothing(term: str) -> None:
    with pytest.raises(PartitionError, match=f"'{term}' selects no partition of 'sales'"):
        select_partitions("sales", DAYS, COLUMNS, [term])
