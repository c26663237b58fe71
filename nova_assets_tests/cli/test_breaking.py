"""``nova check``, over a project in a folder that changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_assets_tests.cli.conftest import CommandOutput, Nova
from nova_assets_tests.effort import EXHAUSTIVE

pytestmark = pytest.mark.slow

PROJECT = """
import nova_assets as nova

orders = nova.Channel("orders", schema="id bigint, customer string, price decimal(10,2), day date")
counts = nova.Channel("counts", schema="customer string")

@nova.task(consumes=nova.all("daily"), produces=nova.base("counts"))
def count(daily):
    return daily

made = nova.datasets("sql", channels=[orders])
project = nova.Project([*made, *PYTHON])
"""
DAILY = "SELECT day, customer, SUM(price) AS total, COUNT(*) AS orders FROM orders GROUP BY day, customer\n"
BEST = "-- owner: crm@example.org\nSELECT customer, MAX(total) AS most\nFROM daily\nGROUP BY customer\n"

BOUND = '[nova.bind(nova.Workflowette("w", [count]), channels={"daily": made.channel("daily"), "counts": counts})]'

NOT_ASKED = "Spark has not analysed the queries: nova inferred columns and types by its own rules\n"


@pytest.fixture
def project(folder: Path) -> Path:
    """A project with two datasets."""
    (folder / "pyproject.toml").write_text('[tool.nova]\nproject = "shop:project"\n')
    (folder / "shop.py").write_text(PROJECT.replace("PYTHON", "[]"))
    (folder / "sql").mkdir()
    (folder / "sql" / "daily.sql").write_text(DAILY)
    (folder / "sql" / "best.sql").write_text(BEST)
    return folder


@pytest.fixture
def deployed(project: Path, nova_forked: Nova) -> Path:
    assert nova_forked("init").code == 0
    return project


def test_before_anything_is_deployed_there_is_nothing_to_compare_with(project: Path, nova_forked: Nova) -> None:
    output = nova_forked("check", "--no-spark")
    assert (output.code, output.out) == (
        0,
        f"no dataset is deployed yet, so there is nothing to compare with\n{NOT_ASKED}",
    )
    assert not (project / ".nova").exists()


def test_nothing_has_changed(deployed: Path, nova_forked: Nova) -> None:
    output = nova_forked("check", "--no-spark")
    assert (output.code, output.out) == (0, f"no changes\n{NOT_ASKED}")


def test_what_stored_rows_cannot_become_is_refused_as_by_init(deployed: Path, nova_forked: Nova) -> None:
    (deployed / "rows.json").write_text('{"id": 1, "customer": "ann", "price": "1.50", "day": "2024-01-01"}\n')
    assert nova_forked("insert", "orders", "rows.json").code == 0
    code = (deployed / "shop.py").read_text()
    (deployed / "shop.py").write_text(code.replace("id bigint", "id int"))
    checked = nova_forked("check", "--no-spark")
    assert checked.code == 1
    assert "channel 'orders': column id is bigint and cannot become int" in checked.out
    assert "column id is bigint and cannot become int" in nova_forked("init", "--replace").err
    [refused] = nova_forked("check", "--no-spark", "--json").json["refused"].values()
    assert refused["code"] == "NOVA-DEFINITION"


def test_a_renamed_column_of_rows_is_taken_with_a_base(deployed: Path, nova_forked: Nova) -> None:
    """What nova check and nova init say leads to the next step, and both say what it means for whom."""
    (deployed / "shop.py").write_text(PROJECT.replace("PYTHON", BOUND))
    assert nova_forked("init", "--replace").code == 0
    (deployed / "rows.json").write_text('{"day": "2024-01-01", "customer": "ann", "total": "1.50", "orders": 1}\n')
    assert nova_forked("insert", "daily", "rows.json").code == 0
    (deployed / "orders.json").write_text('{"id": 1, "customer": "ann", "price": "1.50", "day": "2024-01-01"}\n')
    assert nova_forked("insert", "orders", "orders.json").code == 0
    (deployed / "sql" / "daily.sql").write_text(DAILY.replace("AS total", "AS revenue"))
    (deployed / "sql" / "best.sql").write_text(BEST.replace("MAX(total)", "MAX(revenue)"))
    effect = (
        "daily: total ends; revenue decimal(20,2) begins. The next execution computes all rows, and replaces the "
        "stored rows by a base. Until then, the present columns hold.\n"
        "  best computes its whole query once\n"
        "  w reads the new columns\n"
        "  store.read('daily', since=...) gets the difference in the new columns: rows from before lack the ended "
        "columns, and have null in those that begin\n"
    )
    checked = nova_forked("check", "--no-spark")
    assert f"{effect}next: nova init --replace, then nova tick\n" in checked.out
    by_base = {
        "dropped": ["total"],
        "added": [{"name": "revenue", "type": "decimal(20,2)"}],
        "readers": ["best", "w"],
    }
    assert nova_forked("check", "--no-spark", "--json").json["by_base"] == {"daily": by_base}
    refused = nova_forked("init")
    assert refused.code == 1 and "nova init --replace" in refused.err
    planned = nova_forked("init", "--replace", "--dry-run")
    assert planned.code == 0 and planned.out.endswith(effect)
    replaced = nova_forked("init", "--replace", "--json")
    assert replaced.code == 0
    assert [c["by_base"] for c in replaced.json["channels"] if c["name"] == "daily"] == [by_base]
    assert '"total"' in nova_forked("read", "daily", "--json").out
    due = [(r["dataset"], r["why"]) for r in nova_forked("tick", "--dry-run", "--json").json["run"]]
    assert due == [("daily", "dirty")]


def test_a_dropped_column_is_shown_where_it_is_named_and_whom_to_ask(deployed: Path, nova_forked: Nova) -> None:
    (deployed / "sql" / "daily.sql").write_text(DAILY.replace("SUM(price) AS total, ", ""))
    output = nova_forked("check", "--no-spark")
    assert output.code == 1
    assert (
        output.out
        == """\
