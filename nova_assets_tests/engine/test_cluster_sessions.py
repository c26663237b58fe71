"""Sessions on a cluster, as far as they can be tried without a cluster (``scenarios/test_cluster.py`` has one)."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

from nova_assets.engine.session.cluster import check_workers_share_warehouse, cluster_python_environment
from nova_assets.engine.session.shipped_code import own_loaded_modules, ship_function, zip_of_module
from nova_assets.engine.session.spark_config import spark_config
from nova_assets.engine.session.spark_session import create_session
from nova_assets.errors import EngineUnavailable, SettingsError
from nova_assets.settings import load_settings
from nova_assets_tests.cluster import make_worker_python


@pytest.mark.parametrize("address", ["spark://master:7077", "spark://10.0.0.1:7077,b:7077"])
def test_a_master_is_a_place_of_spark(address: str, tmp_path: Path) -> None:
    assert load_settings(tmp_path, spark=address).spark == address
    config = spark_config(address)
    assert config["spark.master"] == address and "spark.driver.host" not in config


@pytest.mark.parametrize("address", ["spark://master", "spark://a:7077/x", "spark://u:p@a:7077", "yarn", "spark://"])
def test_other_addresses_are_refused_with_what_is_expected(address: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="spark://host:port"):
        load_settings(tmp_path, spark=address)


def test_the_python_of_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(**settings: str) -> str:
        with cluster_python_environment({name.replace("_", "."): value for name, value in settings.items()}):
            return os.environ["PYSPARK_PYTHON"]

    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert chosen() == "python3"
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/a/python")
    assert chosen() == "/opt/a/python"
    assert chosen(spark_pyspark_python="/opt/b/python") == "/opt/b/python"
    assert os.environ["PYSPARK_PYTHON"] == "/opt/a/python"


def make_package(root: Path, name: str, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    (root / name / "part").mkdir(parents=True)
    for path, text in {"__init__.py": "", "part/__init__.py": "ANSWER = 42", "data.txt": "Oslo", **files}.items():
        (root / name / path).write_text(text)
    monkeypatch.syspath_prepend(str(root))
    importlib.import_module(f"{name}.part")


def test_a_package_is_imported_from_its_zip_file_by_another_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_package(tmp_path, "nova_test_shop", monkeypatch)
    assert "nova_test_shop" in own_loaded_modules()
    assert not {"os", "pytest", "pyarrow", "__main__"} & set(own_loaded_modules())
    archive = zip_of_module("nova_test_shop")
    assert archive is not None and zip_of_module("nova_test_shop") == archive
    assert not [n for n in zipfile.ZipFile(archive).namelist() if "__pycache__" in n]
    program = (
        "from importlib.resources import files; import nova_test_shop.part as p; "
        "print(p.ANSWER, files('nova_test_shop').joinpath('data.txt').read_text())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(archive)}, cwd="/", capture_output=True, text=True
    )
    assert done.stdout == "42 Oslo\n", done.stderr


def test_a_package_with_compiled_modules_is_left_out_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_package(tmp_path, "nova_test_fast", monkeypatch, **{"part/fast.so": "x"})
    assert zip_of_module("nova_test_fast") is None
    assert "nova_test_fast" in caplog.text and "spark.archives" in caplog.text


SHOP = {
    "nova_test_till/__init__.py": "",
    "nova_test_till/cities.txt": "Bonn\nOslo",
    "nova_test_till/cleaning.py": """
from importlib.resources import files

import nova_assets

CITIES = files("nova_test_till").joinpath("cities.txt").read_text().split()

def city_of(text):
    return next(c for c in CITIES if c.lower() == text.strip().lower())
""",
    "nova_test_pipeline.py": """
import dagster  # which the workers lack

import nova_assets as nova
from nova_test_till import cleaning

orders = nova.Channel("orders", schema="city string")

def clean_city(text):
    return cleaning.city_of(text), nova.__file__, cleaning.__file__

@nova.task(consumes=nova.new(orders), produces=nova.delta("cleaned"))
def clean(orders):
    return orders.rdd.map(clean_city)
""",
}
WORKER = """
import pickle, sys
sys.path[:0] = sys.argv[1:]
print(*pickle.load(sys.stdin.buffer)(" bonn"))
"""


class ClusterContext:
    """Stands for the Spark context of a session on a cluster. It collects what is shipped to the workers."""

    def __init__(self, master: str) -> None:
        self.master = master
        self.environment: dict[str, str] = {}
        self.archives: list[str] = []

    def addPyFile(self, path: str) -> None:  # Spark's name for it
        self.archives.append(path)


@pytest.mark.slow
def test_functions_run_in_a_python_that_lacks_the_project_and_this_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = make_worker_python(tmp_path / "python")
    (tmp_path / "project" / "nova_test_till").mkdir(parents=True)
    for name, text in SHOP.items():
        (tmp_path / "project" / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    pipeline = importlib.import_module("nova_test_pipeline")

    context = ClusterContext("spark://a:7077")
    session: Any = create_session(lambda _: SimpleNamespace(sparkContext=context), context.master, None, {})
    shipped = {Path(archive).name.partition("-")[0] for archive in context.archives}
    assert {"nova_assets", "sqlglot"} <= shipped, "whether this package is installed or lies in the project"
    ship_function(pipeline.clean.function, session)
    pickled = cloudpickle.dumps(pipeline.clean_city)

    def run_in_worker(*archives: str) -> subprocess.CompletedProcess[bytes]:
        command = [str(python), "-c", WORKER, *archives]
        return subprocess.run(command, input=pickled, env={}, cwd=tmp_path / "python", capture_output=True)

    assert b"No module named 'nova_" in run_in_worker().stderr
    done = run_in_worker(*context.archives)
    assert done.returncode == 0, done.stderr.decode()
    city, package, module = done.stdout.decode().split()
    assert city == "Bonn" and ".zip/nova_assets" in package and ".zip/nova_test_till" in module


class UnsharedFolder:
    """Stands for a session of which only some workers write into the folder of this machine."""

    sparkContext = SimpleNamespace(master="spark://a:7077", defaultParallelism=2)

    def __init__(self, arriving: int) -> None:
        self.arriving = arriving

    def range(self, *_: int) -> Any:
        return SimpleNamespace(write=SimpleNamespace(parquet=self.write))

    def write(self, address: str) -> None:
        folder = Path(address.removeprefix("file://"))
        folder.mkdir()
        for n in range(self.arriving):
            (folder / f"part-{n}").touch()


def test_a_folder_that_workers_do_not_share_is_refused(tmp_path: Path) -> None:
    check_workers_share_warehouse(str(tmp_path), UnsharedFolder(4))  # type: ignore[arg-type]
    with pytest.raises(EngineUnavailable, match="2 of 4 files") as refused:
        check_workers_share_warehouse(str(tmp_path), UnsharedFolder(2))  # type: ignore[arg-type]
    assert "s3://" in str(refused.value)
    assert not list(tmp_path.iterdir())
