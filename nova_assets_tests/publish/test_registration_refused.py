"""Folders that cannot be registered in a Hive metastore are refused before anything changes. No server is asked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets_tests.publish.shop import Shop

pytestmark = pytest.mark.slow

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
