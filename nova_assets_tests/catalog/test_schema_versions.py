"""Versions of a catalog: migrations, and catalogs and URLs that are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect, text

import nova_assets as nova
from nova_assets.catalog import schema_version
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.catalog.tables import metadata
from nova_assets_tests.catalog.commit_requests import begin_execution, build_commit_request, channel

pytestmark = pytest.mark.slow


@pytest.mark.core
def test_the_version_is_the_newest_migration(tmp_path: Path) -> None:
    versions = sorted(
        p.name.split("_")[0] for p in (Path(schema_version.__file__).parent / "migrations/versions").glob("0*.py")
    )
    assert versions[-1] == schema_version.HEAD


def downgraded(url: str, *statements: str) -> None:
    """Make of a catalog one of the oldest version that can be migrated, and change it by hand."""
    engine = create_engine(url)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(schema_version.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.downgrade(config, schema_version.BASELINE)
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def described(url: str) -> dict[str, Any]:
    """Columns, keys and indexes of all tables."""
    engine = create_engine(url)
    looked, found = inspect(engine), dict[str, Any]()
    for table in looked.get_table_names():
        columns = {c["name"]: (str(c["type"]), c["nullable"], c["default"]) for c in looked.get_columns(table)}
        keys = (looked.get_pk_constraint(table), looked.get_foreign_keys(table))
        found[table] = (columns, keys)
    statement = (
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        if engine.dialect.name == "sqlite"
        else "SELECT indexname, indexdef FROM pg_indexes WHERE tablename LIKE 'nova_%'"
    )
    with engine.connect() as connection:
        found |= {name: " ".join(sql.split()) for name, sql in connection.execute(text(statement))}
    engine.dispose()
    return found


@pytest.mark.core
def test_a_migrated_catalog_is_like_a_new_one_and_keeps_its_data(url: str) -> None:
    older = open_catalog(url)
    older.definitions.register([channel])
    older.commits.commit(build_commit_request(begin_execution(older)))
    identity = older.identity.get()
    older.close()
    new = described(url)
    assert {name for name, table in metadata.tables.items() for _ in table.indexes} <= new.keys()
    downgraded(url)
    assert described(url) != new
    newer = open_catalog(url)
    assert newer.identity.get() == identity
    assert [(f.rows, f.ranges) for f in newer.histories.of("c").blocks[0].manifest.files] == [(1, {"k": (1, 5)})]
    newer.close()
    assert described(url) == new


@pytest.mark.core
def test_a_catalog_from_before_the_first_release_is_refused_and_left(url: str) -> None:
    open_catalog(url).close()
    downgraded(url, "UPDATE nova_version SET version_num = '0027'")
    before = described(url)
    with pytest.raises(nova.CatalogVersion, match="was made before the first release of nova_assets") as met:
        open_catalog(url)
    assert met.value.found == "catalog version 0027" and "docs/guides/catalog.md" in str(met.value.next)
    assert described(url) == before


@pytest.mark.core
def test_a_catalog_that_is_not_what_its_version_says_is_refused_and_left(url: str) -> None:
    open_catalog(url).close()
    downgraded(url, "DROP TABLE nova_tokens")
    with pytest.raises(nova.CatalogVersion, match="of version 0028, cannot be migrated; it is left as it was") as met:
        open_catalog(url)
    assert "nova_tokens" in str(met.value.found) and "the version of nova_assets that made it" in str(met.value.next)
    engine = create_engine(url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM nova_version")).scalar() == "0028"
    engine.dispose()
    assert "ix_nova_arrivals_taking_order" not in described(url)


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
    assert first.identity.get() == again.identity.get() != other.identity.get() and len(first.identity.get()) == 32
    for catalog in (first, again, other):
        catalog.close()


@pytest.mark.long
@pytest.mark.exhaustive
def test_several_processes_may_open_a_new_catalog_at_once(url: str) -> None:
    program = f"from nova_assets.catalog.open_catalog import open_catalog as o; o({url!r}).identity.check_writable()"
    running = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in range(6)]
    for process in running:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors[-2000:]
