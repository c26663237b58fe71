"""Files with several records of one key: the result does not depend on how many files have waited together (R11).

The judge is the same channel that receives the same files one by one.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.nova_error import NovaError
from nova_assets_tests.effort import examples

Record = dict[str, Any]

MODELS = {
    "order_by": nova.Upsert("id", order_by="at"),
    "float_order": nova.Upsert(["id", "shop"], order_by="rank"),
    "sums": nova.Keyed("id", combine={"amount": "sum"}, order_by="at"),
}


class Landing:
    """A folder of files, and a store with a keyed channel that receives them."""

    def __init__(self, home: Path, merge: Any) -> None:
        home.mkdir()
        self.folder = home / "landing"
        self.folder.mkdir()
        self.clock = 1_700_000_000.0
        channel = nova.Channel(
            "orders",
            merge=merge,
            schema="id bigint, shop string, at bigint, rank double, amount bigint",
            source=nova.files(str(self.folder), min_age="1s", format="json"),
        )
        self.store = nova.open(
            nova.Project(channels=[channel]), catalog=f"sqlite:///{home}/c.db", warehouse=home / "wh"
        )

    def put(self, name: str, records: Sequence[Record]) -> None:
        path = self.folder / name
        path.write_text("".join(json.dumps(r) + "\n" for r in records))
        self.clock += 1
        os.utime(path, (self.clock, self.clock))

    def rows(self) -> list[tuple[Any, ...]]:
        rows = self.store.read("orders").to_arrow().to_pylist()
        return sorted((r["id"], r["shop"], r["at"], str(r["rank"]), r["amount"]) for r in rows)

    def refused(self) -> dict[str, str | None]:
        return {s.arrival.path: s.reason for s in self.store.arrivals("orders") if s.state == "refused"}


def order(n: int, at: int, amount: int, shop: str = "a", **more: Any) -> Record:
    return {"id": n, "shop": shop, "at": at, "rank": float(at), "amount": amount, **more}


def deletion(n: int) -> Record:
    return {"id": n, "shop": "a", "at": None, "rank": None, "amount": None, "_deleted": True}


@pytest.fixture
def landings(tmp_path: Path) -> Any:
    made: list[Landing] = []

    def build(merge: Any) -> Landing:
        made.append(Landing(tmp_path / str(len(made)), merge))
        return made[-1]

    yield build
    for landing in made:
        landing.store.close()


@pytest.mark.parametrize("model", ["order_by", "sums"])
def test_among_equals_the_later_record_wins_and_no_file_holds_back_others(landings: Any, model: str) -> None:
    """Two records of one id with the same ``order_by``, in one file and in two that wait together."""
    landing = landings(MODELS[model])
    landing.put("a.json", [order(1, 5, 10, "first"), order(1, 5, 20, "second"), order(2, 5, 1, "first")])
    landing.put("b.json", [order(2, 5, 2, "second")])
    landing.put("c.json", [order(3, 1, 7)])
    received = landing.store.receive("orders")
    assert (received.files, received.rows, received.bad, received.waiting) == (3, 5, 0, 0)
    amounts = {1: 20, 2: 2, 3: 7} if model == "order_by" else {1: 30, 2: 3, 3: 7}
    assert [(r[0], r[1], r[4]) for r in landing.rows()] == [
        (1, "second", amounts[1]),
        (2, "second", amounts[2]),
        (3, "a", amounts[3]),
    ]


@nova.associative
def later_text(earlier: Any, later: Any) -> Any:
    return later


def test_a_file_whose_key_nothing_decides_is_set_aside_with_the_reason(landings: Any) -> None:
    """A function of the user combines rows in their order, and nothing orders records with equal ``order_by``."""
    landing = landings(nova.Keyed("id", combine={"shop": later_text}, order_by="at"))
    landing.put("a.json", [order(1, 1, 1)])
    landing.put("b.json", [order(2, 1, 1, "x"), order(2, 1, 1, "y"), order(4, 1, 1)])
    landing.put("c.json", [order(1, 1, 3, "z")])
    received = landing.store.receive("orders")
    assert (received.files, received.rows, received.bad, received.waiting) == (3, 2, 1, 0)
    assert len(received.commits) == 2, "a block for each of the files whose rows the function combines"
    [(file, reason)] = landing.refused().items()
    assert file == "b.json"
    assert reason is not None and "2 live rows of key id = 2 with equal at, and shop is combined" in reason
    [aside] = landing.store.read("orders_quarantine").to_arrow().to_pylist()
    assert (aside["file"], aside["line"], aside["reason"]) == ("b.json", 0, reason)


def test_the_order_of_files_is_that_of_their_changes(landings: Any) -> None:
    """Names and hashes of files that a listing has found together say nothing about which one is later."""
    landing = landings(nova.Upsert("id", order_by="at"))
    names = [f"{n}.json" for n in (7, 3, 9, 1, 5, 8, 2)]
    for n, name in enumerate(names):
        landing.put(name, [order(1, 1, n)])
    landing.store.receive("orders")
    assert [r[4] for r in landing.rows()] == [len(names) - 1]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(examples(2, 40)))
def test_files_received_together_give_what_they_give_one_by_one(landings: Any, model: str, seed: int) -> None:
    rng = random.Random(f"{model} {seed}")
    together, one_by_one = landings(MODELS[model]), landings(MODELS[model])
    for n in range(rng.randint(2, 7)):
        records = [random_record(rng) for _ in range(rng.choice((1, 1, 2, 4)))]
        name = f"{rng.randint(0, 999)}-{n}.json"
        for landing in (together, one_by_one):
            landing.put(name, records)
        one_by_one.store.receive("orders")
        if rng.random() < 0.2:
            together.store.receive("orders")
    together.store.receive("orders")
    assert together.rows() == one_by_one.rows()
    assert together.refused() == one_by_one.refused()
    assert together.store.receive("orders").waiting == 0


def random_record(rng: random.Random) -> Record:
    n = rng.randint(1, 3)
    if rng.random() < 0.25:
        return deletion(n)
    return order(n, rng.randint(1, 3), rng.randint(1, 99), rank=rng.choice((0.0, -0.0, 1.0, None)))


def test_the_planted_fault_of_one_block_is_found(landings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cut between files, a deletion applies before the row that an earlier file has added."""
    monkeypatch.setattr("nova_assets.sources.batch.first_conflicting_file", lambda tables, model: None)
    failures = 0
    for seed in range(6):
        try:
            test_files_received_together_give_what_they_give_one_by_one(landings, "order_by", seed)
        except (AssertionError, NovaError):
            failures += 1
    assert failures
