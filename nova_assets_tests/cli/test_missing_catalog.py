"""A missing catalog: only ``nova init`` creates one at an address that was set, and every command says where it looked.

A relative address is meant from the project's folder, in whichever folder a command is started.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import nova_assets as nova_api
from nova_assets_tests.cli.conftest import Nova

COMMANDS = (
    *("channels", "cursors", "executions", "bindings", "triggers", "gc", "refresh", "token list"),
    *("insert orders orders.jsonl", "insert orders orders.jsonl --dry-run", "read stock", "timeline stock"),
    *("token add ann --read *", "token add ann --read * --dry-run", "receive orders", "tick", "notify", "seal stock"),
    *("compact stock", "compact stock --dry-run", "serve --port 0", "serve --port 0 --instances 2"),
    *("run recount", "pause channel stock", "drop stock --expired", "restore stock --at 1", "plan recount"),
)


@pytest.mark.usefixtures("with_shop", "orders_file")
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_creates_a_catalog_at_an_address_that_was_set(
    nova: Nova, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("NOVA_CATALOG", "misspelt.db")
    before = sorted(folder.iterdir())
    output = nova(*command.split())
    assert output.code == 1 and output.out == "", output.err
    assert output.err.startswith(f"[NOVA-CATALOG-UNAVAILABLE] there is no catalog at sqlite:///{folder}/misspelt.db")
    assert f"no file {folder}/misspelt.db" in output.err and "nova init creates it" in output.err
    assert f"starts at the project's folder {folder}" in output.err and "correct NOVA_CATALOG" in output.err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("command", ["doctor", "doctor --repair", "doctor --repair --dry-run", "init --dry-run"])
def test_commands_that_look_at_a_deployment_report_a_missing_catalog(nova: Nova, folder: Path, command: str) -> None:
    output = nova("--catalog", "misspelt.db", *command.split())
    assert output.code == 0 and list(folder.iterdir()) == [], output.err


@pytest.mark.parametrize("layer", ["argument", "environment", "pyproject.toml"])
def test_the_error_names_the_setting_and_init_creates_the_catalog(
    nova: Nova, folder: Path, monkeypatch: pytest.MonkeyPatch, layer: str
) -> None:
    option, setting = (), "NOVA_CATALOG"
    if layer == "argument":
        option, setting = ("--catalog", "here.db"), "--catalog"
    elif layer == "environment":
        monkeypatch.setenv("NOVA_CATALOG", "sqlite:///here.db")
    else:
        (folder / "pyproject.toml").write_text('[tool.nova]\ncatalog = "here.db"\n')
        setting = f"catalog in [tool.nova] of {folder}/pyproject.toml"
    refused = nova("channels", "--json", *option)
    assert refused.error["code"] == "NOVA-CATALOG-UNAVAILABLE"
    assert refused.error["next"] == f"nova init creates it; if the address is wrong, correct {setting}"
    assert nova("init", *option).code == 0 and (folder / "here.db").is_file()
    assert nova("channels", *option).code == 0


def test_a_file_without_tables_is_no_catalog(nova: Nova, folder: Path) -> None:
    (folder / "empty.db").touch()
    output = nova("--catalog", "empty.db", "token", "add", "ann", "--read", "*")
    assert output.code == 1 and f"the file {folder}/empty.db, without the tables of a catalog" in output.err


@pytest.mark.postgres
def test_a_database_without_tables_is_no_catalog(nova: Nova, postgres_catalog_url: str) -> None:
    refused = nova("--catalog", postgres_catalog_url, "token", "add", "ann", "--read", "*", "--json")
    assert refused.error["code"] == "NOVA-CATALOG-UNAVAILABLE"
    assert refused.error["found"] == "a database without the tables of a catalog"
    assert nova("--catalog", postgres_catalog_url, "init").code == 0
    assert nova("--catalog", postgres_catalog_url, "token", "add", "ann", "--read", "*").code == 0


def test_a_catalog_at_the_default_address_is_created_and_said_once(nova: Nova, folder: Path) -> None:
    first = nova("token", "add", "ann", "--read", "*")
    assert first.code == 0 and f"created the catalog {folder}/.nova/catalog.db\n" in first.err
    assert "created the catalog" not in nova("token", "add", "bob", "--read", "*").err


def test_relative_addresses_start_at_the_projects_folder(
    nova: Nova, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pyproject.toml").write_text("[tool.nova]\n")
    below = folder / "package" / "below"
    below.mkdir(parents=True)
    monkeypatch.setenv("NOVA_CATALOG", "data/catalog.db")
    monkeypatch.setenv("NOVA_WAREHOUSE", "data/warehouse")
    assert nova("init").code == 0
    monkeypatch.chdir(below)
    assert nova("token", "add", "ann", "--read", "*").code == 0
    assert len(nova("token", "list", "--json").json["tokens"]) == 1
    assert len(nova("token", "list", "--json", "--catalog", "data/catalog.db").json["tokens"]) == 1
    doctor = nova("doctor", "--json").json["checks"]
    assert str(folder / "data" / "warehouse") in next(c["says"] for c in doctor if c["name"] == "warehouse")
    assert list(below.iterdir()) == []


def test_open_says_in_the_log_that_it_created_a_catalog(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nova_assets.catalog")
    nova_api.open().close()
    nova_api.open().close()
    monkeypatch.setenv("NOVA_CATALOG", "other.db")
    nova_api.open().close()
    nova_api.open().close()
    lines = [(r.levelname, r.getMessage()) for r in caplog.records if "created the catalog" in r.getMessage()]
    assert lines == [
        ("INFO", f"created the catalog sqlite:///{folder}/.nova/catalog.db"),
        ("WARNING", f"created the catalog sqlite:///{folder}/other.db, because NOVA_CATALOG names it"),
    ]
