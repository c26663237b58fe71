"""Views of tables that other systems keep: CREATE EXTERNAL TABLE among datasets."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.errors import DefinitionError, SqlError
from nova_assets.model.partition_rule import InputState
from nova_assets.sql.datasets.declarations import DatasetDeclarations
from nova_assets.sql.datasets.graph_builder import build_graph
from nova_assets.sql.datasets.required_reads import RequiredRead
from nova_assets.sql.text import SqlText

NOW = datetime(2022, 3, 31, 12, tzinfo=UTC)

TICKETS = SqlText(
    "tickets.sql",
    """\
-- What was sold, as the tills say it.
-- owner: tills@example.org
FOR t IN TIMESERIES(last => 2), store IN ('Detroit', 'Paris')
LET day = DATE_FORMAT(t, 'yyyy-MM-dd')
CREATE EXTERNAL TABLE tickets (
  product STRING COMMENT 'its number', price DECIMAL(10,2) NOT NULL, day STRING, store STRING
)
USING parquet
PARTITIONED BY (day, store)
LOCATION '/data/tickets'
TBLPROPERTIES ('done' = '_SUCCESS')
""",
)
PLAIN = SqlText(
    "plain.sql",
    "CREATE EXTERNAL TABLE plain (n INT) PARTITIONED BY (day STRING) STORED AS ORC LOCATION 's3://lake/plain'",
)
SALES = SqlText(
    "sales.sql",
    """
    FOR t IN TIMESERIES(last => 2), store IN ('Detroit', 'Paris')
    LET day = DATE_FORMAT(t, 'yyyy-MM-dd')
    INSERT OVERWRITE sales PARTITION (day, store)
    SELECT product, SUM(price) AS revenue FROM tickets
    WHERE tickets.day = :day AND tickets.store = :store GROUP BY product
    """,
)


def test_a_view_is_a_channel_that_others_write() -> None:
    found = build_graph([SALES, TICKETS, PLAIN])
    assert list(found.datasets) == ["sales"]
    channel = found.channels["tickets"]
    assert str(channel.schema) == "product string, price decimal(10,2), day string, store string"
    assert channel.external == nova.external("/data/tickets", success_file="_SUCCESS")
    assert channel.description == "What was sold, as the tills say it."
    assert channel.owners == ("tills@example.org",)
    assert [(d.column, d.kind, d.keep) for d in channel.partitions] == [
        ("day", "daily", None),
        ("store", "static", None),
    ]
    plain = found.channels["plain"]
    assert str(plain.schema) == "n int, day string" and plain.partition_columns == ("day",)
    assert plain.external == nova.external("s3://lake/plain", format="orc")


def test_its_scopes_say_which_partitions_there_should_be() -> None:
    found = build_graph([SALES, TICKETS])
    assert list(found.expected_partitions("tickets", NOW).names) == [
        "day=2022-03-30/store=Detroit",
        "day=2022-03-30/store=Paris",
        "day=2022-03-31/store=Detroit",
        "day=2022-03-31/store=Paris",
    ]
    assert found.required_reads("sales", "day=2022-03-31/store=Paris", NOW) == (
        RequiredRead("tickets", "all", ("day=2022-03-31/store=Paris",)),
    )


def test_days_written_in_a_way_of_their_own() -> None:
    """What no calendar of ours writes follows from the scopes all the same."""
    view = TICKETS.sql.replace("yyyy-MM-dd", "yyyyMMdd")
    sales = SALES.sql.replace("yyyy-MM-dd", "yyyyMMdd")
    found = build_graph([SqlText("tickets.sql", view), SqlText("sales.sql", sales)])
    assert found.expected_partitions("tickets", NOW).names[0] == "day=20220330/store=Detroit"
    assert found.required_reads("sales", "day=20220331/store=Paris", NOW)[0].partitions == ("day=20220331/store=Paris",)


def test_without_scopes_there_should_be_what_there_is() -> None:
    found = build_graph(
        [PLAIN, SqlText("all_of_it.sql", "SELECT SUM(n) AS n FROM plain WHERE plain.day >= '2022-03-30'")]
    )
    there = ["day=2022-03-29", "day=2022-03-30", "day=2022-03-31"]
    assert found.required_reads("all_of_it", "", NOW, InputState(lambda name: there))[0].partitions == tuple(there[1:])


def test_it_is_declared_with_the_others() -> None:
    found = build_graph([SALES, TICKETS])
    again = DatasetDeclarations.from_json(DatasetDeclarations.from_graph(found).as_json())
    assert again.to_graph().expected_partitions("tickets", NOW).names == found.expected_partitions("tickets", NOW).names
    assert [c.name for c in again.channels_with_views if c.external] == ["tickets"]
    assert [w.name for w in again.ordered_statements()] == ["sales"]


def refused(sql: str, *more: SqlText) -> str:
    with pytest.raises(SqlError) as caught:
        build_graph([SqlText("x.sql", sql), *more])
    return str(caught.value)


GOOD = "CREATE EXTERNAL TABLE x (n INT, day STRING) USING parquet PARTITIONED BY (day) LOCATION '/x'"


@pytest.mark.parametrize(
    ("was", "becomes", "said", "under"),
    [
        ("EXTERNAL ", "", "is neither a query nor an external table", "x"),
        (" LOCATION '/x'", "", "an external table needs a location", "x"),
        ("(n INT, day STRING) ", "", "an external table needs columns", "x"),
        ("TABLE x", "TABLE db.x", "an external table is named with a database", "db.x"),
        ("BY (day)", "BY (week)", "there is no column 'week'", "week"),
        (
            "LOCATION '/x'",
            "LOCATION '/x' TBLPROPERTIES ('ready' = 'yes')",
            "TBLPROPERTIES does not support 'ready'",
            None,
        ),
        ("USING parquet", "USING csv", "external has format='csv'; expected parquet or orc", "x"),
        ("'/x'", "'gs://x/y'", "external has location='gs://x/y'; expected a folder", "x"),
        ("n INT", "n INT PRIMARY KEY", "PRIMARY KEY is not supported here", "n"),
        ("LOCATION '/x'", "LOCATION '/x' OPTIONS (a 'b')", "OPTIONS ('a'='b') is not supported here", "x"),
        ("n INT", "N INT, n STRING", "two columns called 'n'", None),
    ],
)
def test_what_is_wrong_with_it_is_shown_at_its_place(was: str, becomes: str, said: str, under: str | None) -> None:
    assert was in GOOD
    found = refused(GOOD.replace(was, becomes))
    assert said in found and "x.sql" in found
    if under is not None:
        carets = re.search(r"^ *\| ( *)(\^+)$", found, re.MULTILINE)
        line = next(x for x in found.splitlines() if re.match(r" +1 \| ", x)).partition("| ")[2]
        assert carets is not None
        start = len(carets[1])
        assert line[start : start + len(carets[2])] == under


def test_its_scopes_give_what_its_columns_are() -> None:
    head = "FOR n IN (1, 2)\n"
    found = refused(head + GOOD.replace("BY (day)", "BY (n)").replace("n INT", "n BIGINT"))
    assert "partition column 'n' is bigint, and the scopes produce int" in found and "expected: n INT" in found
    said = refused(head + GOOD)
    assert "x.sql:2:" in said and "there is no variable 'day'" in said and "^^^" in said


def test_each_scope_is_another_partition() -> None:
    head = "FOR n IN (1, 2), day IN ('a', 'b')\n"
    said = refused(head + GOOD)
    assert (
        "x.sql:1:5: no partition column depends on 'n', so several scopes would share a partition" in said
        and "^" in said
    )
    said = refused(head + GOOD.replace("PARTITIONED BY (day) ", ""))
    assert "all scopes have the same partition" in said and "expected: PARTITIONED BY (column, ...)" in said


def test_only_its_newest_state_is_known() -> None:
    for mode in ("NEW", "OLD"):
        said = refused(f"SELECT n FROM {mode}(plain)", PLAIN)
        assert "external table 'plain' has no history, which NEW and OLD would read" in said
        assert "expected: FROM plain" in said and "^" in said


def test_one_name_for_one_thing() -> None:
    said = refused("CREATE EXTERNAL TABLE plain (n INT) USING parquet LOCATION '/y'", PLAIN)
    assert "dataset 'plain' is already defined in x.sql" in said
    with pytest.raises(DefinitionError, match="'plain' is a declared channel, and an external table in plain"):
        build_graph([PLAIN], [nova.Channel("plain", schema="n int")])


def test_a_project_has_views_that_no_dataset_reads(tmp_path: Path) -> None:
    (tmp_path / "plain.sql").write_text(PLAIN.sql)
    (tmp_path / "one.sql").write_text("SELECT 1 AS n")
    made = nova.datasets(tmp_path)
    assert made.channel("plain").external == nova.external("s3://lake/plain", format="orc")
    assert [c.name for c in nova.Project(made).channels if c.external] == ["plain"]
