"""What the options of a dataset statement say, and which conditions of frozen rows are refused."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import SqlError
from nova_assets.model.schema import DataType
from nova_assets.sql.incremental.frozen_rows import FrozenRows
from nova_assets.sql.statement.dataset_options import parse_options
from nova_assets.sql.text import SqlText
from nova_assets_tests.sql.incremental.frozen_world import NOON, datasets_of

SEVERAL = "is computed from several rows, so a change could freeze a row"


def frozen_rows(condition: str) -> FrozenRows:
    text = SqlText("sql/totals.sql", f"FROZEN WHERE {condition} SELECT day, n FROM orders")
    span = parse_options(text).frozen_span
    assert span is not None
    return FrozenRows.parse(text, span)


@pytest.mark.parametrize(
    ("condition", "value", "is_frozen"),
    [
        ("day < DATE '2024-05-01'", date(2024, 4, 30), True),
        ("day < DATE '2024-05-01'", date(2024, 5, 1), False),
        ("day < CURRENT_DATE - INTERVAL 30 DAYS", date(2024, 4, 19), True),
        ("day < CURRENT_DATE - INTERVAL 30 DAYS", date(2024, 4, 20), False),
        ("day <= DATE_SUB(CURRENT_DATE(), 30)", date(2024, 4, 20), True),
        ("CURRENT_DATE > day", date(2024, 5, 19), True),
        ("day < DATE_TRUNC('MONTH', CURRENT_DATE)", date(2024, 5, 19), False),
        ("day < CURRENT_DATE AND n > 3", date(2024, 5, 19), False),
        ("day < CURRENT_DATE OR n > 3", date(2024, 5, 19), True),
        ("day IS NULL", None, True),
        ("day < CURRENT_DATE", None, False),
        ("day < CURRENT_DATE - INTERVAL 1 MONTH", date(2024, 4, 19), True),
        ("day < ADD_MONTHS(CURRENT_DATE, -1)", date(2024, 4, 20), False),
        ("day < DATE(NOW()) - 3", date(2024, 5, 20), False),
        ("day IS DISTINCT FROM DATE '2024-05-01'", date(2024, 4, 30), True),
    ],
)
def test_partitions_are_frozen_if_the_condition_is_true_for_all_their_rows(
    condition: str, value: Any, is_frozen: bool
) -> None:
    assert frozen_rows(condition).holds_for_all({"day": (value, DataType("date"))}, NOON) is is_frozen


@pytest.mark.parametrize(
    ("condition", "message", "underlined"),
    [
        ("day > CURRENT_DATE", "rows could stop being frozen as time passes", "day > CURRENT_DATE"),
        ("NOT (day < CURRENT_DATE)", "rows could stop being frozen as time passes", "day < CURRENT_DATE"),
        ("day = CURRENT_DATE", "rows could stop being frozen as time passes", "day = CURRENT_DATE"),
        ("day < DATE_SUB(CURRENT_DATE, n)", "rows could stop being frozen", "day < DATE_SUB(CURRENT_DATE, n)"),
        ("t < CURRENT_TIMESTAMP - INTERVAL 1 MONTH", "rows could stop being frozen", "t < CURRENT_TIMESTAMP"),
        ("t < NOW() - INTERVAL '1' YEAR", "rows could stop being frozen", "t < NOW"),
        ("day < TO_DATE(NOW(), 'yyyy-dd-MM')", "rows could stop being frozen", "day < TO_DATE"),
        ("n < RAND()", "rand() depends on more than the data", "RAND"),
        ("day < 'yesterday'", "'yesterday' can stand for the current day", "'yesterday'"),
        ("mine(day) = 1", "mine() is not known to be deterministic", "mine"),
        ("day IN (SELECT day FROM closed)", "FROZEN WHERE has a subquery", "day"),
        ("day < :until", "FROZEN WHERE has a variable", ":until"),
        ("o.day < '2024'", "FROZEN WHERE has a name with a dot", "o.day"),
        ("1 = 1", "FROZEN WHERE names no column of the result", "1 = 1"),
    ],
)
def test_conditions_that_do_not_say_which_rows_are_frozen_are_refused(
    condition: str, message: str, underlined: str
) -> None:
    with pytest.raises(SqlError) as error:
        frozen_rows(condition)
    assert message in error.value.what
    line, mark = str(error.value.snippet).split("\n")
    start = mark.index("^")
    assert line[start : start + mark.count("^")].startswith(underlined[: mark.count("^")]), error.value.snippet


def options_of(sql: str) -> tuple[str, str, str | None, str]:
    text = SqlText("sql/totals.sql", sql)
    options = parse_options(text)
    frozen = None if options.frozen_span is None else text.substring(options.frozen_span)
    blanked = options.blank_out(text).sql
    assert len(blanked) == len(sql)
    return options.refresh, options.freshness, frozen, " ".join(blanked.split())


def test_options_stand_between_the_head_and_the_query() -> None:
    head = "FOR t IN TIMESERIES('2024-01-01') LET day = DATE(t) INSERT OVERWRITE totals PARTITION (day)"
    sql = f"{head}\nREFRESH incremental\nFROZEN WHERE (day < '2024') AND n > 1\nFRESHNESS '10 minutes'\nSELECT 1 AS n"
    assert options_of(sql) == ("incremental", "10 minutes", "WHERE (day < '2024') AND n > 1", f"{head} SELECT 1 AS n")
    assert options_of("REFRESH FULL FRESHNESS DOWNSTREAM WITH a AS (SELECT 1) SELECT * FROM a") == (
        *("full", "downstream", None),
        "WITH a AS (SELECT 1) SELECT * FROM a",
    )
    without = "INSERT OVERWRITE refresh SELECT frozen, refresh FROM freshness WHERE frozen"
    assert options_of(without) == ("", "", None, without)
    named = "FROZEN WHERE refresh < 3 AND freshness > 2 SELECT refresh FROM x"
    assert options_of(named)[2] == "WHERE refresh < 3 AND freshness > 2"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("REFRESH full REFRESH auto SELECT 1 AS n", "REFRESH is given twice"),
        ("FROZEN WHERE SELECT 1 AS n", "FROZEN WHERE has no condition"),
        ("FRESHNESS 'soon' SELECT 1 AS n", "'soon' is not a period"),
        ("REFRESH full LATER SELECT 1 AS n", "is no option of a dataset"),
        ("REFRESH full", "options without a query"),
    ],
)
def test_incomplete_options_are_refused(sql: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse_options(SqlText("sql/totals.sql", sql))


def test_the_statement_goes_before_the_folder(tmp_path: Path) -> None:
    sql = "REFRESH full FRESHNESS '5m' SELECT day, COUNT(*) AS n FROM orders GROUP BY day"
    for _ in range(2):  # the second time from the cache
        datasets = datasets_of(tmp_path, sql, refresh="incremental", freshness="1h")
        assert datasets.refresh_decisions["totals"].requested == "full"
        [binding] = datasets
        assert binding.tasks[0].scoped.freshness == "5m"
    with pytest.raises(SqlError, match="REFRESH is full here") as error:
        datasets_of(tmp_path, sql, refresh={"totals": "auto"})
    assert "^^^" in str(error.value.snippet)


@pytest.mark.parametrize(
    ("sql", "arguments", "message"),
    [
        ("FROZEN WHERE dya < '2024' SELECT day FROM orders", {}, "the result has no column 'dya'; did you mean 'day'?"),
        (
            "FROZEN WHERE n > 3 SELECT day, COUNT(*) AS n FROM orders GROUP BY day",
            {},
            "column 'n' is computed from several rows, so a change could freeze a row",
        ),
        (
            "FROZEN WHERE t > 3 SELECT user, t FROM (SELECT user, SUM(amount) AS t FROM orders GROUP BY user)",
            {},
            SEVERAL,
        ),
        ("FROZEN WHERE r > 1 SELECT day, RANK() OVER (PARTITION BY day ORDER BY id) AS r FROM orders", {}, SEVERAL),
        ("FROZEN WHERE n > 1 SELECT DISTINCT n FROM (SELECT COUNT(*) AS n FROM orders GROUP BY day)", {}, SEVERAL),
        ("FROZEN WHERE n > 1 SELECT day, COUNT(*) AS n FROM orders GROUP BY ROLLUP (day)", {}, SEVERAL),
        ("FROZEN WHERE m > 1 SELECT id, (SELECT MAX(amount) FROM orders) AS m FROM orders", {}, SEVERAL),
        ("FROZEN WHERE id < 3 SELECT day, FIRST(id) AS id FROM orders GROUP BY day", {}, SEVERAL),
        (
            "FROZEN WHERE id < 3 SELECT day, id FROM orders QUALIFY "
            "ROW_NUMBER() OVER (PARTITION BY day ORDER BY user) = 1",
            {},
            "column 'id' may differ each time it is computed",
        ),
        (
            "FROZEN WHERE w > 3 SELECT w FROM (SELECT day, SUM(weight) AS w FROM orders GROUP BY day)",
            {},
            SEVERAL,
        ),
        ("FROZEN WHERE day < '2024' SELECT day FROM orders", {"refresh": "full"}, "FROZEN WHERE in a dataset that is"),
        ("FROZEN WHERE day < '2024' SELECT day FROM orders LIMIT 3", {}, "FROZEN WHERE in a query with LIMIT"),
    ],
)
def test_datasets_whose_frozen_rows_are_not_fixed_are_refused(
    tmp_path: Path, sql: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(SqlError) as error:
        datasets_of(tmp_path, sql, **arguments)
    assert message in error.value.what
    assert "^" in str(error.value.snippet)


def test_a_task_in_python_takes_frozen_rows_only() -> None:
    with pytest.raises(SqlError, match="REFRESH and FRESHNESS belong to datasets"):
        nova.incremental("t", "REFRESH full SELECT 1 AS n", produces=nova.delta("totals"))


@pytest.mark.parametrize(
    "sql",
    [
        "FROZEN WHERE y < 2020 SELECT day, YEAR(day) AS y, SUM(amount) AS s FROM orders GROUP BY day",
        "FROZEN WHERE d < DATE '2024-01-01' SELECT day, day AS d, SUM(amount) AS s FROM orders GROUP BY day",
        "FROZEN WHERE region = 'eu' AND day IS NOT DISTINCT FROM DATE '2024-01-01' "
        "SELECT day, 'eu' AS region, COUNT(*) AS n FROM orders GROUP BY day",
        "FROZEN WHERE day < DATE '2024-01-01' SELECT a.day, b.id FROM orders a LEFT JOIN orders b ON a.id = b.user",
        "FROZEN WHERE day < DATE '2024-01-01' SELECT day FROM orders UNION SELECT day FROM orders",
    ],
)
def test_columns_of_single_rows_and_groups_say_what_is_frozen(tmp_path: Path, sql: str) -> None:
    assert datasets_of(tmp_path, sql).refresh_decisions["totals"].is_incremental
