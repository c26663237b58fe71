"""The benchmark beside other table formats: what is run again, and how results are told."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import __main__ as main
from benchmarks.peers import chart, markdown, registry, tables
from benchmarks.peers.data import COLUMNS, Data, first_day
from benchmarks.peers.meter import Step, metered
from benchmarks.peers.results import Key, Result, Results
from benchmarks.peers.workloads import named

WORKLOAD = named(["upsert-uniform-1"])[0]


def key(system: str = "nova", repeat: int = 0, **other: Any) -> Key:
    return Key(**{"system": system, "workload": WORKLOAD.name, "repeat": repeat, "rows": 10, **SIZES, **other})


SIZES = {"series": 3, "small": 5}


def result(system: str, wall: float, cpu: float, repeat: int = 0, **other: Any) -> Result:
    step = Step(wall / 2, cpu / 2, 1_000_000, 2, 10**9).as_json()
    live = {"files": 1, "bytes": 10, "disk": 5_000_000}
    versions = {"versions": {system: "1.0"}, "settings": {"mode": "fast"}}
    return Result(key(system, repeat), {"write": step, "read": step}, live, **{**versions, **other})


def test_what_is_finished_is_not_run_again_and_what_failed_is(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.jsonl")
    results.add(result("nova", 1, 1))
    results.add(Result(key("delta"), error="it broke"))
    results.add(Result(key("polars"), cannot=True))
    with results.file.open("a") as out:
        out.write('{"key": {"system": "hudi')  # killed while it wrote
    wanted = [key(s) for s in ("nova", "delta", "polars", "duckdb")]
    assert [k.system for k in results.missing(wanted)] == ["delta", "duckdb"]
    assert results.missing([key("nova", rows=20)]) == [key("nova", rows=20)], "another size is another run"


def test_a_later_result_counts(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.jsonl")
    results.add(Result(key("delta"), error="it broke"))
    results.add(result("delta", 2, 2))
    assert [(r.key.system, r.error) for r in results.all()] == [("delta", None)]


def test_the_order_rotates_and_a_system_and_repeat_share_a_process() -> None:
    assert [main.rotated("abc", n) for n in range(4)] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], [*"abc"]]
    todo = [key("nova"), key("nova", workload="delete"), key("delta")]
    assert main.together(todo) == [todo[:2], todo[2:]]


def test_ratios_are_of_medians_to_nova() -> None:
    found = [result("nova", w, w, n) for n, w in enumerate((1.0, 2.0, 9.0))]
    found += [result("delta", 8, 4), Result(key("polars"), cannot=True), Result(key("duckdb"), error="no")]
    lines = tables.lines(found, WORKLOAD)
    rows = {r[0]: r for r in tables.cells(WORKLOAD, lines)}
    head = tables.columns(WORKLOAD, lines)
    assert all(len(r) == len(head) for r in rows.values())
    ratios = head.index("wall / nova"), head.index("CPU / nova")
    assert [rows["nova"][n] for n in ratios] == ["1.00", "1.00"]
    assert [rows["delta"][n] for n in ratios] == ["4.00", "2.00"]
    assert set(rows["polars"][1:]) == {"-"} and set(rows["duckdb"][1:]) == {"FAILED"}
    assert "nova takes 0.25 x the wall and 0.50 x the CPU of the best peer" in tables.headline(found)


def test_a_wrong_answer_is_loud_and_wins_nothing() -> None:
    found = [result("nova", 4, 4), result("delta", 1, 1, wrong=["read: 3 instead of 4"]), result("hudi-mor", 8, 8)]
    assert "delta WRONG" in [r[0] for r in tables.cells(WORKLOAD, tables.lines(found, WORKLOAD))]
    assert tables.headline(found).endswith("WRONG ANSWERS: delta")
    assert "nova takes 0.50 x" in tables.headline(found), "beside the best that is right"
    assert tables.troubles(found) == [f"WRONG: delta, {WORKLOAD.name}, repeat 1: read: 3 instead of 4"]


def test_markdown_and_picture() -> None:
    found = [result("nova", 1, 1), result("delta", 3, 3), Result(key("polars"), cannot=True)]
    text = markdown.markdown(found, "peers.svg")
    assert "| delta | 1.50 | 1.50 | 3.00 | 3.00 | 3.00 | 3.00 |" in text
    assert "**delta** (delta 1.0)" in text and "`mode=fast`" in text
    drawn = ET.fromstring(chart.svg(found))
    widths = [int(r.get("width", "")) for r in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths == [160, 480, 0]


def test_data_comes_from_a_seed(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    one, two = Data(tmp_path / "a", 4_000), Data(tmp_path / "b", 4_000)
    rows = pq.read_table([str(f) for f in one.base])
    assert rows.column_names == list(COLUMNS) and len(set(rows["id"].to_pylist())) == rows.num_rows == 4_000
    batches = [d.batch("x", 100, clustered=True) for d in (one, two)]
    first, second = (pq.read_table(b) for b in batches)
    assert first.equals(second)
    known = set(rows["id"].to_pylist())
    assert sum(i in known for i in first["id"].to_pylist()) == 80
    assert first_day(batches[0]) > str(sorted(rows["day"].to_pylist())[3_000]), "of the latest days"


def test_what_a_step_writes_is_counted(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"12345")
    cost = metered(lambda: (tmp_path / "new").write_bytes(b"123"), tmp_path)
    assert (cost.written, cost.files) == (3, 1) and cost.peak > 0


@pytest.mark.parametrize("name", registry.NAMES)
def test_every_system_says_what_it_is(name: str) -> None:
    assert registry.system(name).name == name and registry.system(name).lines
