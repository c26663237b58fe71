"""Limits that follow from the readers of a dataset."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nova_assets.model.period import period_seconds
from nova_assets.plan.staleness import freshness_limits

READERS = {"a": ["b", "c"], "b": ["d"], "c": [], "d": []}


@pytest.mark.parametrize(
    ("declared", "others", "limits"),
    [
        ({"a": "5m"}, [], {"a": 300}),
        ({"a": "downstream"}, [], {}),
        ({"a": "downstream", "b": "1h", "c": "2 hours"}, [], {"a": 3600, "b": 3600, "c": 7200}),
        (
            {"a": "downstream", "b": "downstream", "c": "2h", "d": "30m"},
            [],
            {"a": 1800, "b": 1800, "c": 7200, "d": 1800},
        ),
        ({"a": "downstream", "b": "downstream", "c": "2h"}, [], {"c": 7200}),
        ({"a": "downstream", "b": "1h", "c": "2h"}, ["a"], {"b": 3600, "c": 7200}),
        ({"d": "downstream"}, [], {"d": None}),
        ({"a": "downstream", "b": "1h", "c": "downstream"}, [], {"a": 3600, "b": 3600, "c": None}),
    ],
)
def test_the_smallest_limit_of_the_readers(
    declared: dict[str, str], others: list[str], limits: dict[str, int | None]
) -> None:
    found = freshness_limits(declared, READERS, others)
    assert found.by_dataset == {d: None if n is None else timedelta(seconds=n) for d, n in limits.items()}
    assert found.downstream == {d for d, freshness in declared.items() if freshness == "downstream"}


def test_datasets_that_read_each_other() -> None:
    found = freshness_limits({"a": "downstream", "b": "downstream"}, {"a": ["b"], "b": ["a"]}, [])
    assert found.by_dataset == {"a": None, "b": None}


def test_periods_in_words() -> None:
    texts = ("10 minutes", "1 minute", "2 hours", "3days", "1 week", "45 seconds", "10 minute s", "5 months", "1 M")
    assert [period_seconds(t) for t in texts] == [600, 60, 7200, 259200, 604800, 45, None, None, None]
