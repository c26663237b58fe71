"""Functions of users in SQL: what follows from their calls, and what is said of wrong ones."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import DefinitionError, SqlError
from nova_assets.model.partition_rule import InputState
from nova_assets.nova_error import NovaError
from nova_assets.sql.datasets.dataset_bindings import dataset_queries_by_name
from nova_assets.sql.datasets.dataset_query import DatasetQuery

TICKETS = nova.Channel(
    "tickets",
    schema="product string, price decimal(10,2), day string, store string",
    partitions=[nova.daily("day", start="2022-03-01"), nova.static("store", ["Oslo", "Paris"])],
)
HEAD = "FOR t IN TIMESERIES('2022-03-29', '2022-03-31') LET d = DATE_FORMAT(t, 'yyyy-MM-dd')\n"
HEAD += "INSERT OVERWRITE made PARTITION (day = d)\n"
QUERY = "SELECT product, price FROM tickets WHERE tickets.day = DATE_SUB(:d, 1)"


@nova.sql_function(returns="table(currency string, rate decimal(10,4))")
def rates(day: str, base: str, sold: Any = None, *, digits: int = 4) -> Any:
    return []


@nova.sql_function(returns="string", name="slugged")
def slug(text: str) -> str:
    return text.lower()


def made(folder: Path, sql: str, functions: Any = (rates, slug)) -> DatasetQuery:
    (folder / "made.sql").write_text(HEAD + sql)
    project = nova.Project(bindings=nova.datasets(folder, channels=[TICKETS], functions=functions))
    return dataset_queries_by_name(project)["made"]


def needs(query: DatasetQuery) -> list[str]:
    found = query.required_reads("day=2022-03-30", datetime.now(UTC), InputState())
    return [p for n in found for p in n.partitions]


def test_what_a_function_gives_is_typed_as_it_declares(tmp_path: Path) -> None:
    query = made(tmp_path, "SELECT r.*, slugged(currency) AS s, rate * 2 AS twice FROM rates(:d, 'EUR') r")
    assert str(query.schema) == "currency string, rate decimal(10,4), s string, twice decimal(12,4), day string"
    assert query.query.reads == () and needs(query) == []


def test_a_query_that_it_takes_is_read_as_it_says(tmp_path: Path) -> None:
    for given in (f"({QUERY})", f"TABLE({QUERY})", f"(({QUERY}))"):
        query = made(tmp_path, f"SELECT * FROM rates(:d, 'EUR', {given})")
        assert needs(query) == ["day=2022-03-29/store=Oslo", "day=2022-03-29/store=Paris"]
        assert query.query.reads == ("tickets",)
        assert query.runnable.query_texts_by_call == {
            "call_0": {
                query.query.calls[0].query_spans[0]: QUERY.replace("tickets WHERE", "{scan_0} AS `tickets` WHERE")
            }
        }


def test_calls_may_be_within_calls_and_in_any_letters(tmp_path: Path) -> None:
    inner = "WITH y AS (SELECT rate FROM RATES(:d, 'a, (') q) SELECT rate FROM y"
    query = made(tmp_path, f"SELECT * FROM Rates(:d, 'b' /* ) */, ({inner}))")
    assert str(query.schema).startswith("currency string, rate decimal(10,4)")
    assert "FROM {call_0} AS `rates`" in query.runnable.sql
    [within] = query.runnable.query_texts_by_call["call_0"].values()
    assert within == inner.replace("RATES(:d, 'a, (')", "{call_1}")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("((SELECT 1 AS a) UNION (SELECT 2 AS a))", "(SELECT 1 AS a) UNION (SELECT 2 AS a)"),
        ("(SELECT 1 AS a) -- all (of them\n", "SELECT 1 AS a"),
        ("/* a => b */ sold => (SELECT 1 AS a)", "SELECT 1 AS a"),
        ("TABLE(SELECT ')' AS a)", "SELECT ')' AS a"),
    ],
)
def test_the_query_is_taken_as_it_is_written(tmp_path: Path, given: str, text: str) -> None:
    query = made(tmp_path, f"SELECT * FROM rates(:d, 'EUR', {given})")
    assert list(query.runnable.query_texts_by_call["call_0"].values()) == [text]


def test_a_function_stands_beside_datasets(tmp_path: Path) -> None:
    sql = f"SELECT k.product, r.rate FROM rates(d, 'EUR', ({QUERY}), digits => 2) r JOIN tickets k ON k.product = "
    query = made(tmp_path, sql + "r.currency WHERE k.day = :d AND k.store = 'Paris'")
    assert needs(query) == ["day=2022-03-29/store=Oslo", "day=2022-03-29/store=Paris", "day=2022-03-30/store=Paris"]
    assert "FROM {call_0} r JOIN {scan_1} k ON" in query.runnable.sql
    assert "FROM rates(d, 'EUR', (SELECT" in query.runnable.display_sql
    assert dict(query.column_origins()) == {"product": ("tickets.product",), "rate": ()}


WRONG = [
    ("SELECT * FROM rates(:d)", "made.sql:3:15: rates(...) has invalid arguments: missing a required argument: 'base'"),
    (
        "SELECT * FROM rates(:d, 'a', x => 1)",
        "rates(...) has invalid arguments: got an unexpected keyword argument 'x'",
    ),
    ("SELECT * FROM rates(:e, 'a')", "made.sql:3:21: there is no variable ':e'"),
    ("SELECT * FROM rate(:d, 'a')", "made.sql:3:15: there is no table function rate(...)"),
    ("SELECT * FROM rates", "made.sql:3:15: rates is a table function, not a dataset"),
    ("SELECT price FROM rates(:d, 'a')", "there is no column 'price'"),
    ("SELECT slug(currency) AS s FROM rates(:d, 'a')", "the type of column 's' cannot be derived from the query"),
    (
        "WITH x AS (SELECT * FROM tickets WHERE tickets.day = :d) SELECT * FROM rates(:d, 'a', (SELECT * FROM x))",
        "made.sql:3:102: x is defined by WITH of the surrounding query",
    ),
    (
        "SELECT q.rate FROM tickets k, rates(:d, 'a', (SELECT * FROM tickets p WHERE p.day = k.day)) q",
        "k.day is a column of another source",
    ),
    ("SELECT * FROM db.rates(:d, 'a')", "made.sql:3:15: table function rates is named with a database"),
    ("SELECT slugged(currency, 2) AS s FROM rates(:d, 'a')", "slugged(...) has invalid arguments: too many positional"),
    (f"SELECT * FROM rates(:d, 'a', ({QUERY.replace('product', 'colour')}))", "there is no column 'colour'"),
]


@pytest.mark.parametrize(("sql", "what"), WRONG)
def test_what_is_wrong_with_a_call_is_pointed_at(tmp_path: Path, sql: str, what: str) -> None:
    with pytest.raises(SqlError) as raised:
        made(tmp_path, sql)
    assert what in raised.value.what and "^" in str(raised.value)


def test_what_is_wrong_with_a_function(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="function 'f': "):
        _named("f", "table(a strange)")
    with pytest.raises(DefinitionError, match="function 'f': "):
        _named("f", "strange")
    with pytest.raises(DefinitionError, match="function 'initcap': SQL has a built-in function of this name"):
        _named("initcap", "string")
    with pytest.raises(DefinitionError, match="gets no ctx"):
        nova.sql_function(returns="string", name="f")(lambda ctx: "")
    with pytest.raises(NovaError, match="the body of table function rates"):
        made(tmp_path, "SELECT * FROM rates(:d, 'a')", {"rates": rates.returns})
    with pytest.raises(DefinitionError, match="a function and a dataset have the same name: tickets"):
        made(tmp_path, "SELECT 1 AS n", [_named("tickets", "table(a int)")])
    with pytest.raises(SqlError, match=r"rates\(...\) is a table function, which this task cannot call"):
        nova.sql_task("t", "SELECT * FROM rates('2022-03-31')", produces=nova.base("made"))


def _named(name: str, returns: str) -> Any:
    return nova.sql_function(returns=returns, name=name)(lambda: None)


def test_calling_it_calls_the_plain_function() -> None:
    assert slug("Ab") == "ab"
