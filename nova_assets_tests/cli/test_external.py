"""``nova external``: definitions that are written from their sources, and kept current."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets
from nova_assets_tests import postgres
from nova_assets_tests.cli.conftest import Nova
from nova_assets_tests.conftest import missing
from nova_assets_tests.source_database import PASSWORD, SourceDatabase, source_server

pytestmark = pytest.mark.slow

PROJECT = "followed_sources"
CODE = "import nova_assets as n\nproject = n.Project(n.datasets('sql'))\n"


@pytest.fixture(scope="module")
def server() -> Iterator[SourceDatabase]:
    try:
        with source_server() as database:
            yield database
    except postgres.NoPostgres as reason:
        missing(f"no PostgreSQL server: {reason}", "install PostgreSQL")


@pytest.fixture
def database(server: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> SourceDatabase:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    server.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id int PRIMARY KEY, day date, amount numeric(10,2), note varchar(20), at timestamptz)",
    )
    return server


@pytest.fixture
def call(nova: Nova) -> Nova:
    """``nova`` in this process, which loads the project anew for each command."""

    def load_and_call(*arguments: str) -> Any:
        sys.modules.pop(PROJECT, None)
        return nova(*arguments)

    return load_and_call


@pytest.fixture(autouse=True)
def project(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(f'[tool.nova]\nproject = "{PROJECT}:project"\n')
    (folder / f"{PROJECT}.py").write_text(CODE)


@pytest.mark.postgres
def test_a_database_table_is_written_then_followed(call: Nova, folder: Path, database: SourceDatabase) -> None:
    arguments = (database.url, "--table", "public.orders", "--password-env", "SHOP_PASSWORD", "--partition", "day")
    dry = call("external", "add", *arguments, "--dry-run")
    assert dry.code == 0 and not (folder / "sql").exists()
    added = call("external", "add", *arguments)
    assert (added.code, added.out) == (0, "wrote sql/orders.sql; next: nova refresh orders\n"), added.err
    written = (folder / "sql" / "orders.sql").read_text()
    assert written == dry.out
    assert (
        written
        == f"""\
CREATE EXTERNAL TABLE orders (
  id INT,
  day DATE,
  amount DECIMAL(10,2),
  note STRING,
  at TIMESTAMP
)
USING jdbc
OPTIONS (
  url '{database.url}',
  dbtable 'public.orders',
  passwordEnv 'SHOP_PASSWORD'
)
PARTITIONED BY (day)
"""
    )
    again = call("external", "add", *arguments)
    assert again.code == 1 and "exists already" in again.err
    assert call("external", "check").out == "orders: as its source\n"

    database.execute("ALTER TABLE orders ADD shop text")
    grown = call("external", "check")
    assert (grown.code, grown.out) == (0, "orders:\n  shop string was added\n"), "a new column breaks nothing"
    database.execute("ALTER TABLE orders DROP note", "ALTER TABLE orders ALTER id TYPE bigint")
    broken = call("external", "check", "orders", "--json")
    assert broken.code == 1
    (one,) = broken.json["checked"]
    assert [(c["column"], c["kind"], c["breaking"]) for c in one["changes"]] == [
        ("id", "retyped", True),
        ("note", "dropped", True),
        ("shop", "added", False),
    ]
    assert (one["channel"], one["file"], one["written"], one["error"]) == ("orders", "sql/orders.sql", False, None)

    updated = call("external", "check", "--write")
    assert updated.code == 0 and "written to sql/orders.sql" in updated.out
    assert (folder / "sql" / "orders.sql").read_text() == written.replace("id INT", "id BIGINT").replace(
        "  note STRING,\n", ""
    ).replace("  at TIMESTAMP\n", "  at TIMESTAMP,\n  shop STRING\n")
    assert call("external", "check").out == "orders: as its source\n"
    everything = "".join(f.read_text(errors="replace") for f in folder.rglob("*") if f.is_file())
    assert PASSWORD not in everything


@pytest.mark.core
@pytest.mark.postgres
def test_a_source_that_does_not_answer_is_said(
    call: Nova, folder: Path, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sql").mkdir()
    text = f"CREATE EXTERNAL TABLE orders (id INT) USING jdbc OPTIONS (url '{database.url}', dbtable 'orders', "
    (folder / "sql" / "orders.sql").write_text(f"{text}passwordEnv 'SHOP_PASSWORD')")
    monkeypatch.setenv("SHOP_PASSWORD", "not-the-right-one")
    output = call("external", "check")
    assert output.code == 1 and "orders: the database of external channel 'orders' cannot be read" in output.out
    assert "not-the-right-one" not in output.out + output.err
    refused = call("external", "add", "postgresql://u:a-secret-word9@h/d", "--table", "t")
    assert refused.code == 1 and "password_env" in refused.err and "a-secret-word9" not in refused.err


@pytest.mark.core
def test_a_folder_is_written_then_followed(call: Nova, folder: Path) -> None:
    def sell(day: str, **columns: pa.Array) -> None:
        (folder / "tills" / f"day={day}").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / "tills" / f"day={day}" / "part-0.parquet")

    sell("2024-01-01", price=pa.array([1]), item=pa.array(["pen"]))
    added = call("external", "add", "tills", "--done", "_SUCCESS")
    assert added.code == 0, added.err
    assert (
        (folder / "sql" / "tills.sql").read_text()
        == """\
CREATE EXTERNAL TABLE tills (
  price BIGINT,
  item STRING,
  day STRING
)
USING parquet
PARTITIONED BY (day)
LOCATION 'tills'
TBLPROPERTIES ('done' = '_SUCCESS')
"""
    )
    assert call("external", "check").out == "tills: as its source\n"
    sell("2024-01-02", price=pa.array([1.5]), item=pa.array(["pen"]), shop=pa.array(["x"]))
    broken = call("external", "check")
    assert (broken.code, broken.out) == (
        1,
        "tills:\n  breaking: price bigint is now double\n  shop string was added\n",
    )
    assert call("external", "check", "--write").code == 0
    assert "price DOUBLE," in (folder / "sql" / "tills.sql").read_text()
    wrong = call("external", "add", "tills", "--table", "t")
    assert wrong.code == 2 and "--table is for databases" in wrong.err


@pytest.mark.postgres
def test_definitions_are_compared_when_they_load(folder: Path, database: SourceDatabase) -> None:
    def opened(url: str, schema: str) -> None:
        external = nova_assets.external(url, table="orders", password_env="SHOP_PASSWORD")
        channel = nova_assets.Channel("orders", schema=schema, external=external)
        nova_assets.open(project=nova_assets.Project(channels=[channel])).close()

    opened(database.url, "id int, amount decimal(10,2)")
    opened(database.url.replace(":5432", ":5433"), "id date"), "nobody answers, which is no error"
    with pytest.raises(nova_assets.DefinitionError, match="id is integer, not date"):
        opened(database.url, "id date")
