"""``nova token``: made once, shown once, listed without secrets, revoked."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.token import parse_token
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.cli.conftest import Nova


def test_a_token_is_shown_once_and_works(nova: Nova) -> None:
    output = nova(
        "token", "add", "ann", "--read", "*", "--write", "sales_*", "--write", "returns_*", "--expires", "90d"
    )
    assert output.code == 0 and "not shown again" in output.out and "read *; write sales_* returns_*" in output.out
    [text] = [word for word in output.out.split() if word.startswith("nova_")]
    parts = parse_token(text)
    assert parts is not None
    catalog = open_catalog(load_settings().catalog)
    token = catalog.tokens.get(parts[0])
    catalog.close()
    assert token is not None and token.has_secret(parts[1]) and token.allows("write", "sales_eu")
    assert token.expires_at is not None and (token.expires_at - token.created_at).days == 90
    for listed in (nova("token", "list"), nova("token", "list", "--json")):
        assert "ann" in listed.out and parts[0] in listed.out
        assert parts[1] not in listed.out and token.digest not in listed.out


def test_the_same_for_programs(nova: Nova) -> None:
    made = nova("token", "add", "ann", "--operate", "*", "--json").json
    assert parse_token(made["token"]) is not None
    assert (made["name"], made["read"], made["write"], made["operate"]) == ("ann", [], [], ["*"])
    assert made["state"] == "valid" and made["expires_at"] is None and made["dry_run"] is False
    [listed] = nova("token", "list", "--json").json["tokens"]
    assert listed == {k: v for k, v in made.items() if k not in ("token", "dry_run", "unknown")}


def test_a_dry_run_makes_no_token_and_no_catalog(nova: Nova, folder: Path) -> None:
    output = nova("token", "add", "ann", "--read", "*", "--dry-run")
    assert output.code == 0 and "would grant read *" in output.out and "nova_" not in output.out
    assert nova("token", "add", "ann", "--read", "*", "--dry-run", "--json").json["token"] is None
    assert not (folder / ".nova" / "catalog.db").exists()
    assert "There are no tokens" in nova("token", "list").out


def test_a_name_that_is_no_channel_yet_is_remarked_on(nova: Nova, stub_store: Store) -> None:
    stub_store.register(stub_store.project)
    output = nova("token", "add", "ann", "--read", "stock", "--read", "stokc", "--write", "new_*")
    assert output.code == 0 and "these channels do not exist yet: stokc" in output.err and "stock" in output.err
    made = nova("token", "add", "bob", "--read", "stokc", "--json")
    assert made.code == 0 and made.json["unknown"] == ["stokc"]
    assert nova("token", "add", "eve", "--read", "stock").err == ""


def test_a_token_is_revoked_once_and_its_name_is_not_given_again(nova: Nova) -> None:
    nova("token", "add", "ann", "--read", "*")
    assert "would be revoked" in nova("token", "revoke", "ann", "--dry-run").out
    assert nova("token", "list", "--json").json["tokens"][0]["state"] == "valid"
    assert nova("token", "revoke", "ann", "--json").json == {
        "dry_run": False,
        "name": "ann",
        "revoked": True,
        "state": "revoked",
    }
    again = nova("token", "revoke", "ann")
    assert again.code == 0 and "was already revoked" in again.out
    assert nova("token", "list", "--json").json["tokens"][0]["state"] == "revoked"
    for more in ([], ["--dry-run"]):
        output = nova("token", "add", "ann", "--read", "*", *more)
        assert output.code == 1 and "NOVA-DEFINITION-CONFLICT" in output.err and "nova token add ann-2" in output.err
        assert "nova_" not in output.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["add", "ann"], "has no grants"),
        (["add", "a b", "--read", "*"], "unusable name"),
        (["add", "ann", "--read", "a/b"], "unusable pattern"),
        (["add", "ann", "--read", "*", "--expires", "5y"], "'5y'"),
        (["add", "ann", "--read", "*", "--expires", "0d"], "'0d'"),
        (["add", "ann", "--read", "*", "--expires", "99999999w"], "'99999999w'"),
        (["revoke", "nobody"], "no token 'nobody'"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_keeps_nothing(nova: Nova, arguments: list[str], says: str) -> None:
    output = nova("token", *arguments)
    assert output.code == 1 and says in output.err and "NOVA-DEFINITION" in output.err
    assert nova("token", "list", "--json").json == {"tokens": []}


def test_options_before_the_command_count(nova: Nova, folder: Path) -> None:
    nova("--catalog", folder / "other.db", "init")
    nova("--catalog", folder / "other.db", "token", "add", "ann", "--read", "*")
    assert nova("token", "list", "--json").json == {"tokens": []}
    assert len(nova("token", "list", "--catalog", folder / "other.db", "--json").json["tokens"]) == 1


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["add"], ["revoke"], ["add", "a", "b", "--read", "*"]])
def test_wrong_use(nova: Nova, arguments: list[str]) -> None:
    assert nova("token", *arguments).code == 2