daily.total is dropped, which breaks 1 dataset
  sql/best.sql:2:22  best.most  owner: crm@example.org
      2 | SELECT customer, MAX(total) AS most
        |                      ^^^^^

1 change, 1 of them breaking
"""
        + NOT_ASKED
    )
    found = nova_forked("check", "--no-spark", "--json").json
    assert found["breaking"] and found["changes"][0]["breaks"] == [
        {
            "dataset": "best",
            "columns": ["most"],
            "file": "sql/best.sql",
            "line": 2,
            "column": 22,
            "owner": "crm@example.org",
        }
    ]


def test_what_came_breaks_nothing(deployed: Path, nova_forked: Nova) -> None:
    (deployed / "sql" / "daily.sql").write_text(
        DAILY.replace("COUNT(*) AS orders", "COUNT(*) AS orders, MIN(id) AS one")
    )
    output = nova_forked("check", "--no-spark")
    assert (output.code, output.out) == (0, f"daily.one is added\n1 change, none of them breaking\n{NOT_ASKED}")


def test_partitions_that_are_cut_otherwise(deployed: Path, nova_forked: Nova) -> None:
    (deployed / "sql" / "best.sql").write_text(
        "FOR t IN TIMESERIES(last => 3) LET d = DATE(t) INSERT OVERWRITE best PARTITION (d)\n"
        "SELECT customer, MAX(total) AS most FROM daily WHERE daily.day = :d GROUP BY customer"
    )
    output = nova_forked("check", "--no-spark")
    assert output.code == 1
    assert "best is partitioned: (none) → d (daily): its partitions have to be computed again\n" in output.out


def test_tasks_in_python_are_named_for_nothing_tells_what_they_read(deployed: Path, nova_forked: Nova) -> None:
    (deployed / "shop.py").write_text(PROJECT.replace("PYTHON", BOUND))
    assert nova_forked("init").code == 0, nova_forked("init").err
    (deployed / "sql" / "daily.sql").write_text(DAILY.replace("SUM(price)", "CAST(SUM(price) AS STRING)"))
    output = nova_forked("check", "--no-spark")
    assert output.code == 1
    assert "daily.total is retyped: decimal(20,2) → string, which breaks 1 dataset" in output.out
    assert "also read in Python by bindings whose columns are unknown: w" in output.out


def test_what_is_wrong_by_itself_is_an_error(deployed: Path, nova_forked: Nova) -> None:
    (deployed / "sql" / "daily.sql").write_text("SELECT colour FROM orders")
    output = nova_forked("check", "--no-spark")
    assert output.code == 1 and output.out == ""
    assert "sql/daily.sql:1:8: there is no column 'colour'" in output.err and "^^^^^^" in output.err


def test_a_revision(project: Path, nova_forked: Nova) -> None:
    git = ("git", "-c", "user.name=n", "-c", "user.email=n@example.org")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *command], cwd=project, check=True)
    (project / "sql" / "daily.sql").write_text(DAILY.replace("AS total", "AS revenue"))
    output = nova_forked("check", "--no-spark", "--against", "HEAD")
    assert output.code == 1, output.err
    assert output.out.startswith("daily.total is renamed: total → revenue, which breaks 1 dataset\n  sql/best.sql:2:22")
    assert "there is no column 'total'" in nova_forked("check", "--no-spark").err, (
        "nothing is deployed: it is wrong by itself"
    )
    (project / "sql" / "best.sql").write_text(BEST.replace("total", "revenue"))
    output = nova_forked("check", "--no-spark", "--against", "HEAD")
    assert output.code == 0, "it is adapted in the same change"

    output = nova_forked("check", "--no-spark", "--against", "v9")
    assert output.code == 1 and "the repository has no revision v9" in output.err
    (project / "shop.py").write_text("raise RuntimeError('half done')")
    subprocess.run([*git, "commit", "-qam", "second"], cwd=project, check=True)
    (project / "shop.py").write_text(PROJECT.replace("PYTHON", "[]"))
    output = nova_forked("check", "--no-spark", "--against", "HEAD")
    assert output.code == 1
    assert "the project cannot be loaded at revision HEAD" in output.err and "half done" in output.err


def test_a_folder_that_is_no_repository(project: Path, nova_forked: Nova) -> None:
    output = nova_forked("check", "--no-spark", "--against", "main", GIT_CEILING_DIRECTORIES=str(project.parent))
    assert output.code == 1
    assert "git rev-parse failed in" in output.err


@pytest.fixture(params=["in process", pytest.param("processes", marks=EXHAUSTIVE)])
def nova_check(
    request: pytest.FixtureRequest, nova: Nova, nova_process: Nova, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Nova]:
    """``nova check`` with a cache: with the Spark session of the tests, or as people call it."""
    cache = str(tmp_path / "cache")

    def check(*arguments: object) -> CommandOutput:
        if request.param == "processes":
            return nova_process("check", *arguments, NOVA_CACHE=cache)
        sys.modules.pop("shop", None)  # a new process reads the project again
        return nova("check", *arguments)

    monkeypatch.setenv("NOVA_CACHE", cache)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield check
    sys.modules.pop("shop", None)


@pytest.mark.spark
def test_spark_confirms_each_dataset_once(project: Path, nova_check: Nova) -> None:
    first = nova_check()
    assert first.code == 0 and "Spark confirms 2 datasets" in first.out, first
    assert not (project / ".nova" / "catalog.db").exists()
    assert sorted(nova_check("--json").json["spark"]["known"]) == ["best", "daily"]
    (project / "sql" / "best.sql").write_text(BEST.replace("MAX(total)", "MIN(total)"))
    again = nova_check("--json").json["spark"]
    assert (again["asked"], again["known"]) == (["best"], ["daily"]), "what has changed is asked again, and that alone"


@pytest.mark.spark
def test_what_spark_refuses_is_shown_with_its_place(project: Path, nova_process: Nova, tmp_path: Path) -> None:
    (project / "sql" / "best.sql").write_text("SELECT customer,\n  ARRAY_CONTAINS(total, total) AS most FROM daily\n")
    output = nova_process("check", NOVA_CACHE=str(tmp_path / "cache"))
    assert output.code == 1 and "Spark confirms 1 dataset" in output.out, output
    assert "best.sql:2:3: Spark rejects the query: [DATATYPE_MISMATCH" in output.out, output.out
    assert "^^^^" in output.out


def test_where_spark_cannot_be_started_the_own_rules_answer_and_say_so(
    project: Path, nova_process: Nova, tmp_path: Path
) -> None:
    with (project / "pyproject.toml").open("a") as settings:
        settings.write('spark_config = {"spark.driver.memory" = "1k"}\n')
    output = nova_process("check", NOVA_CACHE=str(tmp_path / "cache"))
    assert output.code == 0 and "Spark has not analysed daily: " in output.out, output
    assert "Spark has not analysed best: " in output.out and "Spark confirms" not in output.out
