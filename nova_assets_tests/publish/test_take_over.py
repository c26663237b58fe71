"""A folder that other tools have filled and read becomes a channel's table, in place."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import nova_assets as nova
from nova_assets_tests.publish.shop import Shop, plain, rows

OLD = [("2024-01-01", "a/b", 1, 10), ("2024-01-01", "view", 2, 20), ("2024-01-02", "view", 3, 30)]


def fill(folder: Path) -> None:
    """As Spark or Hive leave it: partition columns in the names alone."""
    days = [str(date.fromisoformat(d)) for d, *_ in OLD]
    table = rows(*OLD).drop_columns(["dt"]).append_column("dt", pa.array(days))
    partitioning = ds.partitioning(pa.schema([("dt", pa.string()), ("action", pa.string())]), flavor="hive")
    ds.write_dataset(table, folder, format="parquet", partitioning=partitioning)
    for n, path in enumerate(sorted(folder.rglob("*.parquet"))):
        path.rename(path.with_name(f"{n:06d}_0"))
    (folder / "_SUCCESS").touch()


def in_folder(shop: Shop) -> list[tuple[str, str, int, int]]:
    """Rows of a folder whose partition columns are in the names alone."""
    return plain(ds.dataset(shop.resolved, partitioning="hive").to_table().to_pylist())


@pytest.mark.spark
def test_readers_find_the_same_as_before(spark: Any, tmp_path: Path) -> None:
    shop = Shop(tmp_path, spark=spark, publish=nova.hive("exports/actions"))
    fill(shop.folder)
    with pytest.raises(nova.TableTaken):
        shop.publish()
    assert shop.publish(take_over=True) == [("hive", 1, 1)]
    assert shop.folder.is_symlink() and in_folder(shop) == shop.in_channel() == OLD
    [before] = shop.folder.parent.glob("actions.before-*")
    assert ds.dataset(before, partitioning="hive").count_rows() == 3, "nothing of it is lost"
    shop.insert(("2024-01-03", "view", 4, 40))
    assert shop.publish() == [("hive", 2, 2)] and len(in_folder(shop)) == 4


def test_a_channel_that_has_data_is_shown_instead(tmp_path: Path) -> None:
    shop = Shop(tmp_path, publish=nova.hive("exports/actions"))
    shop.insert(("2024-01-05", "buy", 9, 90))
    fill(shop.folder)
    assert shop.publish(take_over=True) == [("hive", 1, 1)]
    assert in_folder(shop) == [("2024-01-05", "buy", 9, 90)]
    assert len(list(shop.folder.parent.glob("actions.before-*/**/*_0"))) == 3


def test_a_table_whose_metadata_hides_rows_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path, publish=nova.hive("exports/actions"))
    fill(shop.folder)
    (shop.folder / "_delta_log").mkdir()
    (shop.folder / "_delta_log" / "00000000000000000000.json").write_text("{}")
    with pytest.raises(nova.NotSupported, match="is a table of Delta Lake"):
        shop.publish(take_over=True)
    assert not shop.folder.is_symlink() and shop.store.catalog.definitions.channel("actions").head == 0
