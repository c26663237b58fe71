"""What verbs ask of an object store: only requests that tell something new, and side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.store.store import Store
from nova_assets_tests.cloud.faulty_s3 import FaultyS3

pytestmark = pytest.mark.slow

channel = nova.Channel("c", merge=nova.Upsert(key="k"), schema="k bigint NOT NULL, v string")


def opened(folder: Path) -> Store:
    return nova.open(nova.Project(channels=[channel]), f"sqlite:///{folder}/c.db", "s3://lake/wh")


def test_requests_of_each_verb(faulty: FaultyS3, tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert dict(faulty.counted()) == {"HEAD": 1}, "whose warehouse it is"
    store.insert("c", [{"k": 0, "v": "first"}])  # leaves the mark, too
    faulty.counted()
    for n in range(1, 20):
        store.insert("c", [{"k": n, "v": str(n)}])
    # An insert writes one file. Its commit reads the marker: the warehouse is in place, and is the catalog's.
    assert dict(faulty.counted()) == {"PUT": 19, "HEAD": 19, "GET": 19}
    with opened(tmp_path) as reader:
        assert dict(faulty.counted()) == {"HEAD": 1, "GET": 1}
        faulty.delay = 0.2
        assert reader.read("c").to_arrow().num_rows == 20
        assert dict(faulty.counted()) == {"HEAD": 20, "GET": 20}, "two for each small file"
        assert faulty.most_at_once > 8
        faulty.delay = 0.0
    store.compact("c")
    counted = faulty.counted()
    assert counted["PUT"] == 1 and counted["GET"] == 21 and counted["LIST"] == 0


def test_a_restoration_of_few_rows_starts_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("Spark was started")

    for kind in (nova.Append(), nova.Upsert(key="k")):
        name = type(kind).__name__.lower()
        of = nova.Channel(name, merge=kind, schema="k bigint NOT NULL, v string")
        with nova.open(
            nova.Project(channels=[of]), f"sqlite:///{tmp_path}/{name}.db", tmp_path / name, refuse
        ) as store:
            store.insert(name, [{"k": n, "v": str(n)} for n in range(16)])
            store.insert(name, [{"k": 99, "v": "wrong"}])
            store.restore(name, 1)
            assert store.read(name).to_arrow().num_rows == 16
