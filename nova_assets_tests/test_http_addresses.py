"""Addresses of equal services in rotation, without any service."""

from __future__ import annotations

import pytest

from nova_assets.http_addresses import LONGEST_PAUSE, AddressPool, split_addresses
from nova_assets.settings import load_settings


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_every_address_has_its_turn(clock: Clock) -> None:
    pool = AddressPool(["a", "b", "c"], clock)
    orders = [pool.candidates() for _ in range(6)]
    assert [sum(order[0] == address for order in orders) for address in "abc"] == [2, 2, 2]
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)


def test_an_address_that_failed_is_avoided_longer_each_time_and_is_the_last_resort(clock: Clock) -> None:
    pool = AddressPool(["a", "b"], clock)
    pauses = []
    for _ in range(8):
        pool.record_failure("a", clock.now)
        began = clock.now
        assert {tuple(pool.candidates()) for _ in range(4)} == {("b", "a")}
        while "a" not in pool.available():
            clock.now += 0.05
        pauses.append(clock.now - began)
    assert 0.8 <= pauses[0] <= 1.3 and 0.8 * LONGEST_PAUSE <= pauses[-1] <= 1.2 * LONGEST_PAUSE + 0.1
    assert pool.record_success("a") and not pool.record_success("a")
    pool.record_failure("a", clock.now)
    clock.now += 1.3
    assert "a" in pool.available(), "an answer ends the longer pauses"


def test_of_simultaneous_failures_one_counts(clock: Clock) -> None:
    pool = AddressPool(["a", "b"], clock)
    began = clock.now
    clock.now += 0.5
    assert [pool.record_failure("a", began) for _ in range(20)] == [True] + [False] * 19
    clock.now += 1.3
    assert "a" in pool.available()


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("http://a:1", ("http://a:1",)),
        ("http://a:1/,https://b:2/", ("http://a:1", "https://b:2")),
        ("http://a:1, http://b:2 ,http://a:1,", ("http://a:1", "http://b:2")),
        (["http://a:1/", "http://b:2"], ("http://a:1", "http://b:2")),
        ("http://me:a,b@a:1,http://b", ("http://me:a,b@a:1", "http://b")),
    ],
)
def test_addresses_of_a_setting(text: str | list[str], addresses: tuple[str, ...]) -> None:
    assert split_addresses(text) == addresses
    assert load_settings(service=text).service_addresses == addresses
