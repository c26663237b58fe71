"""``nova doctor --repair``: said for people and for programs, on real Parquet files; no Spark is needed for it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.engine.spark_engine import SparkEngine
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.cli import shop
from nova_assets_tests.cli.conftest import Nova

pytestmark = pytest.mark.slow

HOUR = 3600


@pytest.fixture
def store(folder: Path, with_shop: None) -> Iterator[Store]:
    """The shop, whose history lies two hours back: stock counted twice."""
    settings = load_settings()
    catalog = open_catalog(settings.catalog, clock=lambda: datetime.now(UTC) - timedelta(hours=2))
    with Store(settings, shop.project, catalog, SparkEngine(settings.warehouse)) as opened:
        opened.register(shop.project)
        opened.insert("stock", [{"item": "tea", "count": 7}])
        opened.insert("stock", [{"item": "jam", "count": 1}])
        yield opened


@pytest.fixture
def dagster_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Dagster home that has been in use."""
    import dagster as dg

    dagster_home = folder / "dagster"
    dagster_home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(dagster_home))
    with dg.DagsterInstance.get() as instance:
        instance.get_runs(limit=1)
        instance.all_asset_keys()
    return dagster_home


def write_orphan_file(store: Store, name: str, ago: float = 2 * HOUR) -> Path:
    made = Path(store.settings.warehouse) / "blocks" / name
    made.mkdir()
    (made / "part-0.parquet").write_bytes(b"12345")
    for path in (made / "part-0.parquet", made):
        os.utime(path, (time.time() - ago, time.time() - ago))
    return made


def files(store: Store, hi: int) -> list[Path]:
    root = Path(store.settings.warehouse)
    return [root / f.path for b in store.catalog.histories.of("stock").blocks if b.hi == hi for f in b.manifest.files]


def dagster_sequence_numbers(channel: str) -> list[int]:
    import dagster as dg

    with dg.DagsterInstance.get() as instance:
        records = instance.fetch_materializations(dg.AssetKey(channel), limit=100).records
        events = [r.asset_materialization for r in reversed(records)]
        return [e.metadata["nova/seq"].value for e in events if e is not None]  # type: ignore[misc]


def test_when_everything_is_whole_it_says_so(nova: Nova, store: Store) -> None:
    output = nova("doctor", "--repair")
    assert output.code == 0
    assert output.out == (
        "(Dagster was not examined: DAGSTER_HOME is not set.)\nNothing to repair: 2 files of 2 blocks are intact.\n"
    )
    answer = nova("doctor", "--repair", "--dry-run", "--json").json
    assert answer == {
        "dry_run": True,
        "whole": True,
        "remaining": 0,
        "counts": {"blocks": 2, "files": 2, "entries": 4},
        "notes": ["Dagster was not examined: DAGSTER_HOME is not set"],
        "damages": [],
    }


@pytest.mark.core
def test_a_dry_run_says_everything_and_changes_nothing_and_then_it_is_mended(nova: Nova, store: Store) -> None:
    folder, young = write_orphan_file(store, "lost"), write_orphan_file(store, "young", ago=10)
    output = nova("doctor", "--repair", "--dry-run")
    assert output.code == 1 and folder.exists()
    text = "blocks/lost (1 file, 5 bytes) belongs to no committed or staged block"
    assert f"Files that the catalog does not list (1)\n  {text}" in output.out
    assert (
        "    means: no answer is affected. If this catalog was restored" in output.out
        and "    → would be repaired: moved to orphans/ in the warehouse\n" in output.out
    )
    assert output.out.endswith("1 would be repaired by nova doctor --repair. 2 files of 2 blocks were examined.\n")
    mended = nova("doctor", "--repair")
    assert mended.code == 0 and not folder.exists() and young.exists() and "→ repaired: moved to orphans/" in mended.out
    assert "1 repaired, 0 still wrong" in mended.out and "Nothing to repair" in nova("doctor", "--repair").out


@pytest.mark.core
def test_what_cannot_be_mended_says_what_to_type_and_ends_with_1(nova: Nova, store: Store) -> None:
    files(store, 2)[0].unlink()
    output = nova("doctor", "--repair", "--json")
    assert output.code == 1 and output.json["remaining"] == 1 and not output.json["whole"]
    [damage] = output.json["damages"]
    assert (damage["kind"], damage["state"], damage["cure"]) == ("file", "remains", None)
    assert damage["means"].startswith("version 2 of stock cannot be read; needed by the newest snapshot")
    assert "read by sell, take_stock" in damage["means"] and "nova restore stock --at 1" in damage["next"]
    shown = nova("doctor", "--repair").out
    assert f"  Δ(1→2) of stock: {damage['concerns'][0]} is missing\n" in shown
    assert "→ copy the files back from a backup; or nova restore stock --at 1" in shown
    assert "0 repaired, 1 still wrong" in shown


