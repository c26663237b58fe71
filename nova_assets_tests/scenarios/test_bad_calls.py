"""Calls that are wrong, generated: each is refused with a NovaError, or is harmless; none raises anything else."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import nova_assets as nova

pytestmark = pytest.mark.slow

VALUES: list[Any] = [None, "1", "\ud800", "a\x00b", -1, 2**70, 1.5, True, [None], ["\ud800"], {1: 1}, object()]
"""Of any argument."""

SKIPPED = {"close", "views", "run", "tick", "backfill", "doctor", "publish", "refresh"}
SKIPPED |= {"receive", "replay", "seal", "preview_backfill"}
"""What ends the store, or runs users' functions and other systems."""

GOOD: dict[str, Any] = {
    "channel": "bag", "channels": "bag", "data": [{"id": 2, "v": 1.0}], "binding": "b", "at": 1, "what": [],
    "partition": None, "execution_id": "0" * 32, "to": "whole", "dataset": "d", "arrival": "a", "id": "x",
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[nova.Store]:
    monkeypatch.chdir(tmp_path)  # a backup may be made in a folder that is called "1"
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as opened:
        opened.register(
            [
                nova.Channel("bag", schema="id bigint, v double"),
                nova.Channel("keyed", merge=nova.Upsert(key="id"), schema="id bigint, v double, s struct<a:int>"),
            ]
        )
        for name in ("bag", "keyed"):
            opened.insert(name, pa.table({"id": [1], "v": [1.0], **({} if name == "bag" else {"s": [{"a": 1}]})}))
        yield opened


def attempt(call: Any) -> None:
    """Whatever comes of a call is a result or a NovaError."""
    try:
        result = call()
        if isinstance(result, AbstractContextManager):
            with result:
                pass
        if hasattr(result, "to_arrow"):
            result.to_arrow()
    except nova.NovaError as error:
        assert error.what


def methods() -> list[str]:
    public = inspect.getmembers(nova.Store, inspect.isfunction)
    return [name for name, _ in public if not name.startswith("_") and name not in SKIPPED]


@pytest.mark.core
@pytest.mark.parametrize("name", methods())
def test_a_call_with_one_wrong_argument(name: str, store: nova.Store) -> None:
    method = getattr(store, name)
    parameters = inspect.signature(method).parameters
    required = {n: GOOD.get(n, "x") for n, p in parameters.items() if p.default is inspect.Parameter.empty}
    for argument, parameter in parameters.items():
        for value in VALUES:
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                attempt(lambda value=value: method(value))
            elif parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                several = {n: v for n, v in required.items() if parameters[n].kind.name.startswith("VAR_")}
                keywords = {n: v for n, v in {**required, argument: value}.items() if n not in several}
                attempt(lambda keywords=keywords, several=several: method(*several.values(), **keywords))
    assert store.read("bag").to_arrow().num_rows >= 1, "the store goes on"


DATA: dict[str, Any] = {
    "names that are no text": [{1: 1}],
    "lone surrogates": [{"id": 1, "v": 1.0, "\ud800": 1}],
    "a lone surrogate as text": [{"id": 1, "s": "\ud800"}],
    "NaT": [{"id": pd.NaT, "v": pd.NaT}],
    "NA": [{"id": pd.NA, "v": pd.NA}],
    "objects": [{"id": object(), "v": 1.0}],
    "mixed": [{"id": 1, "v": 1.0}, 3],
    "a set": {1, 2},
    "a generator": (r for r in [{"id": 1}]),
    "a cycle": [{"id": 1, "v": (lambda x: x.append(x) or x)([])}],
    "huge numbers": [{"id": 10**5000, "v": 1.0}],
    "polars objects": pl.DataFrame({"id": pl.Series([object()], dtype=pl.Object)}),
    "polars categories": pl.DataFrame({"id": pl.Series(["a"], dtype=pl.Categorical), "v": [1.0]}),
    "polars durations": pl.DataFrame({"id": [1], "v": pl.Series([1], dtype=pl.Duration)}),
    "pandas of twin names": pd.DataFrame([[1, 2]], columns=["id", "id"]),
    "pandas objects": pd.DataFrame({"id": [object()], "v": [1.0]}),
    "pandas surrogates": pd.DataFrame({"id": ["\ud800"], "w": ["\ud800"]}),
    "an index of names": pd.DataFrame({("a", "b"): [1]}),
    "Arrow durations": pa.table({"id": pa.array([1], pa.duration("s"))}),
    "Arrow unions": pa.table({"id": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])}),
    "a broken stream": pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), (1 / 0 for _ in range(1))),
    "wide decimals": pa.table({"id": pa.array([1], pa.decimal256(60, 0)), "v": [1.0]}),
}


