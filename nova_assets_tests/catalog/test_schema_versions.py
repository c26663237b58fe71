"""Versions of a catalog: migrations, and catalogs and URLs that are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect, text

import nova_assets as nova
from nova_assets.catalog import schema_version
from nova_assets.catalog.catalog import open_catalog
from nova_assets.catalog.tables import metadata
from nova_assets_tests.catalog.commit_requests import begin_execution, build_commit_request, channel

pytestmark = pytest.mark.slow


@pytest.mark.core
def test_the_version_is_the_newest_migration(tmp_path: Path) -> None:
    versions = sorted(
        p.name.split("_")[0] for p in (Path(schema_version.__file__).parent / "migrations/versions").glob("0*.py")
    )
    assert versions[-1] == schema_version.HEAD


def test_the_migrations_make_the_tables_that_the_code_uses(url: str) -> None:
    open_catalog(url).close()
    engine = create_engine(url)
    looked = inspect(engine)
    for table in metadata.tables.values():
        columns = {c["name"]: bool(c["nullable"]) for c in looked.get_columns(table.name)}
        assert columns == {c.name: bool(c.nullable) for c in table.columns}, table.name
        indexes = {i["name"] for i in looked.get_indexes(table.name)}
        assert {i.name for i in table.indexes} <= indexes, table.name
    engine.dispose()


def test_a_catalog_from_before_upkeep_knows_which_channels_may_be_given_a_base(url: str) -> None:
    read, written = nova.Channel("read"), nova.Channel("written")
    task = nova.task(name="t", consumes=nova.all(read), produces=nova.base(written))(lambda read: read)
    older = open_catalog(url)
    older.register([read, written], [nova.bind(nova.Workflowette("w", [task]))])
    older.close()
    engine = create_engine(url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(schema_version.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.downgrade(config, "0002")
    engine.dispose()
    newer = open_catalog(url)
    assert {s.channel.name: newer.channel(s.channel.name).may_get_base for s in newer.channels()} == {
        "read": False,
        "written": True,
    }
    newer.close()


def downgraded(url: str, version: str, *statements: str) -> None:
    """Make of a catalog one of an older version, and change it by hand."""
    engine = create_engine(url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(schema_version.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.downgrade(config, version)
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


@pytest.mark.core
def test_a_catalog_that_is_not_what_its_version_says_is_refused_and_left(url: str) -> None:
    open_catalog(url).close()
    downgraded(url, "0006", "DROP TABLE nova_identity")
    with pytest.raises(nova.CatalogVersion, match="of version 0006, cannot be migrated; it is left as it was") as met:
        open_catalog(url)
    assert "nova_identity" in str(met.value.found) and "the version of nova_assets that made it" in str(met.value.next)
    engine = create_engine(url)
    assert "nova_arrivals" not in inspect(engine).get_table_names()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM nova_version")).scalar() == "0006"
    engine.dispose()


def test_blocks_of_an_older_layout_can_be_read(url: str) -> None:
    """Version 0008 hashed keys otherwise, and did not say of which types they were."""
    older = open_catalog(url)
    older.register([channel])
    older.commit(build_commit_request(begin_execution(older)))
    older.close()
    old = '{"order"\\: ["k"], "clustered"\\: false}'
    downgraded(url, "0015", f"UPDATE nova_blocks SET layout = '{old}'")
    newer = open_catalog(url)
    (block,) = newer.history("c").blocks
    assert block.manifest.layout is None and [f.key_placement for f in block.manifest.files] == [None]
    assert [(f.rows, f.ranges) for f in block.manifest.files] == [(1, {"k": (1, 5)})]
    newer.close()


def test_a_newer_catalog_is_refused(url: str) -> None:
    open_catalog(url).close()
    engine = create_engine(url)
    with engine.begin() as c:
        c.execute(text("UPDATE nova_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(nova.CatalogVersion, match="made by a newer version") as met:
        open_catalog(url)
    assert met.value.found == "catalog version 9999" and "pip install" in str(met.value.next)


@pytest.mark.core
def test_a_file_that_is_no_catalog_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("hello, I am a text file and not a database at all" * 50)
    with pytest.raises(nova.CatalogVersion, match="is no catalog"):
        open_catalog(f"sqlite:///{tmp_path}/x.db")
    assert (tmp_path / "x.db").read_text().startswith("hello")


def test_a_catalog_that_is_down_is_told_without_its_password() -> None:
    with pytest.raises(nova.CatalogUnavailable, match="does not answer") as met:
        open_catalog("postgresql+psycopg://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(met.value) and "me:***@127.0.0.1" in str(met.value)


@pytest.mark.core
@pytest.mark.parametrize("wrong", ["mysql://x/y", "nonsense", "postgresql+nothing://x"])
def test_urls_that_are_none(wrong: str) -> None:
    with pytest.raises(nova.CatalogUnavailable):
        open_catalog(wrong)


def test_each_catalog_has_an_identity_that_stays_with_it(url: str, tmp_path: Path) -> None:
    first = open_catalog(url)
    again, other = open_catalog(url), open_catalog(f"sqlite:///{tmp_path}/other.db")
    assert first.identity() == again.identity() != other.identity() and len(first.identity()) == 32
    for catalog in (first, again, other):
        catalog.close()


@pytest.mark.core
def test_a_catalog_from_before_repair_is_given_an_identity(url: str) -> None:
    open_catalog(url).close()
    engine = create_engine(url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(schema_version.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.downgrade(config, "0004")
    engine.dispose()
    catalog = open_catalog(url)
    assert len(catalog.identity()) == 32
    catalog.close()


@pytest.mark.long
@pytest.mark.exhaustive
def test_several_processes_may_open_a_new_catalog_at_once(url: str) -> None:
    program = f"from nova_assets.catalog.catalog import open_catalog as o; o({url!r}).check_writable()"
    running = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in range(6)]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors[-2000:]
