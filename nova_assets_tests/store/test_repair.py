"""Each kind of damage, made on purpose over each catalog: found without a change, mended, and found no more."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.damage import Damage, RepairOutcome
from nova_assets.settings import load_settings
from nova_assets.store.repair import Repair
from nova_assets.store.store import Store
from nova_assets_tests.execution.conftest import Opener, TestClock
from nova_assets_tests.stub_engine import StubEngine
from nova_assets_tests.stub_merge import Row

pytestmark = pytest.mark.slow

DDL = "k bigint, v bigint"
HOUR = 3600.0
source = nova.Channel("source", merge=nova.Upsert(key="k"), schema=DDL)
copy = nova.Channel("copy", merge=nova.Upsert(key="k"), schema=DDL)
best = nova.Channel("best", merge=nova.Upsert(key="k"), schema=DDL)
during: list[Any] = []


@nova.task(consumes=nova.new(source), produces=nova.delta(copy))
def take(source: list[Row]) -> list[Row]:
    for act in during:
        act()
    return source


@nova.task(consumes=nova.all(copy), produces=nova.base(best))
def choose(copy: list[Row]) -> list[Row]:
    return copy


project = nova.Project([nova.bind(nova.Workflowette("dedup", [take])), nova.bind(nova.Workflowette("pick", [choose]))])


@pytest.fixture(autouse=True)
def nothing_happens_meanwhile() -> Iterator[None]:
    during.clear()
    yield
    during.clear()


def row(k: int, v: int = 0) -> Row:
    return {"k": k, "v": v}


def filled(opened: Opener) -> Store:
    store = opened(project)
    store.register(project)
    for n in (1, 2, 3):
        store.insert("source", [row(n), row(n + 1)])
    return store


def repair(store: Store) -> Repair:
    return Repair(store.runtime, HOUR)


def found(store: Store, kind: str | None = None) -> list[Damage]:
    return [d for d in repair(store).find_damages().damages if kind is None or d.kind == kind]


def mended(store: Store) -> list[RepairOutcome]:
    """Found again and nothing touched by that, mended, and then found no more."""
    before = lying(store)
    first = repair(store).find_damages()
    assert repair(store).find_damages() == first and lying(store) == before, "finding changes nothing"
    outcomes = repair(store).repair_damages(first.damages)
    return outcomes


def lying(store: Store) -> dict[str, float]:
    root = Path(store.settings.warehouse)
    return {p.relative_to(root).as_posix(): p.stat().st_mtime for p in root.rglob("*")}


def wrong(store: Store) -> list[tuple[str, str]]:
    return [(d.kind, d.subject) for d in found(store) if d.wrong]


def at(path: Path, clock: TestClock, ago: float) -> None:
    """As if it had lain there for so long."""
    moment = clock().timestamp() - ago
    for p in (path, *path.rglob("*")) if path.is_dir() else (path,):
        os.utime(p, (moment, moment))


def aged(store: Store, clock: TestClock, ago: float = 2 * HOUR) -> None:
    at(Path(store.settings.warehouse), clock, ago)


def orphan(store: Store, clock: TestClock, name: str = "lost", ago: float = 2 * HOUR) -> Path:
    folder = Path(store.settings.warehouse) / "blocks" / name
    folder.mkdir(parents=True)
    (folder / "part-0.jsonl").write_text("{}\n")
    at(folder, clock, ago)
    return folder


def rows_of(store: Store, channel: str, **how: Any) -> dict[int, int]:
    rows: Any = store.read(channel, **how).to_spark()
    return {r["k"]: r["v"] for r in rows}


def files_of(store: Store, *ranges: str, channel: str = "source") -> list[Path]:
    return [
        Path(store.settings.warehouse) / f.path
        for b in store.catalog.histories.of(channel).blocks
        if b.range in ranges
        for f in b.manifest.files
    ]


def test_a_sound_deployment_has_no_damage(opened: Opener, clock: TestClock) -> None:
    store = filled(opened)
    store.run("dedup")
    store.run("pick")
    store.compact("source")
    store.insert("source", [], kind="base")
    store.insert("source", [])
    aged(store, clock)
    clock.advance(2 * HOUR)
    store.runtime.delete_dead_staging()
    examined = repair(store).find_damages()
    assert examined.damages == () and examined.counts["blocks"] == 8 and examined.counts["files"] == 7


def test_what_dead_executions_left_is_told_and_swept_when_it_is_time(opened: Opener, clock: TestClock) -> None:
    store = filled(opened)
    execution = store.runtime.begin("dedup")
    store.runtime.run_task(execution, "take")
    staged = store.catalog.staging.of(execution.id)[0].folder
    [alive] = found(store)
    assert (alive.kind, alive.cure) == ("staged", None) and "is running, with 1 staged block" in alive.what
    clock.advance(101)
    [lapsed] = found(store)
    assert (lapsed.kind, lapsed.cure) == ("lapsed", None) and not mended(store)
    clock.advance(60)
    [outcome] = mended(store)
    assert outcome.mended and outcome.damage.kind == "lapsed"
    assert found(store) == [] and not (Path(store.settings.warehouse) / staged).exists()
    assert store.catalog.executions.get(execution.id).state == "aborted"


def test_a_live_execution_is_not_disturbed_even_in_the_middle_of_writing(opened: Opener, clock: TestClock) -> None:
    store, other = filled(opened), opened(project)
    outcomes: list[list[RepairOutcome]] = []

    def doctor() -> None:
        folder = orphan(other, clock)
        aged(other, clock, 9 * HOUR)  # whatever the clocks of the machines say
        outcomes.append(mended(other))
        assert not folder.exists()

    during.append(doctor)
    write = store.engine.writer.write

    def slowly(frame: Any, staged: Any, *given: Any, **known: bool) -> Any:
        folder = Path(store.settings.warehouse) / staged.folder
        folder.mkdir(parents=True)
        (folder / "half").write_text("half")
        doctor()
        assert (folder / "half").exists()
        (folder / "half").unlink()
        return write(frame, staged, *given, **known)

    store.engine.writer.write = slowly  # type: ignore[method-assign]
    store.run("dedup")
    assert [[o.damage.subject for o in some] for some in outcomes] == [["blocks/lost"], ["blocks/lost"]]
    assert rows_of(store, "copy") == rows_of(store, "source") and wrong(store) == []


def test_a_block_committed_while_the_warehouse_is_examined_is_no_orphan(
    opened: Opener, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = filled(opened), opened(project)
    house, listing = store.engine.warehouse, store.engine.warehouse.list_block_entries
    monkeypatch.setattr(house, "list_block_entries", lambda: (other.run("dedup"), aged(other, clock), listing())[-1])
    assert found(store) == []


def test_orphans_are_moved_away_in_a_warehouse_of_ones_own(opened: Opener, clock: TestClock) -> None:
    store = filled(opened)
    old, young = orphan(store, clock), orphan(store, clock, "young", ago=60)
    [kept] = files_of(store, "Δ(0→1)")
    beside = kept.with_name("part-0.crc")
    beside.write_text("left by somebody")
    at(beside, clock, 2 * HOUR)
    outcomes = mended(store)
    assert {o.damage.subject: o.mended for o in outcomes} == {
        "blocks/lost": True,
        f"blocks/{kept.parent.name}/part-0.crc": True,
    }
    assert not old.exists() and not beside.exists() and young.exists() and kept.exists()
    away = kept.parents[2] / "orphans"
    assert (away / "lost").is_dir() and (away / kept.parent.name / "part-0.crc").read_text() == "left by somebody"
    assert found(store) == [] and rows_of(store, "source") == {1: 0, 2: 0, 3: 0, 4: 0}


def test_files_of_collected_blocks_are_left_to_their_grace(opened: Opener, clock: TestClock) -> None:
    store = filled(opened)
    store.compact("source")
    store.collect_garbage("source")
    aged(store, clock)
    assert found(store) == []


def test_an_orphan_that_has_become_somebodys_is_left(opened: Opener, clock: TestClock) -> None:
    store = filled(opened)
    folder = orphan(store, clock)
    examined = repair(store).find_damages()
    store.engine.warehouse.write_catalog_marker("another", "w")
    [outcome] = repair(store).repair_damages(examined.damages)
    assert folder.exists() and "no longer an orphan" in outcome.detail


def test_in_a_shared_warehouse_nobodys_data_are_taken_for_orphans(
    opened: Opener, clock: TestClock, tmp_path: Path
) -> None:
    store = filled(opened)
    settings = load_settings(
        start_folder=tmp_path, catalog=f"sqlite:///{tmp_path}/b.db", warehouse=store.settings.warehouse
    )
    with Store(settings, project, open_catalog(settings.catalog, clock=clock), StubEngine(settings.warehouse)) as other:
        other.register(project)
        other.insert("source", [row(9)])
        folder = orphan(store, clock)
        aged(store, clock)
        for one in (store, other):
            [damage] = found(one)
            assert damage.kind == "orphan" and not damage.wrong and "shared with 1 other catalog" in damage.means
            assert mended(one) == []
        assert folder.exists() and rows_of(other, "source") == {9: 0} and len(rows_of(store, "source")) == 4
        mark = Path(store.settings.warehouse) / "catalogs" / other.catalog.identity.get()
    mark.unlink()
    assert "blocks/lost" in [o.damage.subject for o in mended(store)] and not folder.exists()


def test_a_warehouse_without_a_mark_is_left_until_this_catalog_has_written(opened: Opener, clock: TestClock) -> None:
    store = filled(opened)
    folder = orphan(store, clock)
    mark = Path(store.settings.warehouse) / "catalogs" / store.catalog.identity.get()
    assert mark.read_text() == store.catalog.identity.warehouse()[0]
    mark.unlink()
    [damage] = found(store)
    assert not damage.wrong and "no catalog has written its marker file" in damage.means and mended(store) == []
    store.insert("source", [row(7)])
    assert not mark.exists(), "a process looks once"
    opened(project).insert("source", [row(8)])
    assert mark.exists() and [o.mended for o in mended(store)] == [True] and not folder.exists()


def test_a_lost_base_of_compaction_is_given_up_and_the_deltas_answer(opened: Opener, clock: TestClock) -> None:
    store = filled(opened)
    store.compact("source")
    before = rows_of(store, "source")
    [file] = files_of(store, "B3")
    file.unlink()
    with pytest.raises(nova.FileMissing):
        store.read("source").to_spark()
    [damage] = found(store)
    assert (damage.kind, damage.cure, damage.subject) == ("file", "give up", "source") and "B3" in damage.mending
    [outcome] = mended(store)
    assert outcome.mended and found(store) == [] and rows_of(store, "source") == before
    instant = store.timeline("source")[-1]
    assert instant.action == "collect" and [b.range for b in instant.blocks] == ["B3"]
    assert store.compact("source") is not None, "another may be made"
    clock.advance(2 * HOUR)
    store.delete_collected()
    assert found(store, "file") == [] and rows_of(store, "source") == before


def test_a_file_that_was_changed_is_damage_and_a_restored_one_none(opened: Opener) -> None:
    store = filled(opened)
    [file] = files_of(store, "Δ(1→2)")
    content = file.read_bytes()
    file.write_bytes(content + b"{}\n")
    [damage] = found(store)
    assert f"has {len(content) + 3} bytes in place of {len(content)}" in damage.what and damage.cure is None
    assert damage.means.startswith("versions 2 to 3 of source cannot be read; needed by the newest snapshot")
    assert "read by dedup" in damage.means and "nova restore source --at 1" in (damage.next or "")
    assert mended(store) == [] and wrong(store) == [("file", "source")]
    file.write_bytes(content)
    assert found(store) == []


def test_what_is_said_to_be_typed_works(opened: Opener, clock: TestClock) -> None:
    store = filled(opened)
    files_of(store, "Δ(2→3)")[0].unlink()
    assert "nova restore source --at 2" in (found(store)[0].next or "")
    store.restore("source", 2)
    assert rows_of(store, "source") == {1: 0, 2: 0, 3: 0}
    [left] = found(store)
    assert left.cure == "give up" and "version 3, which no reader needs" in left.means
    assert [o.mended for o in mended(store)] == [True] and found(store) == []

    store.run("dedup")
    store.run("pick")
    files_of(store, "B1", channel="best")[0].unlink()
    [damage] = found(store)
    assert "nova run pick, which writes a new base" in (damage.next or "")
    store.run("pick")
    assert rows_of(store, "best") == rows_of(store, "copy")
    assert [o.mended for o in mended(store)] == [True] and found(store) == []


def test_a_consumer_that_lags_keeps_what_it_needs(opened: Opener) -> None:
    store = filled(opened)
    store.run("dedup")
    store.insert("source", [row(9)])
    store.compact("source")
    files_of(store, "Δ(3→4)")[0].unlink()
    [damage] = found(store)
    assert damage.cure is None and "needed by dedup, whose cursor is at 3" in damage.means
    assert mended(store) == []
    store.restore("source", 4)
    store.run("dedup")
    assert rows_of(store, "copy") == rows_of(store, "source")


def test_what_somebody_needs_by_now_is_not_given_up(opened: Opener) -> None:
    """Judged again under the channel's lock."""
    store = filled(opened)
    store.compact("source")
    files_of(store, "B3")[0].unlink()
    examined = repair(store).find_damages()
    files_of(store, "Δ(1→2)")[0].unlink()  # not known to the one who mends
    deltas = [b.id for b in store.catalog.histories.of("source").blocks if b.range != "B3"]
    assert store.catalog.repairs.collect_damaged_blocks("source", [*deltas, *examined.damages[0].concerns]).blocks == ()
    assert len(store.catalog.histories.of("source").blocks) == 4


