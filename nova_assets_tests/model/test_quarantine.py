"""Reasons for which records were set aside, as they are counted."""

from __future__ import annotations

from nova_assets.model.quarantine import count_reasons
from nova_assets.model.receive_result import ReceiveResult


def test_reasons_that_differ_only_in_their_values_are_one() -> None:
    early = [
        f"daily partitions of 'dt' have no '2014-12-{d}'; expected YYYY-MM-DD, from 2015-01-01 on" for d in (30, 31)
    ]
    found = count_reasons(["column 'price': null", *early, "column 'shop': null"])
    assert found == {early[0]: 2, "column 'price': null": 1, "column 'shop': null": 1}
    both = ReceiveResult(bad=4, why=found) + ReceiveResult(bad=1, why={early[1]: 1})
    assert both.bad == 5 and both.why[early[0]] == 3 and sum(both.why.values()) == 5
