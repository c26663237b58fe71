"""What is kept of statements from process to process: the same as what is found out anew, or nothing."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from pyspark import cloudpickle
from sqlglot import exp

import nova_assets as nova
from nova_assets.errors import DefinitionError, SqlError
from nova_assets.sql.datasets import analysis_cache, disk_cache
from nova_assets.sql.datasets.dataset_query import DatasetQuery
from nova_assets.sql.datasets.declarations import CACHE_MIN_STATEMENTS
from nova_assets.sql.datasets.disk_cache import DiskCache
from nova_assets.sql.datasets.graph import Graph
from nova_assets.sql.datasets.graph_builder import build_graph
from nova_assets.sql.parse.tree_encoding import decode_tree, encode_tree
from nova_assets.sql.query.column_lineage import trace_lineage
from nova_assets.sql.text import SqlText
from nova_assets_tests.sql.rig import query
from nova_assets_tests.sql.test_prune_properties import COMPARED, JOINS, ON, SALES

pytestmark = pytest.mark.slow

NOW = datetime(2022, 4, 1, 12, tzinfo=UTC)

TICKETS = nova.Channel(
    "tickets",
    schema="product string, price decimal(10,2), tags array<struct<a:int,b:map<string,double>>>,"
    "day string, store string",
    partitions=[nova.daily("day", start="2022-03-01"), nova.static("store", ["Detroit", "Oslo", "Paris"])],
)
FUNCTIONS = {"slug": "string"}
DAYS = "FOR t IN TIMESERIES('2022-03-10', '2022-03-31') LET d = DATE_FORMAT(t, 'yyyy-MM-dd')\n"
SALES_SQL = (
    "-- What was sold.\n-- owner: shop@example.org\n"
    "FOR t IN TIMESERIES('2022-03-10', '2022-03-31'), store IN ('Paris', 'Oslo')\n"
    "LET d = DATE_FORMAT(t, 'yyyy-MM-dd')\nINSERT OVERWRITE sales PARTITION (day = d, store)\n"
    "SELECT product, COUNT(*) AS n, SUM(price) AS revenue, 'é{x}' AS odd FROM tickets\n"
    "WHERE tickets.day = :d AND tickets.store = :store GROUP BY product"
)
SOME = {
    "sales": SALES_SQL,
    "weeks": DAYS + "INSERT OVERWRITE weeks PARTITION (day = d) WITH w AS (SELECT * FROM sales WHERE sales.day BETWEEN "
    "CAST(DATE_SUB(:d, 6) AS STRING) AND d) SELECT product, revenue, RANK() OVER (ORDER BY revenue) AS place FROM w",
    "news": DAYS + "INSERT INTO news PARTITION (day = d) SELECT n.product, slug(n.product) AS slug, o.revenue AS was "
    "FROM NEW(sales) n LEFT JOIN OLD(sales) o ON n.product = o.product WHERE n.day = d AND o.day = d",
    "whole": "SELECT product, EXPLODE(tags) AS tag FROM WHOLE(tickets) UNION ALL SELECT product, NULL FROM tickets",
    "nothing": "SELECT 1 AS one, TIMESTAMP '2024-01-01 00:00:00' AS at",
    "plain": "INSERT OVERWRITE plain PARTITION (region = 'eu') SELECT product FROM weeks",
}


def texts(some: dict[str, str] = SOME) -> list[SqlText]:
    return [SqlText(f"sql/{name}.sql", sql) for name, sql in some.items()]


def told(found: Graph) -> dict[str, Any]:
    """All that is known of datasets."""
    said = {}
    for name, d in found.datasets.items():
        tasks = found.scopes_by_partition(name, NOW)
        channel = d.channel
        said[name] = (
            (d.statement, d.schema, channel.as_json(), channel.partitions, channel.description, channel.owners),
            (
                repr(d.query.tree),
                d.query.scans,
                d.query.variables,
                d.query.written_names,
                d.query.variables_without_colon,
                d.query.calls,
            ),
            [(n.key, n.meta) for n in d.query.tree.walk()],
            trace_lineage(d.query),
            tasks,
            d.statement.header.variable_types,
            d.statement.header.partition_column_types,
            d.statement.header.syntax_hash,
            [found.required_reads(name, p, NOW) for p in tasks],
            [
                found.partitions_reading(name, r, ["day=2022-03-15", "day=2022-03-15/store=Paris", ""], NOW)
                for r in d.reads
            ],
            DatasetQuery(found, name).runnable,
        )
    return said


@pytest.fixture
def kept(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "deep" / "definitions.db")


def test_what_is_recalled_is_what_is_found_out_anew(kept: DiskCache) -> None:
    fresh = build_graph(texts(), [TICKETS], FUNCTIONS)
    first = build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    again = build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    assert (fresh.cache_hits, first.cache_hits, again.cache_hits) == (0, 0, len(SOME))
    assert told(fresh) == told(first) == told(again)
    assert list(again.datasets) == list(fresh.datasets)


@pytest.mark.core
def test_nothing_is_parsed_that_nobody_asks_for(kept: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    monkeypatch.setattr("sqlglot.parse", lambda *_, **__: pytest.fail("parsed"))
    found = build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    assert found.required_reads("sales", "day=2022-03-31/store=Paris", NOW)[0].partitions == (
        "day=2022-03-31/store=Paris",
    )
    assert str(found.dataset("plain").schema) == "product string, region string"


CHANGED = {
    "another condition": ("sales", "GROUP BY", "AND tickets.price > 0 GROUP BY", {"sales"}),
    "another type": ("sales", "COUNT(*)", "CAST(COUNT(*) AS INT)", {"sales", "weeks", "news"}),
    "a column more": ("weeks", "SELECT product, revenue", "SELECT product, 1 AS x, revenue", {"weeks", "plain"}),
    "a comment": ("whole", "SELECT product, EXPLODE", "SELECT /* ! */ product, EXPLODE", {"whole"}),
    "another name of its partition column": ("weeks", "(day = d)", "(wday = d)", {"weeks", "plain"}),
}


@pytest.mark.parametrize("case", CHANGED)
def test_only_what_a_change_concerns_is_found_out_anew(kept: DiskCache, case: str) -> None:
    """A query that gives the same columns as before leaves those that read it as they were."""
    name, old, new, anew = CHANGED[case]
    build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    changed = {**SOME, name: SOME[name].replace(old, new)}
    assert changed != SOME
    found = build_graph(texts(changed), [TICKETS], FUNCTIONS, kept)
    assert len(SOME) - found.cache_hits == len(anew)
    assert told(found) == told(build_graph(texts(changed), [TICKETS], FUNCTIONS))
    assert build_graph(texts(), [TICKETS], FUNCTIONS, kept).cache_hits == len(SOME), "what was before is still known"


def test_a_channel_a_function_or_a_version_that_is_another_is_no_hit(
    kept: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recalled(channel: nova.Channel = TICKETS, functions: dict[str, str] = FUNCTIONS) -> int:
        return build_graph(texts(), [channel], functions, kept).cache_hits

    recalled()
    other = str(TICKETS.schema).replace("10,2", "12,2")
    assert recalled(nova.Channel("tickets", schema=other, partitions=list(TICKETS.partitions))) == 1
    assert recalled(functions={"slug": "int"}) == 0
    monkeypatch.setattr(analysis_cache, "_analysis_code_hash", lambda: b"another version")
    assert recalled() == 0


@pytest.mark.core
def test_how_a_dataset_is_kept_is_not_recalled_but_said_now(kept: DiskCache) -> None:
    build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    keyed = nova.Channel("sales", nova.Upsert(key=["product", "day", "store"]))
    found = build_graph(texts(), [TICKETS, keyed], FUNCTIONS, kept)
    assert found.cache_hits == len(SOME) and found.dataset("sales").channel.merge == keyed.merge
    wrong = nova.Channel("sales", schema="x int")
    with pytest.raises(DefinitionError, match="another schema than its query gives"):
        build_graph(texts(), [TICKETS, wrong], FUNCTIONS, kept)


@pytest.mark.core
def test_what_is_wrong_is_said_every_time(kept: DiskCache) -> None:
    """Of a query that is recalled as well: an error that only now comes about points at its text."""
    build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    wrong = {**SOME, "sales": SOME["sales"].replace("price", "prize")}
    said = []
    for _ in range(2):
        with pytest.raises(SqlError) as error:
            build_graph(texts(wrong), [TICKETS], FUNCTIONS, kept)
        said.append(error.value.render())
    assert said[0] == said[1] and "there is no column 'prize'" in said[0] and "^^^^^" in said[0]
    circle = {**SOME, "sales": SOME["sales"].replace("FROM tickets\n", "FROM weeks tickets\n")}
    with pytest.raises(SqlError, match=r"datasets read each other: .*(sales|weeks)"):
        build_graph(texts(circle), [TICKETS], FUNCTIONS, kept)
    assert build_graph(texts(), [TICKETS], FUNCTIONS, kept).cache_hits == len(SOME)


@pytest.mark.core
def test_functions_as_tables_are_understood_every_time(kept: DiskCache) -> None:
    some = [
        SqlText("priced.sql", "SELECT p.product, r.rate FROM sold p JOIN rates(:x, (SELECT * FROM sold)) r ON true")
    ]
    some = [SqlText("priced.sql", some[0].sql.replace(":x", "1"))]
    sold = nova.Channel("sold", schema="product string")
    functions = {"rates": "table(rate double)"}
    for _ in range(2):
        assert build_graph(some, [sold], functions, kept).cache_hits == 0


@pytest.mark.core
def test_a_damaged_file_is_as_none(kept: DiskCache) -> None:
    assert kept.file is not None
    kept.file.parent.mkdir()
    kept.file.write_bytes(b"no database" * 1000)
    assert build_graph(texts(), [TICKETS], FUNCTIONS, kept).cache_hits == 0
    assert not kept.file.exists(), "the next process begins anew"
    assert build_graph(texts(), [TICKETS], FUNCTIONS, kept).cache_hits == 0
    assert build_graph(texts(), [TICKETS], FUNCTIONS, kept).cache_hits == len(SOME)


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE kept SET said = 'x'",
        "UPDATE kept SET said = '[1]'",
        "UPDATE kept SET said = '{}'",
        "UPDATE kept SET said = NULL, used = NULL",
        "UPDATE kept SET tree = NULL",
        "UPDATE kept SET tree = x'00'",
        "UPDATE kept SET said = CAST(replace(CAST(said AS TEXT), 'string', 'strange') AS BLOB)",
        "UPDATE kept SET said = (SELECT said FROM kept ORDER BY key LIMIT 1)",
        "UPDATE kept SET tree = (SELECT tree FROM kept ORDER BY key LIMIT 1)",
        "UPDATE kept SET tree = (SELECT tree FROM kept ORDER BY key DESC LIMIT 1)",
        "DROP TABLE kept",
        "DROP TABLE kept; CREATE TABLE kept (other int)",
    ],
)
def test_a_damaged_record_is_as_none(kept: DiskCache, harm: str) -> None:
    fresh = told(build_graph(texts(), [TICKETS], FUNCTIONS, kept))
    assert kept.file is not None
    with sqlite3.connect(kept.file) as db:
        db.executescript(harm)
    assert told(build_graph(texts(), [TICKETS], FUNCTIONS, kept)) == fresh


def test_what_is_gone_when_it_is_asked_for_is_found_out_anew(kept: DiskCache) -> None:
    fresh = told(build_graph(texts(), [TICKETS], FUNCTIONS, kept))
    found = build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    assert kept.file is not None and found.cache_hits == len(SOME)
    kept.file.unlink()
    assert told(found) == fresh


def test_a_folder_that_cannot_be_written_is_read(
    kept: DiskCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    nowhere = DiskCache(tmp_path / "file" / "definitions.db")
    for _ in range(2):
        assert build_graph(texts(), [TICKETS], FUNCTIONS, nowhere).cache_hits == 0
    build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    assert kept.file is not None
    with sqlite3.connect(kept.file) as db:
        db.execute("UPDATE kept SET used = 0")

    def forbidden(*_: object, **__: object) -> int:
        raise PermissionError("not yours to write")

    monkeypatch.setattr(disk_cache.os, "open", forbidden)
    assert build_graph(texts(), [TICKETS], FUNCTIONS, kept).cache_hits == len(SOME)


def test_a_file_that_somebody_holds_is_waited_for_once(kept: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    looks: list[bytes] = []
    ask = disk_cache._fetch_row
    monkeypatch.setattr(disk_cache, "_fetch_row", lambda db, query, key: looks.append(key) or ask(db, query, key))
    monkeypatch.setattr(disk_cache, "LOCK_TIMEOUTS_SECONDS", (0.01, 0.01))
    assert kept.file is not None
    holder = sqlite3.connect(kept.file)
    holder.execute("BEGIN EXCLUSIVE")
    assert build_graph(texts(), [TICKETS], FUNCTIONS, kept).cache_hits == 0
    assert len(looks) == 1
    holder.close()
    assert build_graph(texts(), [TICKETS], FUNCTIONS, kept).cache_hits == len(SOME)


@pytest.mark.core
def test_whoever_has_no_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def homeless(name: str) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("NOVA_CACHE")
    monkeypatch.setattr(disk_cache, "user_cache_path", homeless)
    assert DiskCache.default().file is None
    forbidden = DiskCache(tmp_path / "kept.db")
    monkeypatch.setattr(Path, "is_file", lambda self: (_ for _ in ()).throw(PermissionError("not yours")))
    assert forbidden.get_tree(b"key") is None
    with forbidden.open_session() as look:
        assert look.get(b"key") is None


@pytest.mark.core
def test_what_was_found_out_is_kept_whatever_is_wrong_with_others(kept: DiskCache) -> None:
    wrong = {**SOME, "plain": "SELECT nothing FROM weeks"}
    with pytest.raises(SqlError):
        build_graph(texts(wrong), [TICKETS], FUNCTIONS, kept)
    assert build_graph(texts(), [TICKETS], FUNCTIONS, kept).cache_hits == len(SOME) - 1


@pytest.mark.core
def test_what_is_recalled_can_be_copied_and_sent(kept: DiskCache) -> None:
    build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    found = build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    query_ = DatasetQuery(found, "sales")
    sent = pickle.loads(cloudpickle.dumps(query_))
    assert sent.runnable == query_.runnable and sent.header.syntax_hash == query_.header.syntax_hash


@pytest.mark.core
def test_a_name_that_is_no_text_is_a_name(kept: DiskCache) -> None:
    some = [SqlText("caf\udce9.sql", "INSERT OVERWRITE coffee SELECT 1 AS a")]
    assert (
        list(build_graph(some, disk_cache=kept).datasets)
        == list(build_graph(some, disk_cache=kept).datasets)
        == ["coffee"]
    )


@pytest.mark.core
def test_functions_that_nobody_calls_cost_nothing(kept: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    found = build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    asked: list[bytes] = []
    tree = DiskCache.get_tree
    monkeypatch.setattr(DiskCache, "get_tree", lambda self, key: asked.append(key) or tree(self, key))
    for name in found.datasets:
        DatasetQuery(found, name)
    assert len(asked) == 1, "the one that calls slug"


@pytest.mark.core
def test_what_nobody_asks_for_is_forgotten(kept: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    build_graph(texts(), [TICKETS], FUNCTIONS, kept)
    now = disk_cache.time.time()
    monkeypatch.setattr(disk_cache.time, "time", lambda: now + 20 * 86400)
    few = {n: SOME[n] for n in ("sales", "nothing")}
    assert build_graph(texts(few), [TICKETS], FUNCTIONS, kept).cache_hits == 2
    monkeypatch.setattr(disk_cache.time, "time", lambda: now + 40 * 86400)
    assert build_graph(texts(few), [TICKETS], FUNCTIONS, kept).cache_hits == 2, "asked for 20 days ago"
    assert build_graph([*texts(few), SqlText("new.sql", "SELECT 1 AS a")], [TICKETS], FUNCTIONS, kept).cache_hits == 2
    assert build_graph(texts(), [TICKETS], FUNCTIONS, kept).cache_hits == 2


@given(SALES, JOINS, COMPARED, ON)
@settings(deadline=None, max_examples=100)
def test_a_tree_that_is_packed_is_what_it_was(sales: str, join: str, compared: str, on: str) -> None:
    tree = query(f"SELECT s.product FROM {sales} s {join} visits v ON {compared} AND {on}").tree
    found = decode_tree(encode_tree(tree))
    assert found == tree and repr(found) == repr(tree)
    assert [(type(a), a.meta) for a in found.walk()] == [(type(a), a.meta) for a in tree.walk()]


HARMFUL = ("os.system", "subprocess.Popen", "maybe_parse", "sqlglot.expressions.sys", "sqlglot.expressions.no.Thing")


@pytest.mark.core
@pytest.mark.parametrize("kind", HARMFUL)
def test_nothing_but_parts_of_queries_is_ever_made(kind: str) -> None:
    """What lies in a file is not trusted."""
    whole = [{"c": "Paren"}, {"i": 0, "k": "this", "c": kind}]
    typed = [{"c": "Null", "t": [{"c": kind}]}]
    for harmful in (whole, typed, [{"c": kind}]):
        with pytest.raises(ValueError, match=r"syntax (nodes|tree)"):
            decode_tree(zlib.compress(json.dumps(harmful).encode()))


@pytest.mark.core
@pytest.mark.parametrize("data", [b"", b"x", zlib.compress(b"{}"), zlib.compress(b"[]"), zlib.compress(b'[{"v": 1}]')])
def test_what_was_not_packed_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a syntax tree"):
        decode_tree(data)
    assert decode_tree(encode_tree(exp.Null())) == exp.Null()


def test_many_files_are_kept_where_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, home = tmp_path / "sql", tmp_path / "kept"
    folder.mkdir()
    for n in range(CACHE_MIN_STATEMENTS):
        (folder / f"d{n}.sql").write_text(f"SELECT {n} AS n")
    monkeypatch.setenv("NOVA_CACHE", "")
    nova.datasets(folder)
    monkeypatch.setenv("NOVA_CACHE", str(home))
    assert nova.datasets(folder).graph.cache_hits == 0
    assert nova.datasets(folder).graph.cache_hits == CACHE_MIN_STATEMENTS
    assert os.listdir(home) == ["definitions-1.db"]
    assert (home / "definitions-1.db").stat().st_mode & 0o077 == 0, "it is nobody else's"
    (folder / "d1.sql").unlink()
    assert nova.datasets(folder).graph.cache_hits == 0, "of few it is found out sooner than looked up"
