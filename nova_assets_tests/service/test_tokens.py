"""Tokens: what they allow, for how long, and what is kept of them; the catalog's part over SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text as sql

from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.errors import DefinitionConflict, DefinitionError
from nova_assets.model.token import (
    RIGHTS,
    Grants,
    Token,
    mint_token,
    parse_token,
    secret_digest,
    unknown_channels_in_grants,
)

NOW = datetime(2024, 1, 1, tzinfo=UTC)
ALL: Grants = {"read": ("*",)}


def test_the_text_of_a_token_says_which_and_proves_it() -> None:
    text, token = mint_token("ann", ALL, NOW)
    found = parse_token(text)
    assert found is not None
    token_id, secret = found
    assert token_id == token.id and token.has_secret(secret)
    assert not token.has_secret(secret[:-1]) and not token.has_secret("") and not token.has_secret(secret + "\udcff")
    assert len(secret) >= 43, "256 bits"
    assert secret not in repr(token) and secret_digest(secret) not in repr(token)
    assert len({mint_token("ann", ALL, NOW)[0] for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "text", ["", "nova_", "nova__", "nova_abc_def", "NOVA_0123456789abcdef_" + "a" * 43, "0123456789abcdef_" + "a" * 43]
)
def test_what_is_no_token(text: str) -> None:
    assert parse_token(text) is None
    good, _ = mint_token("ann", ALL, NOW)
    assert (
        parse_token(f"{good} ") is None
        and parse_token(f"{good}\n") is None
        and parse_token(good.replace("_", "-")) is None
    )


def test_no_right_implies_another() -> None:
    for right in RIGHTS:
        _, token = mint_token("ann", {right: ("orders",)}, NOW)
        assert [r for r in RIGHTS if token.allows(r, "orders")] == [right]


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("orders", ["orders"], ["Orders", "orders_2", "order", ""]),
        ("*", ["orders", "a"], []),
        ("sales_*", ["sales_", "sales_eu"], ["sales", "Sales_eu", "my_sales_eu"]),
        ("sales_?", ["sales_1"], ["sales_", "sales_12"]),
        ("sales_[12]", ["sales_1", "sales_2"], ["sales_3", "sales_[12]"]),
        ("orders*", ["orders", "orders_quarantine"], ["or"]),
    ],
)
def test_patterns_of_channels(pattern: str, fits: list[str], does_not: list[str]) -> None:
    _, token = mint_token("ann", {"write": (pattern,)}, NOW)
    assert token.allowed_channels("write", [*does_not, *fits]) == fits
    assert token.allowed_channels("read", fits) == []


def test_a_token_ends_when_it_expires_or_is_revoked() -> None:
    _, token = mint_token("ann", ALL, NOW, NOW + timedelta(days=1))
    assert token.is_valid(NOW) and token.is_valid(NOW + timedelta(hours=23))
    assert not token.is_valid(NOW + timedelta(days=1))
    assert not replace(token, revoked_at=NOW).is_valid(NOW)
    assert mint_token("ann", ALL, NOW)[1].is_valid(NOW + timedelta(days=36500))


@pytest.mark.parametrize(
    ("name", "grants", "says"),
    [
        ("", ALL, "unusable name"),
        ("a b", ALL, "unusable name"),
        ("-x", ALL, "unusable name"),
        ("a" * 129, ALL, "unusable name"),
        ("ann\n", ALL, "unusable name"),
        ("ann", {}, "has no grants"),
        ("ann", {"read": ()}, "has no grants"),
        ("ann", {"read": ("a b",)}, "unusable pattern"),
        ("ann", {"read": ("",)}, "unusable pattern"),
        ("ann", {"read": ("*" * 200,)}, "unusable pattern"),
    ],
)
def test_a_token_that_cannot_be_meant(name: str, grants: Grants, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        mint_token(name, grants, NOW)


def test_names_that_are_no_channels() -> None:
    grants: Grants = {"read": ("orders", "ordres", "sales_*"), "write": ("ordres", "[x]")}
    assert unknown_channels_in_grants(grants, ["orders"]) == ["ordres"]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    url: str = request.getfixturevalue("postgres_catalog_url")
    return url


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    made = open_catalog(catalog_url, lambda: NOW)
    yield made
    made.close()


def test_a_token_is_kept_as_it_was_made_but_for_its_secret(catalog: Catalog, catalog_url: str) -> None:
    grants: Grants = {"read": ("*",), "write": ("orders", "sales_*")}
    text, token = mint_token("ann", grants, NOW, NOW + timedelta(days=90))
    catalog.tokens.add(token)
    other = open_catalog(catalog_url)
    assert other.tokens.get(token.id) == token and other.tokens.all() == [token]
    assert other.tokens.get("0" * 16) is None
    other.close()
    rows = catalog.database.read(lambda c: c.execute(sql("SELECT * FROM nova_tokens")).all())
    parts = parse_token(text)
    assert parts is not None and parts[1] not in str(rows)


def test_a_name_is_given_once_and_the_error_says_what_holds_it(catalog: Catalog) -> None:
    def again(name: str) -> DefinitionConflict:
        with pytest.raises(DefinitionConflict) as refused:
            catalog.tokens.add(mint_token(name, ALL, NOW)[1])
        return refused.value

    catalog.tokens.add(mint_token("ann", ALL, NOW)[1])
    catalog.tokens.add(mint_token("old", ALL, NOW - timedelta(days=2), NOW - timedelta(days=1))[1])
    assert "valid" in str(again("ann").found) and "expired" in str(again("old").found)
    assert catalog.tokens.revoke("ann")
    error = again("ann")
    assert "revoked" in str(error.found) and "never reused" in str(error.expected)
    assert "nova token add ann-2" in str(error.next) and error.name == "ann"
    assert len(catalog.tokens.all()) == 2


def test_a_revoked_token_stays_and_allows_nothing(catalog: Catalog) -> None:
    tokens = [mint_token(name, ALL, NOW + timedelta(seconds=n))[1] for n, name in enumerate(["bob", "ann"])]
    for token in tokens:
        catalog.tokens.add(token)
    assert catalog.tokens.revoke("ann") and not catalog.tokens.revoke("ann") and not catalog.tokens.revoke("eve")
    bob, ann = catalog.tokens.all()
    assert bob == tokens[0] and bob.is_valid(NOW)
    assert ann == replace(tokens[1], revoked_at=NOW) and not ann.is_valid(NOW)


def test_two_that_add_the_same_name_at_once(catalog_url: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    catalogs = [open_catalog(catalog_url) for _ in range(4)]

    def add(catalog: Catalog) -> Token | None:
        token = mint_token("ann", ALL, NOW)[1]
        try:
            catalog.tokens.add(token)
        except DefinitionConflict:
            return None
        return token

    with ThreadPoolExecutor(4) as pool:
        kept = [token for token in pool.map(add, catalogs) if token is not None]
    assert len(kept) == 1 and catalogs[0].tokens.all() == kept
    for catalog in catalogs:
        catalog.close()
