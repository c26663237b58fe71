"""Databases that refuse a user, a value or a write: the error names the cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets_tests import postgres
from nova_assets_tests.catalog.mirror_project import channel, count_keys, open_store, project, with_query
from nova_assets_tests.conftest import missing

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def administrated() -> Iterator[str]:
    """A server whose roles and databases a test may change."""
    try:
        with postgres.server(hot_standby="on") as url:
            yield url
    except postgres.NoPostgres as reason:
        missing(f"no PostgreSQL server: {reason}", "install PostgreSQL")


def with_user(user: str) -> Callable[[str], str]:
    return lambda url: make_url(url).set(username=user).render_as_string(hide_password=False)


CAUSES: dict[str, tuple[list[str], Callable[[str], str], str]] = {
    "permission": (
        ["CREATE ROLE reader LOGIN", "REVOKE ALL ON SCHEMA public FROM PUBLIC"],
        with_user("reader"),
        "may not use|has no schema",
    ),
    "no schema": (["DROP SCHEMA public"], lambda url: url, "has no schema"),
    "no role": ([], with_user("nobody_at_all"), "refuses the login"),
    "no database": ([], lambda url: make_url(url).set(database="nowhere").render_as_string(False), "refuses the login"),
    "read-only": (
        ["ALTER DATABASE {database} SET default_transaction_read_only = on"],
        lambda url: url,
        "is read-only",
    ),
    "timeout": ([], lambda url: with_query(url, options="-cstatement_timeout=1ms"), "took too long"),
    "lacks tables": (
        ["CREATE TABLE nova_version (version_num text)", "INSERT INTO nova_version VALUES ('{head}')"],
        lambda url: url,
        "lacks tables",
    ),
}


@pytest.mark.postgres
@pytest.mark.parametrize("cause", CAUSES)
def test_an_error_names_its_cause(administrated: str, cause: str) -> None:
    from nova_assets.catalog.schema_version import HEAD

    setup, change, what = CAUSES[cause]
    with postgres.fresh_database(administrated) as url:
        name = make_url(url).database
        with postgres.connect(url) as c:
            for statement in setup:
                c.execute(statement.format(database=name, head=HEAD).encode())
        with pytest.raises(nova.CatalogUnavailable, match=what) as met:
            catalog = open_catalog(change(url))
            catalog.definitions.register([channel])
        assert "check that PostgreSQL runs" not in str(met.value) and met.value.found and met.value.next


@pytest.mark.parametrize("key", ["k" * 513, "a lone \ud800", "a null \x00"], ids=["long", "surrogate", "null"])
def test_a_value_that_cannot_be_kept_is_told_as_one(url: str, tmp_path: Path, key: str) -> None:
    with open_store(url, tmp_path) as store:
        store.register(project)
        with pytest.raises((nova.ArgumentRefused, nova.ValueRefused)) as met:
            store.insert("c", [{"k": 1, "v": 1}], idempotency_key=key)
        assert "check that PostgreSQL runs" not in str(met.value)
        assert count_keys(store, "c") == Counter() and store.catalog.staging.executions_with_blocks() == []


@pytest.mark.postgres
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_databases_of_other_encodings(administrated: str, tmp_path: Path, encoding: str) -> None:
    name = f"encoded_{encoding.lower()}"
    with postgres.connect(administrated) as c:
        c.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'".encode())
    with open_store(make_url(administrated).set(database=name).render_as_string(False), tmp_path) as store:
        store.register(project)
        store.insert("c", [{"k": 1, "v": 1}], idempotency_key="é")
        assert store.insert("c", [{"k": 1, "v": 1}], idempotency_key="é").repeated
        if encoding == "LATIN1":
            with pytest.raises(nova.ValueRefused, match="cannot store a value") as met:
                store.insert("c", [{"k": 2, "v": 1}], idempotency_key="€")
            assert "UTF8" in str(met.value.next)
        assert count_keys(store, "c") == Counter([1])


@pytest.mark.postgres
def test_a_standby_is_no_catalog(administrated: str, tmp_path: Path) -> None:
    """It knows old numbers, and takes nothing: whoever is sent there by a wrong address is told so."""
    open_catalog(administrated).close()
    with postgres.standby(administrated) as url, pytest.raises(nova.CatalogUnavailable, match="is read-only") as met:
        open_catalog(url)
    assert "standby" in str(met.value.found) and "primary" in str(met.value.next)
