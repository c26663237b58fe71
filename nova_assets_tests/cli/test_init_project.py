"""``nova init NAME``: a project that runs, laid out where nothing is overwritten."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nova_assets.cli.init import DEFINED_PROJECTS
from nova_assets_tests.cli.conftest import Nova
from nova_assets_tests.effort import by_hand

TEMPLATES = list(DEFINED_PROJECTS)
ROOT = Path(__file__).resolve().parents[2]
TINY = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}
"""Settings of Spark for a few rows."""


def files_below(folder: Path) -> dict[str, str]:
    return {str(f.relative_to(folder)): f.read_text() for f in folder.rglob("*") if f.is_file()}


@pytest.mark.parametrize("template", TEMPLATES)
def test_each_template_has_a_channel_sql_python_data_a_test_and_a_readme(
    nova: Nova, folder: Path, template: str
) -> None:
    planned = nova("init", "my-shop", "--template", template, "--dry-run", "--json")
    assert planned.code == 0 and list(folder.iterdir()) == []
    output = nova("init", "my-shop", "--template", template)
    assert output.code == 0 and "my-shop: laid out" in "".join(output.out.split("\n"))
    files = files_below(folder / "my-shop")
    assert sorted(files) == planned.json["files"]
    assert {"README.md", "pyproject.toml", ".gitignore", "data/orders/2026-01-01.csv", "tests/test_my_shop.py"} < set(
        files
    )
    assert "src/my_shop/defs/__init__.py" in files
    assert any(f.endswith(".sql") for f in files)
    assert any("nova.task" in t or "nova_asset" in t for t in files.values()), "an asset in Python"
    assert "nova_assets.testing" in files["tests/test_my_shop.py"]
    assert "\n    python -m my_shop\n    pytest\n" in files["README.md"]
    settings = tomllib.loads(files["pyproject.toml"])
    assert settings["tool"]["nova"]["project"].startswith("my_shop.")
    assert settings["tool"]["dg"]["project"]["root_module"] == "my_shop"
    for name, text in files.items():
        assert "{{" not in text and "NAME" not in name
        if name.endswith(".py"):
            compile(text, name, "exec")
        if name.endswith(".yaml"):
            assert yaml.safe_load(text)["type"].startswith("nova_assets.components.")


def test_the_default_is_dagster(nova: Nova) -> None:
    assert nova("init", "shop", "--json").json["template"] == "dagster"


@pytest.mark.parametrize("existing", ["shop/README.md", "shop/src/shop/defs/orders/defs.yaml", "shop/src", "shop"])
def test_what_exists_is_refused_before_anything_is_written(nova: Nova, folder: Path, existing: str) -> None:
    (folder / existing).parent.mkdir(parents=True, exist_ok=True)
    (folder / existing).write_text("mine")
    for arguments in ([], ["--dry-run"]):
        refused = nova("init", "shop", *arguments)
        assert refused.code == 1 and "nova init overwrites nothing" in refused.err
        assert Path(existing).name in refused.err
    assert files_below(folder) == {existing: "mine"}


def test_a_folder_with_other_files_may_exist(nova: Nova, folder: Path) -> None:
    (folder / "shop" / ".git").mkdir(parents=True)
    assert nova("init", "shop").code == 0
    assert nova("init", "shop").code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["3shops"], 1, "'3shops' cannot name a project"),
        (["a/b"], 1, "cannot name a project"),
        (["Shop"], 1, "lower-case letters"),
        (["json"], 1, "nova init my-json"),
        (["pyspark"], 1, "another Python package has this name"),
        (["class"], 1, "cannot name a project"),
        (["shop", "--template", "pyhton"], 1, "did you mean 'python'?"),
        (["shop", "--replace"], 2, "a new project has none"),
        (["--template", "sql"], 2, "--template needs NAME"),
    ],
)
def test_wrong_arguments_write_nothing(nova: Nova, folder: Path, arguments: list[str], code: int, message: str) -> None:
    refused = nova("init", *arguments)
    assert refused.code == code and message in refused.err
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """The environment of a project that is installed: its sources and nova are on the path."""
    bin_folder = str(Path(sys.executable).parent)
    yield {
        **{name: value for name, value in os.environ.items() if not name.startswith(("NOVA_", "DAGSTER_", "PYTEST_"))},
        "PYTHONPATH": f"src{os.pathsep}{ROOT}",
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONWARNINGS": "ignore",
        "NOVA_SPARK_CONFIG": ";".join(f"{name}={value}" for name, value in TINY.items()),
    }


def run(folder: Path, environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


@pytest.mark.spark
@pytest.mark.dagster
@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.parametrize("template", [t if t == "dagster" else pytest.param(t, marks=[by_hand]) for t in TEMPLATES])
def test_the_two_commands_of_the_project_run(
    nova: Nova, folder: Path, template: str, environment: dict[str, str]
) -> None:
    nova("init", "shop", "--template", template)
    output = run(folder / "shop", environment, sys.executable, "-m", "shop")
    assert "files taken: 1" in output
    assert [line.split() for line in output.splitlines() if line.strip().startswith("Lyon")] == [["Lyon", "39.50", "2"]]
    assert " passed" in run(
        folder / "shop", environment, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"
    )


@pytest.mark.spark
@pytest.mark.dagster
@pytest.mark.long
def test_dg_checks_lists_and_launches_the_project(nova: Nova, folder: Path, environment: dict[str, str]) -> None:
    """``dg launch`` of ``dg``'s own process, on orders that another process has received."""
    nova("init", "shop")
    shop = folder / "shop"
    assert "All definitions loaded successfully." in run(shop, environment, "dg", "check", "defs")
    listed = run(shop, environment, "dg", "list", "defs", "--json")
    found = yaml.safe_load(listed)
    assert {a["asset_key"]: a["source"] for a in found["assets"]} == {
        "orders": "src/shop/defs/orders/defs.yaml:2",
        "orders_quarantine": "src/shop/defs/orders/defs.yaml:2",
        "totals": "src/shop/defs/totals/totals.sql:1",
        "large_orders": "src/shop/defs/large_orders/assets.py:11",
    }
    sensors = [s["name"] for s in found["sensors"]]
    assert len(sensors) == len(set(sensors)) and "nova_upkeep_sensor" in sensors
    run(shop, environment, "nova", "receive", "orders")
    run(shop, environment, "dg", "launch", "--assets", "totals,large_orders")
    rows = yaml.safe_load(run(shop, environment, "nova", "read", "large_orders", "--json"))["rows"]
    assert sorted(row["id"] for row in rows) == [2, 4]
