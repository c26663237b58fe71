"""Folders and tables of others are neither replaced nor deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.model.published_version import PublishedContent
from nova_assets.publish.hive import HivePublishTarget
from nova_assets.publish.target import Edition
from nova_assets_tests.publish.shop import FIRST, Shop

pytestmark = pytest.mark.slow


def test_what_is_somebody_elses_is_left_alone(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.folder.mkdir(parents=True)
    (shop.folder / "precious.parquet").write_bytes(b"theirs")
    with pytest.raises(nova.TableTaken, match="exists already") as caught:
        shop.publish()
    assert "--take-over" in str(caught.value)
    assert (shop.folder / "precious.parquet").read_bytes() == b"theirs"
    assert shop.in_iceberg() == FIRST, "the other table is shown all the same"


def test_two_deployments_cannot_publish_in_one_place(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> None:
    shop.insert(*FIRST)
    shop.publish()
    other = Shop(tmp_path_factory.mktemp("other"), publish=nova.hive(str(shop.folder)))
    other.insert(*FIRST[:1])
    with pytest.raises(nova.TableTaken, match="does not belong to this channel"):
        other.publish()
    assert shop.in_folder() == FIRST


@pytest.mark.core
@pytest.mark.parametrize("place", ["wh/blocks/x", "wh", "."])
def test_not_in_the_warehouse(tmp_path: Path, place: str) -> None:
    shop = Shop(tmp_path, publish=nova.hive(str(tmp_path / place)))
    shop.insert(*FIRST)
    with pytest.raises(nova.TableTaken):
        shop.publish()
    assert shop.in_channel() == FIRST


def test_a_folder_that_cannot_be_written(shop: Shop) -> None:
    shop.insert(*FIRST)
    (shop.root / "exports").write_text("a file is here")
    with pytest.raises(nova.TableUnavailable, match="cannot be published in"):
        shop.publish()
    (shop.root / "exports").unlink()
    assert [kind for kind, _, _ in shop.publish()] == ["hive"]
    assert shop.in_folder() == FIRST


def test_a_link_that_somebody_removed_is_made_again(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.publish()
    shop.folder.unlink()
    assert shop.publish() == [("hive", 2, 1)]
    assert shop.in_folder() == FIRST


@pytest.mark.core
@pytest.mark.parametrize("name", [".nova", "nova", "wh", "github"])
def test_nothing_of_anybody_is_taken_for_editions(tmp_path: Path, name: str) -> None:
    shop = Shop(tmp_path, publish=nova.hive(name))
    shop.insert(*FIRST)
    theirs = [tmp_path / f".{name}.editions" / "precious", tmp_path / ".github" / "workflow"]
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.write_text("theirs")
    with pytest.raises(nova.TableTaken):
        shop.publish()
    with pytest.raises(nova.TableTaken):
        shop.store.unpublish("actions")
    assert all(path.read_text() == "theirs" for path in theirs) and shop.in_channel() == FIRST


@pytest.mark.core
def test_a_link_is_never_taken_over(shop: Shop) -> None:
    shop.insert(*FIRST)
    (shop.root / "elsewhere").mkdir()
    shop.folder.parent.mkdir()
    shop.folder.symlink_to(shop.root / "elsewhere")
    with pytest.raises(nova.TableTaken, match="a link to"):
        shop.publish(take_over=True)
    assert shop.folder.resolve() == shop.root / "elsewhere"


def test_a_late_process_turns_nobody_back(shop: Shop) -> None:
    """It has slept through its lease, with its edition made and not shown."""
    shop.insert(*FIRST)
    shop.publish()
    late = HivePublishTarget(
        shop.folder, (), json.loads((shop.folder.parent / ".actions.editions/.nova.json").read_text())["of"]
    )
    content = PublishedContent("actions", 1, shop.store.catalog.definitions.channel("actions").schema, (), ())  # type: ignore[arg-type]
    shop.insert(("2024-01-02", "view", 4, 40))
    shop.publish()
    for number in (1, 2):
        with pytest.raises(nova.CommitConflict, match="a later version"):
            late.publish(Edition(number, content, []))
    assert len(shop.in_folder()) == 4
    shop.store.catalog.published_versions.delete(
        "actions", "hive:exports/actions", [1, 2]
    )  # as of a catalog from a backup
    assert ("hive", 3, 2) in shop.publish()


def test_what_died_before_it_signed_is_nobodys(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.folder.with_name(".actions.editions").mkdir(parents=True)
    shop.publish()
    assert shop.in_folder() == FIRST


def test_withdrawn_is_gone_and_nothing_else_is(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.publish()
    assert shop.store.unpublish("actions", "hive:exports/actions") == ["hive:exports/actions"]
    assert list((shop.root / "exports").iterdir()) == []
    assert shop.in_iceberg() == shop.in_channel() == FIRST
    shop.store.unpublish("actions")
    assert not [p for p in (shop.root / ".nova/iceberg/tables").rglob("*") if p.is_file()]
    assert shop.store.published("actions") == [] and shop.in_channel() == FIRST
    with pytest.raises(nova.DefinitionError, match="not published in"):
        shop.store.unpublish("actions", "hive:elsewhere")
    assert shop.publish() == [("hive", 1, 1), ("iceberg", 1, 1)]


# folders that cannot be registered in a Hive metastore are refused before anything changes. No server is asked

NOWHERE = {"metastore": "thrift://no.such.host:9083", "table": "shop.actions"}


@pytest.mark.core
def test_a_folder_that_is_taken_over_keeps_its_columns_so_it_is_not_registered(tmp_path: Path) -> None:
    old = tmp_path / "exports" / "actions" / "dt=2024-01-01" / "action=view" / "part-0.parquet"
    old.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1], "n": [10]}), old)
    before = old.read_bytes()
    shop = Shop(tmp_path, publish=nova.hive("exports/actions", **NOWHERE))
    with pytest.raises(nova.NotSupported, match="because it was taken over"):
        shop.publish(take_over=True)
    assert old.read_bytes() == before and not shop.folder.is_symlink()
    assert [c.head for c in shop.store.channels()] in ([], [0]), "nothing was imported"


@pytest.mark.core
def test_a_folder_in_an_object_store_is_not_registered() -> None:
    with pytest.raises(nova.DefinitionError, match="only a folder on a disk can have"):
        nova.hive("s3://lake/exports/actions", **NOWHERE)