REFUSED_AS_KEYS = ("names that are no text", "lone surrogates", "polars categories", "a cycle", "a set", "objects")
"""Before Spark would be started to look for them."""


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("channel", ["bag", "keyed", "free"])
def test_wrong_data(name: str, channel: str, store: nova.Store) -> None:
    store.register(nova.Channel("free"))
    attempt(lambda: store.insert(channel, DATA[name]))
    if channel == "free" and name in REFUSED_AS_KEYS:
        attempt(lambda: store.read("keyed", keys=DATA[name]))
    store.insert("bag", [{"id": 9, "v": 1.0}])


def test_categories_of_polars_arrive_as_text(store: nova.Store) -> None:
    store.register(nova.Channel("t", schema="c string, e string"))
    kinds = {"c": pl.Series(["a", None], dtype=pl.Categorical), "e": pl.Series(["x", "y"], dtype=pl.Enum(["x", "y"]))}
    store.insert("t", pl.DataFrame(kinds))
    assert store.read("t").to_arrow().to_pydict() == {"c": ["a", None], "e": ["x", "y"]}


@pytest.mark.core
@pytest.mark.parametrize("partition", ["1", "", "day=2024-01-01", {}])
def test_a_channel_without_partitions_is_not_dropped_whole(partition: Any, store: nova.Store) -> None:
    with pytest.raises(nova.PartitionError):
        store.drop("bag", partition)
    assert store.read("bag").to_arrow().num_rows == 1


@pytest.mark.core
def test_what_is_said_of_a_wrong_argument(store: nova.Store) -> None:
    with pytest.raises(nova.NovaError, match="read\\(\\) takes no such at=") as refused:
        store.read("bag", at="1")  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.argument) == ("NOVA-ARGUMENT", "at")
    assert str(refused.value.found) == "'1' (str)" and str(refused.value.expected) == "a whole number or None"
    with pytest.raises(nova.NovaError, match="columns=") as refused:
        store.read("bag", columns="id")
    assert str(refused.value.expected) == "a list of text or None"
    with pytest.raises(nova.DefinitionError, match="channel 'bag' has no key columns, so keys= cannot select rows"):
        store.read("bag", keys=[{"id": 1}])
    with pytest.raises(nova.DefinitionError, match=r"order_by column 's' is struct<a:int>"):
        nova.Channel("o", merge=nova.Upsert(key="id", order_by="s"), schema="id int, s struct<a:int>")


@pytest.mark.core
@pytest.mark.parametrize("project", [5, [1], nova.Channel("c")])
def test_what_is_opened_is_a_project(project: Any) -> None:
    with pytest.raises(nova.NovaError, match=r"open\(\) got project= of an unsupported type"):
        nova.open(project)


@pytest.mark.core
def test_a_misspelt_argument_is_said_with_the_method(store: nova.Store) -> None:
    with pytest.raises(TypeError, match=r"insert\(\) got .*'idempotencykey'; did you mean 'idempotency_key'\?"):
        store.insert("bag", [{"id": 1}], idempotencykey="a")  # type: ignore[call-arg]


@pytest.mark.core
def test_a_row_that_is_no_dict_is_named(store: nova.Store) -> None:
    with pytest.raises(nova.NovaError, match="row 2 of the list is not a dict"):
        store.insert("bag", [{"id": 1}, (2, 1.0)])


@pytest.mark.core
def test_what_a_task_returns_is_said_with_the_task(tmp_path: Path) -> None:
    @nova.task(consumes=nova.new("bag"), produces=nova.delta("copy"))
    def as_text(bag: Any) -> Any:
        return "text"

    bag, copy = nova.Channel("bag", schema="id bigint"), nova.Channel("copy", schema="id bigint")
    project = nova.Project([nova.bind(nova.Workflowette("w", [as_text]), channels={"bag": bag, "copy": copy})])
    with nova.open(project, catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.insert("bag", [{"id": 1}])
        with pytest.raises(nova.NovaError, match=r"(?s)as_text.*str for port 'copy'"):
            store.run("w")