@pytest.mark.core
def test_a_warehouse_that_is_not_there_is_no_reason_to_mend_anything(opened: Opener, tmp_path: Path) -> None:
    store = filled(opened)
    store.compact("source")
    (tmp_path / "wh").rename(tmp_path / "unmounted")
    with pytest.raises(nova.WarehouseUnavailable, match=r"(?s)lists \d+ files, but the warehouse is empty.*mounted"):
        repair(store).find_damages()


def test_several_repairs_at_once_do_no_harm(opened: Opener, clock: TestClock) -> None:
    store = filled(opened)
    store.compact("source")
    folders = [orphan(store, clock, f"lost{n}") for n in range(20)]
    execution = store.runtime.begin("dedup")
    store.runtime.run_task(execution, "take")
    files_of(store, "B3")[0].unlink()
    clock.advance(200)
    examined = repair(store).find_damages()
    outcomes: list[RepairOutcome] = []
    others = [opened(project) for _ in range(3)]
    threads = [
        threading.Thread(target=lambda s=s: outcomes.extend(repair(s).repair_damages(examined.damages))) for s in others
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(outcomes) == 3 * len(examined.damages) and not [o for o in outcomes if not o.mended]
    assert wrong(store) == [] and not any(f.exists() for f in folders) and len(rows_of(store, "source")) == 4


def test_it_says_how_far_it_has_come_with_many_files(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    store, said = filled(opened), list[str]()
    Repair(store.runtime, HOUR, said.append).find_damages()
    assert said == ["6 files and folders are in the warehouse"]
    monkeypatch.setattr("nova_assets.store.repair._FILES_PER_PROGRESS_MESSAGE", 2)
    Repair(store.runtime, HOUR, said.append).find_damages()
    assert said[2:] == ["source: 2 of 3 files checked", "source: 3 of 3 files checked"]


def test_partitions_are_mended_one_by_one(opened: Opener) -> None:
    days = nova.Channel("days", schema="day string, v bigint", partitions=[nova.dynamic("day")])
    store = opened(nova.Project([], channels=[days]))
    for n in (1, 2):
        store.insert("days", [{"day": "mon", "v": n}, {"day": "tue", "v": n}])
    store.compact("days")
    blocks = store.catalog.histories.of("days").blocks
    lost = {b.partition: b for b in blocks if b.kind == "base"}
    [delta] = [b for b in blocks if b.partition == "day=tue" and b.hi == 2 and b.lo == 1]
    for block in (lost["day=mon"], delta):
        (Path(store.settings.warehouse) / block.manifest.files[0].path).unlink()
    concerns = {d.subject: d.concerns for d in found(store)}
    assert set(concerns) == {"days day=mon", "days day=tue"}
    assert concerns["days day=tue"] == (delta.id,), "nobody needs it: there is a base"
    assert all(o.mended for o in mended(store)) and found(store) == []
    assert len(store.read("days").to_spark()) == 4  # type: ignore[arg-type]
