"""``nova test`` and ``check_sql``: the test cases of datasets in SQL."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from nova_assets.errors import DefinitionError
from nova_assets.sql.incremental import accumulated_delta
from nova_assets.testing import check_sql
from nova_assets.testing.sql_cases import read_sql_cases
from nova_assets_tests.cli.conftest import Nova

TOTALS = "SELECT user, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY user"
DAYS = """FOR t IN TIMESERIES('2024-01-01') LET d = DATE_FORMAT(t, 'yyyy-MM-dd')
INSERT OVERWRITE TABLE days PARTITION (day = d)
SELECT COUNT(*) AS n FROM visits WHERE visits.day = :d"""
PIPELINE = """
import nova_assets as nova
orders = nova.Channel("orders", merge=nova.Upsert(key="id"), schema="id int, user int, amount decimal(10,2)")
visits = nova.Channel("visits", schema="user int, day string", partitions=nova.daily("day", start="2024-01-01"))
datasets = nova.datasets("sql", channels=[orders, visits])
project = nova.Project(datasets)
"""
RIGHT = """
- name: amounts are added up
  rows:
    orders:
      - {id: 1, user: 7, amount: 10.5}
      - {id: 2, user: 7, amount: -4}
      - {id: 3, user: 8, amount: 1}
  expected:
    - {user: 8, n: 1, total: 1}
    - {user: 7, n: 2, total: 6.5}
- {name: nothing gives nothing, expected: []}
"""
WRONG = "- {name: one total, rows: {orders: [{id: 1, user: 7}]}, expected: [{user: 7, n: 2}]}"
A_DAY = """
- name: another day does not count
  partition: {day: '2024-01-02'}
  rows: {visits: [{user: 1, day: '2024-01-02'}, {user: 1, day: '2024-01-03'}]}
  expected: [{day: '2024-01-02', n: 1}]
"""


@pytest.fixture
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (folder / "sql").mkdir()
    (folder / "sql" / "totals.sql").write_text(TOTALS)
    (folder / "sql" / "days.sql").write_text(DAYS)
    (folder / "cases_pipeline.py").write_text(PIPELINE)
    monkeypatch.syspath_prepend(str(folder))

    def with_cases(**cases: str) -> str:
        for dataset, text in cases.items():
            (folder / "sql" / f"{dataset}.test.yaml").write_text(text)
        return "cases_pipeline:project"

    return with_cases


@pytest.mark.spark
def test_cases_run_in_full_and_in_batches(nova: Nova, project: Any) -> None:
    output = nova("test", "--project", project(totals=RIGHT, days=A_DAY), "--json")
    assert output.code == 0, output
    tests = {t["test"]: t for t in output.json["tests"]}
    assert {name: (t["dataset"], t["passed"], t["maintained"]) for name, t in tests.items()} == {
        "amounts are added up": ("totals", True, True),
        "nothing gives nothing": ("totals", True, False),
        "another day does not count": ("days", True, True),
    }
    text = nova("test", "totals", "--project", project(totals=RIGHT + WRONG))
    assert text.code == 1
    assert "3 cases, 1 failed" in text.out and "also in batches" in text.out
    assert "dataset 'totals' has other rows than expected: extra" in text.out


@pytest.mark.spark
def test_a_query_that_is_maintained_wrongly_fails(spark: Any, project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: of several changed rows of a group, only one counts."""
    project()
    import cases_pipeline  # type: ignore[import-not-found]

    rows = [{"id": n, "user": n % 2, "amount": n} for n in range(6)]
    expected = [{"user": 0, "n": 3, "total": 6}, {"user": 1, "n": 3, "total": 9}]
    check_sql(cases_pipeline.datasets, "totals", {"orders": rows}, expected, spark=spark)
    right = accumulated_delta.select_group_changes
    wrong = lambda *arguments, **named: right(*arguments, **named).replace("SUM(IF(", "MAX(IF(")  # noqa: E731
    monkeypatch.setattr(accumulated_delta, "select_group_changes", wrong)
    with pytest.raises(AssertionError, match="totals"):
        check_sql(cases_pipeline.datasets, "totals", {"orders": rows}, expected, spark=spark)


def test_wrong_use_is_explained(nova: Nova, project: Any, folder: Path) -> None:
    name = project()
    nothing = nova("test", "--project", name)
    assert nothing.code == 0 and "write NAME.test.yaml beside NAME.sql" in nothing.out
    assert "has no test cases" in nova("test", "totals", "--project", name).err
    assert "did you mean 'totals'" in nova("test", "total", "--project", name).err
    project(totals="- {name: x, row: {}, expected: []}")
    assert "case 1 has the key 'row'; did you mean 'rows'" in nova("test", "--project", name).err
    project(totals="- {name: x, rows: {order: [{id: 1}]}, expected: []}")
    assert "does not read 'order'; did you mean 'orders'" in nova("test", "--project", name).out
    project(totals="- {name: x, partition: {day: 1}, expected: []}")
    assert "is partitioned by no column" in nova("test", "--project", name).out


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "cannot be read as YAML"),
        ("a: 1", "it is no list"),
        ("- 1", "case 1 is no mapping"),
        ("- {expected: []}", "case 1 has no name"),
        ("- {name: x, rows: [1], expected: []}", "'rows' of case 1"),
        ("- {name: x}", "'expected' of case 1"),
        ("- {name: x, expected: [], partition: 1}", "'partition' of case 1"),
        ("- {name: x, expected: [], partition: {1: 2}}", "'partition' of case 1"),
        ("- {name: x, expected: [{k: 1, k: 2}]}", "the key 'k' is repeated"),
        ("- !!python/object/apply:os.system ['true']", "cannot be read as YAML"),
    ],
)
def test_files_of_another_form_are_refused(folder: Path, text: str, problem: str) -> None:
    file = folder / "x.test.yaml"
    file.write_text(text)
    with pytest.raises(DefinitionError, match=problem):
        read_sql_cases(file)


def test_values_of_yaml(folder: Path) -> None:
    file = folder / "x.test.yaml"
    file.write_text("- {name: x, expected: [{d: 2024-01-02, t: 2024-01-02T03:04:05Z, n: null, e: 'a'}]}")
    [case] = read_sql_cases(file)
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert case.expected == [{"d": dt.date(2024, 1, 2), "t": moment, "n": None, "e": "a"}]
