"""``nova refresh``, and ``nova tick`` over an external channel."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nova_assets_tests.cli.conftest import Nova

pytestmark = pytest.mark.slow

PROJECT = ("--project", "outside:project")


def write_sales_file(folder: Path, day: str, price: object = 1) -> Path:
    there = folder / "tills" / f"day={day}"
    there.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"price": [price]}), there / "part-0.parquet")
    return there


@pytest.fixture(autouse=True)
def project(folder: Path) -> None:
    (folder / "sql").mkdir()
    view = (
        "CREATE EXTERNAL TABLE tickets (price BIGINT, day STRING) USING parquet PARTITIONED BY (day) LOCATION 'tills'"
    )
    (folder / "sql" / "tickets.sql").write_text(view)
    (folder / "sql" / "total.sql").write_text("SELECT SUM(price) AS total FROM tickets")
    (folder / "outside.py").write_text("import nova_assets as n\nproject = n.Project(n.datasets('sql'))")


def test_what_is_otherwise_is_said_then_committed(nova: Nova, folder: Path) -> None:
    write_sales_file(folder, "2022-03-30")
    write_sales_file(folder, "2022-03-31")
    (folder / "tills" / "readme").write_text("mind the gap")
    dry = nova("refresh", "--dry-run", *PROJECT)
    assert (dry.code, dry.out) == (
        0,
        """\
tickets: 2 partitions would be refreshed; 0 unchanged
  ignored (the location itself): the folder name does not have the form day=...
""",
    )
    assert nova("refresh", "--dry-run", "--json", *PROJECT).json["refreshed"][0]["changed"] == [
        "day=2022-03-30",
        "day=2022-03-31",
    ]
    done = nova("refresh", "tickets", *PROJECT)
    assert done.code == 0 and done.out.startswith("tickets: 2 partitions refreshed, at 1; 0 unchanged\n")
    assert nova("refresh", *PROJECT).out.startswith("tickets: 0 partitions refreshed; 2 unchanged\n")
    listed = nova("channels", "--json").json["channels"]
    assert [(c["name"], c["head"], c["rows"]) for c in listed if c["name"] == "tickets"] == [("tickets", 1, 2)]


@pytest.mark.core
def test_what_is_amiss_is_said_and_ends_with_1(nova: Nova, folder: Path) -> None:
    write_sales_file(folder, "2022-03-30")
    write_sales_file(folder, "2022-03-31", "much")
    output = nova("refresh", *PROJECT)
    assert output.code == 1
    assert "tickets: 1 partition refreshed, at 1; 0 unchanged\n" in output.out
    assert (
        "day=2022-03-31: " in output.out
        and "column 'price' of external channel 'tickets' has another type in" in output.out
    )
    ticked = nova("tick", "--dry-run", "--json", *PROJECT)
    assert ticked.json["run"] == [{"dataset": "total", "partition": "", "why": "missing"}]


@pytest.mark.core
def test_much_that_is_gone_at_once_has_to_be_meant(nova: Nova, folder: Path) -> None:
    for n in range(1, 13):
        write_sales_file(folder, f"2022-03-{n:02d}")
    assert nova("refresh", *PROJECT).code == 0
    (folder / "tills").rename(folder / "elsewhere")
    (folder / "tills").mkdir()
    output = nova("refresh", *PROJECT)
    assert output.code == 1
    assert "12 partitions missing at once, not refreshed; nova refresh tickets --gone drops them" in output.out
    assert "missing: day=2022-03-01, day=2022-03-02" in nova("refresh", "tickets", "--gone", *PROJECT).out


@pytest.mark.core
@pytest.mark.parametrize(
    ("given", "what"),
    [
        (("refresh", "total"), "channel 'total' is not external"),
        (("refresh", "nothing"), "no channel is called 'nothing'"),
        (("refresh",), "tills cannot be listed"),
        (("refresh", "tickets"), "the channel keeps its earlier state"),
        (("tick",), "tills cannot be listed"),
    ],
)
def test_what_cannot_be_looked_at(nova: Nova, given: tuple[str, ...], what: str) -> None:
    output = nova(*given, *PROJECT)
    assert output.code == 1
    assert what in output.out + output.err


@pytest.mark.core
def test_a_project_without_any(nova: Nova, folder: Path) -> None:
    output = nova("refresh", "--project", "examples.sales.pipeline:project")
    assert output.code == 1 and "the project has no external channel" in output.err
