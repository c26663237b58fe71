"""Plain assets with a mistake: a clear error, when definitions load if it can be known then, and nothing changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.dagster_bridge import build_definitions, nova_asset
from nova_assets.errors import DefinitionError
from nova_assets_tests.dagster_bridge.asset_deployment import DELTA, LATEST, LISTED, NEW, ORDERS, Deploy

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

ONE = pa.table({"shop": ["a"], "amount": [1]})


def multi(optional: bool = False, can_subset: bool = False) -> Any:
    outs = {
        "listed": dg.AssetOut(metadata=DELTA, is_required=not can_subset),
        "latest": dg.AssetOut(metadata=DELTA, is_required=not (optional or can_subset)),
    }

    @dg.multi_asset(outs=outs, ins=NEW, can_subset=can_subset)
    def both(orders: pa.Table): ...  # type: ignore[no-untyped-def]

    return both


def reading(mode: str, parameter: str = "orders") -> Any:
    ins = {parameter: dg.AssetIn(parameter, metadata={"nova/mode": mode})}
    function: Callable[..., Any] = (lambda orders: orders) if parameter == "orders" else (lambda order: order)
    return dg.asset(key="listed", metadata=DELTA, ins=ins)(function)


def short(mode: str) -> Any:
    @nova_asset(reads={"orders": mode}, writes=nova.delta(LISTED))
    def listed(orders: pa.Table) -> pa.Table:
        return orders

    return listed


def returning_none() -> Any:
    @dg.asset(key="listed", metadata=DELTA, ins=NEW)
    def listed(orders: pa.Table) -> None: ...

    return listed


def reader_of_old() -> Any:
    @dg.asset(ins={"orders": dg.AssetIn("orders", metadata={"nova/mode": "old"})})
    def mail(orders: pa.Table) -> None: ...

    return mail


def dependent(metadata: dict[str, str], **of_asset: str) -> Any:
    spec = dg.AssetSpec("listed", metadata={**DELTA, **of_asset}, deps=[dg.AssetDep("orders", metadata=metadata)])
    return dg.multi_asset(name="m", specs=[spec], ins={"orders": dg.AssetIn()})(lambda orders: orders)


def two_modes() -> Any:
    deps = [[dg.AssetDep("orders", metadata={"nova/mode": mode})] for mode in ("new", "all")]
    specs = [dg.AssetSpec(n, metadata=DELTA, deps=d) for n, d in zip(("listed", "latest"), deps, strict=True)]

    @dg.multi_asset(specs=specs, ins={"orders": dg.AssetIn()})
    def both(orders: pa.Table): ...  # type: ignore[no-untyped-def]

    return both


def reader_of_plain_asset() -> list[Any]:
    reader = dg.asset(name="mail", ins={"plain": dg.AssetIn(metadata={"nova/mode": "new"})})(lambda plain: None)
    return [dg.asset(key="plain")(_named("plain")), reader]


def check_of_changes() -> Any:
    @dg.asset_check(asset="listed", additional_ins={"orders": dg.AssetIn(metadata={"nova/mode": "new"})})  # type: ignore[arg-type]
    def small(orders: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    return small


def graph(metadata: dict[str, str] | None) -> Any:
    load = dg.op(ins={"orders": dg.In(metadata=metadata)}, name="load")(lambda orders: None)
    return dg.graph_asset(name="mail", ins={"orders": dg.AssetIn(metadata={"nova/mode": "new"})})(
        lambda orders: load(orders)
    )


def partitioned() -> Any:
    @dg.asset(key="listed", metadata=DELTA, partitions_def=dg.StaticPartitionsDefinition(["a"]))
    def listed() -> pa.Table:
        return ONE

    return listed


def writing(name: str, key: str = "listed", kind: str = "delta") -> Any:
    return dg.asset(key=key, metadata={"nova/produces": kind})(_named(name))


def _named(name: str) -> Callable[[], pa.Table]:
    def function() -> pa.Table:
        return ONE

    function.__name__ = name
    return function


@nova.task(consumes=nova.new(ORDERS), produces=nova.delta(LISTED))
def copy(orders: Any) -> Any:
    return orders


COPYING = nova.bind(nova.Workflowette("copying", [copy]))


@pytest.mark.core
@pytest.mark.parametrize(
    ("make", "bindings", "texts"),
    [
        (lambda: [writing("again")], [COPYING], ["'listed' has two writers", "binding 'copying' and asset 'listed'"]),
        (lambda: [writing("one"), writing("two")], [], ["'listed' has two writers"]),
        (lambda: [returning_none()], [], ["asset 'listed'", "annotated to return None", "-> pa.Table"]),
        (lambda: [reading("old")], [], ["asset 'listed' reads old(orders) without new(orders)", "nova.View"]),
        (lambda: [short("old")], [], ["asset 'listed' reads old(orders) without new(orders)", "nova.View"]),
        (lambda: [reader_of_old()], [], ["asset 'mail' reads old(orders) without new(orders)"]),
        (lambda: [partitioned()], [], ["asset 'listed' is partitioned otherwise than channel 'listed'"]),
        (lambda: [reading("nwe")], [], ["'orders' of asset 'listed'", "'nwe'; did you mean 'new'?", "changes"]),
        (lambda: [short("newest")], [], ["'orders' of asset 'listed'", "'newest'", "all, new, old, changes"]),
        (lambda: [reading("new", "order")], [], ["'listed' reads new(order)", "did you mean 'orders'?"]),
        (lambda: [writing("any", kind="append")], [], ["asset 'listed'", "'append'", "delta or base"]),
        (lambda: [writing("any", key="lisetd")], [], ["asset 'lisetd'", "did you mean 'listed'?"]),
        (lambda: [dependent({"nova/mod": "new"})], [], ["on 'orders'", "'nova/mod'; did you mean 'nova/mode'?"]),
        (lambda: [dependent({"nova/produces": "delta"})], [], ["'nova/produces'", "in the metadata of an asset"]),
        (lambda: [dependent({}, **{"nova/mode": "new"})], [], ["asset 'listed'", "'nova/mode'", "dg.AssetDep of an"]),
        (lambda: [two_modes()], [], ["'orders' of asset 'both' has several modes", "new and all", "nova.View"]),
        (reader_of_plain_asset, [], ["'mail' reads new(plain), which is no channel"]),
        (lambda: [check_of_changes()], [], ["'orders' of an asset check reads new(orders)", "a check has no cursor"]),
        (
            lambda: [graph(None)],
            [],
            ["'load.orders'", "names no read mode", "Dagster drops the metadata of dg.AssetIn"],
        ),
        (lambda: [graph({"nova/mode": "old"})], [], ["'mail' reads old(orders) without new(orders)"]),
        (lambda: [multi(optional=True)], [], ["output 'latest' of asset 'both'", "optional", "return an empty table"]),
        (lambda: [multi(can_subset=True)], [], ["asset 'both'", "can_subset=True", "one run writes all"]),
    ],
)
def test_definitions(make: Callable[[], list[Any]], bindings: list[nova.Binding], texts: list[str]) -> None:
    with pytest.raises(DefinitionError) as refused:
        build_definitions(nova.Project(bindings, channels=[ORDERS, LISTED, LATEST]), assets=make())
    assert [t for t in texts if t not in str(refused.value)] == [], refused.value


def returning(value: Any) -> Callable[[pa.Table], Any]:
    def function(orders: pa.Table):  # type: ignore[no-untyped-def]
        return value

    return function


def nothing_at_all(orders: pa.Table) -> Iterator[Any]:
    yield from ()


def two_of_one(orders: pa.Table) -> Iterator[Any]:
    yield dg.Output(orders)
    yield dg.Output(orders)


def another_type(orders: pa.Table) -> pd.DataFrame:
    return orders  # type: ignore[return-value]


def no_output(orders: pa.Table) -> Iterator[Any]:
    yield dg.Output(orders, "resutl")


WRONG: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "none": (returning(None), ["returned no rows for channel 'none'", "None", "an empty table or []"]),
    "no_value": (returning(dg.MaterializeResult(metadata={"n": 1})), ["no rows", "MaterializeResult without a"]),
    "nothing": (nothing_at_all, ["returned no rows", "an empty table or []"]),
    "twice": (two_of_one, ["returned output 'result' 2 times"]),
    "another_type": (another_type, ["another type", "found:    Table", "expected: DataFrame"]),
    "misspelt": (no_output, ["an output 'resutl' that it does not have; did you mean 'result'?"]),
    "short_row": (returning(ONE.select(["shop"])), ["channel 'short_row'", "column amount bigint is missing"]),
    "text": (
        returning(ONE.set_column(1, "amount", pa.array(["x"]))),
        ["channel 'text'", "column amount is string, not bigint"],
    ),
    "number": (returning(3), ["found:    int", "an Arrow table, a pandas or Spark DataFrame"]),
}


def test_a_run(deploy: Deploy) -> None:
    """Each fails, and publishes nothing; and no cursor moves, so that the corrected asset gets the rows."""
    assets = [dg.asset(key=name, metadata=DELTA, ins=NEW)(function) for name, (function, _) in WRONG.items()]

    @dg.multi_asset(
        outs={"listed": dg.AssetOut(metadata=DELTA), "latest": dg.AssetOut(metadata=DELTA), "note": dg.AssetOut()},
        ins=NEW,
    )
    def part(orders: pa.Table) -> Iterator[Any]:
        yield dg.Output(orders, "listed")
        yield dg.Output(orders, "latest")

    @dg.asset(key="unchecked", metadata=DELTA, ins=NEW, check_specs=[dg.AssetCheckSpec("small", asset="unchecked")])
    def unchecked(orders: pa.Table):  # type: ignore[no-untyped-def]
        yield dg.Output(orders)

    wrong = {n: texts for n, (_, texts) in WRONG.items()}
    wrong |= {"part": ["did not return its output 'note'"], "unchecked": ["its checks", "'small'"]}
    channels = [nova.Channel(n, schema="shop string, amount bigint") for n in [*WRONG, "unchecked"]]
    world = deploy(*assets, part, unchecked, channels=[ORDERS, LISTED, LATEST, *channels])
    world.insert(1)
    result = world.run(",".join([*WRONG, "unchecked", "listed", "latest", "note"]))
    errors = {e.step_key: e.step_failure_data.error.to_string() for e in result.all_events if e.is_step_failure}
    assert errors.keys() == wrong.keys()
    missing = {n: [t for t in texts if not re.search(re.escape(t), errors[n])] for n, texts in wrong.items()}
    assert not any(missing.values()), missing
    assert {n: h for n, h in world.store.catalog.scheduler.heads().items() if h} == {"orders": 1}
    assert world.cursors() == {}


def test_no_rows_are_written_by_an_empty_list(deploy: Deploy) -> None:
    @dg.asset(key="listed", metadata=DELTA, ins=NEW)
    def listed(orders: pa.Table) -> list[Any]:
        return []

    world = deploy(listed)
    world.insert(1)
    assert world.run("listed").success and world.store.timeline("listed") == [] and world.cursors() == {"listed": 1}


def test_a_multi_asset_of_specs(deploy: Deploy) -> None:
    @dg.multi_asset(specs=[dg.AssetSpec("listed", metadata=DELTA), dg.AssetSpec("latest", metadata=DELTA)])
    def both() -> Iterator[Any]:
        yield dg.MaterializeResult(asset_key="listed", value=ONE)
        yield dg.MaterializeResult(asset_key="latest", value=ONE)

    world = deploy(both)
    assert world.run("listed,latest").success and world.amounts("listed") == world.amounts("latest") == [1]
