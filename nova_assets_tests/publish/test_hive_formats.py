"""RCFile and Avro by Spark's own writers, and folders of RCFile and CSV that are taken over.

Each story is a process of its own, since a session has support for Hive from its start, or never. Spark's module for
Avro is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.slow]

STORE = """
import sys
from datetime import date
from pathlib import Path
import nova_assets as nova
from nova_assets.settings import Settings

def opened(format, name="actions"):
    channel = nova.Channel(
        name,
        schema="dt date NOT NULL, action string NOT NULL, id bigint, note string, price decimal(10,2)",
        partitions=[nova.daily("dt", start="2024-01-01"), nova.dynamic("action")], seal=nova.seal("dt"),
        publish=nova.hive_table("exports/" + name, format=format))
    root = Path.cwd()
    settings = Settings(f"sqlite:///{root}/c.db", str(root / "wh"), root=root)
    return nova.open(nova.Project(channels=[channel]), settings=settings)

def rows(*ids):
    return [{"dt": date(2024, 1, 1 + n % 2), "action": "a/b", "id": n, "note": [None, 'q"uo,te', ""][n % 3], "price": n}
            for n in ids]

def data_files(name="actions"):
    folder = Path("exports", name).resolve()
    return [p for p in folder.rglob("*") if p.is_file() and p.name[0] not in "._"]
"""

RCFILE = (
    STORE
    + """
import shutil
store = opened("rcfile")
for n in range(6):
    store.insert("actions", rows(n))
store.seal("actions")
[edition] = store.publish("actions")
assert edition.rows == 6 and len(data_files()) == 2, data_files()
assert all(p.read_bytes()[:3] == b"RCF" for p in data_files())
spark = store.engine.session

def by_hive(folder):
    spark.sql("DROP TABLE IF EXISTS judge")
    spark.sql("CREATE EXTERNAL TABLE judge (id bigint, note string, price decimal(10,2)) "
              f"PARTITIONED BY (dt string, action string) STORED AS RCFILE LOCATION '{folder}'")
    spark.sql("MSCK REPAIR TABLE judge")
    return sorted((r.id, r.note, int(r.price), r.dt, r.action) for r in spark.table("judge").collect())

seen = by_hive(Path("exports/actions").resolve())
assert seen == [(n, [None, 'q"uo,te', ""][n % 3], n, f"2024-01-0{1 + n % 2}", "a/b") for n in range(6)], seen

shutil.copytree(Path("exports/actions").resolve(), "exports/taken")
before = by_hive(Path("exports/taken").absolute())
taker = opened("rcfile", "taken")
[edition] = taker.publish("taken", take_over=True)
assert Path("exports/taken").is_symlink() and by_hive(Path("exports/taken").resolve()) == before
print("RCFile: written by Spark, read by Hive's SerDe, and taken over")
"""
)

AVRO = (
    STORE
    + """
import fastavro
store = opened("avro")
for n in range(6):
    store.insert("actions", rows(n))
store.seal("actions")
[edition] = store.publish("actions")
found = [r for p in data_files() for r in fastavro.reader(p.open("rb"))]
assert len(data_files()) == 2 and sorted(r["id"] for r in found) == list(range(6))
assert set(found[0]) == {"id", "note", "price"}, found[0]
assert sorted(str(r["note"]) for r in found) == sorted(str([None, 'q"uo,te', ""][n % 3]) for n in range(6))
print("Avro: written by Spark, read by fastavro")
"""
)

CSV = (
    STORE
    + """
import pandas as pd
for n in (1, 2):
    folder = Path(f"exports/actions/dt=2024-01-0{n}/action=a%2Fb")
    folder.mkdir(parents=True)
    pd.DataFrame({"id": [n, n + 2], "note": ['q"uo,te', "plain"], "price": [1.5, 2.25]}).to_csv(
        folder / "000000.csv", index=False)

def seen():
    frames = [pd.read_csv(p).assign(where=str(p.parent.name)) for p in data_files()]
    frame = pd.concat(frames).sort_values("id")
    return frame.dtypes.astype(str).to_dict(), frame.to_csv(index=False)

before = seen()
store = opened("csv")
[edition] = store.publish("actions", take_over=True)
assert edition.rows == 4 and Path("exports/actions").is_symlink()
assert seen() == before, (seen(), before)
assert all(p.suffix == ".csv" for p in data_files())
print("CSV: taken over, read by pandas as before")
"""
)


def run_story(story: str, folder: Path) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    (folder / "story.py").write_text(story)
    done = subprocess.run(
        [sys.executable, "story.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    return done.stdout


@pytest.mark.exhaustive
def test_rcfile(tmp_path: Path) -> None:
    assert "taken over" in run_story(RCFILE, tmp_path)
    assert not (tmp_path / "metastore_db").exists(), "the metastore is in memory"


@pytest.mark.exhaustive
def test_avro(tmp_path: Path) -> None:
    assert "read by fastavro" in run_story(AVRO, tmp_path)


@pytest.mark.exhaustive
def test_a_folder_of_csv_is_taken_over(tmp_path: Path) -> None:
    assert "as before" in run_story(CSV, tmp_path)