@pytest.mark.core
def test_without_a_catalog_there_is_nothing_and_none_is_made(nova: Nova, folder: Path) -> None:
    output = nova("doctor", "--repair")
    assert (
        output.code == 0
        and output.out == "Nothing to repair: there is no catalog yet.\n"
        and not list(folder.iterdir())
    )


@pytest.mark.core
def test_a_dry_run_migrates_nothing(nova: Nova, store: Store, folder: Path) -> None:
    with sqlite3.connect(folder / ".nova" / "catalog.db") as catalog:
        catalog.execute("UPDATE nova_version SET version_num = '0003'")
    output = nova("doctor", "--repair", "--dry-run")
    assert output.code == 1 and "NOVA-CATALOG-VERSION" in output.err and "nova init" in output.err


@pytest.mark.core
@pytest.mark.parametrize("wrong", [["--dry-run"], ["--repair", "--spark"]])
def test_wrong_use(nova: Nova, wrong: list[str]) -> None:
    assert nova("doctor", *wrong).code == 2


@pytest.mark.core
def test_a_warehouse_that_is_not_mounted_is_no_damage(nova: Nova, store: Store, folder: Path) -> None:
    shutil.move(store.settings.warehouse, folder / "elsewhere")
    output = nova("doctor", "--repair")
    assert output.code == 1 and "NOVA-WAREHOUSE-MISMATCH" in output.err and "mounted" in output.err


@pytest.mark.dagster
@pytest.mark.filterwarnings("ignore")
def test_dagster_is_told_what_it_lacks(nova: Nova, store: Store, dagster_home: Path) -> None:
    output = nova("doctor", "--repair", "--dry-run", "--json").json
    assert [(d["kind"], d["state"]) for d in output["damages"]] == [("unpublished", "found")] * 2
    assert output["counts"]["events"] == 0 and dagster_sequence_numbers("stock") == []
    assert nova("doctor", "--repair").code == 0 and dagster_sequence_numbers("stock") == [1, 2]
    whole = nova("doctor", "--repair").out
    assert whole == "Nothing to repair: 2 files of 2 blocks are intact, and Dagster shows the commits of the catalog.\n"


@pytest.mark.dagster
@pytest.mark.filterwarnings("ignore")
def test_a_catalog_restored_from_a_backup_is_what_dagster_shows_again(
    nova: Nova, store: Store, dagster_home: Path, folder: Path
) -> None:
    catalog, backup = folder / ".nova" / "catalog.db", folder / "backup.db"
    with closing(sqlite3.connect(catalog)) as of, closing(sqlite3.connect(backup)) as to:
        of.backup(to)
    store.insert("stock", [{"item": "salt", "count": 3}])
    assert nova("doctor", "--repair").code == 0 and dagster_sequence_numbers("stock") == [1, 2, 3]
    store.close()
    for left in catalog.parent.glob("catalog.db*"):
        left.unlink()
    shutil.copy(backup, catalog)
    output = nova("doctor", "--repair", "--dry-run")
    assert "Dagster has 1 materialization of stock from commits that the catalog does not contain" in output.out
    assert nova("doctor", "--repair").code == 0 and dagster_sequence_numbers("stock") == [1, 2]


@pytest.mark.dagster
@pytest.mark.crash
@pytest.mark.parametrize(
    "point", ["repair.given_up", "repair.moving", "repair.moving:2", "repair.unmarked", "repair.wiped"]
)
def test_one_that_is_killed_anywhere_is_finished_by_the_next(
    nova: Nova, nova_forked: Nova, store: Store, dagster_home: Path, point: str
) -> None:
    """An event too many, two orphans, and a block without its file that nobody misses."""
    import dagster as dg

    with dg.DagsterInstance.get() as instance:
        unknown = dg.AssetMaterialization("stock", metadata={"nova/commit": "of-another-catalog", "nova/seq": 9})
        instance.report_runless_asset_event(unknown)
    lost = [write_orphan_file(store, "lost1"), write_orphan_file(store, "lost2")]
    store.insert("stock", [{"item": "tea", "count": 8}], kind="base")
    files(store, 1)[0].unlink()  # of before the base: nobody misses it
    killed = nova_forked("doctor", "--repair", NOVA_CRASH_AT=point, NOVA_PROJECT=os.environ["NOVA_PROJECT"])
    assert killed.code == -9, killed.err
    assert nova("doctor", "--repair", "--dry-run").code == 1, "it says what is left to do"
    done = nova("doctor", "--repair")
    assert done.code == 0, done.out
    assert "Nothing to repair" in nova("doctor", "--repair").out
    assert not any(f.exists() for f in lost) and dagster_sequence_numbers("stock") == [1, 2, 3]
    assert [b.range for b in store.catalog.histories.of("stock").blocks] == ["Δ(1→2)", "B3"]
