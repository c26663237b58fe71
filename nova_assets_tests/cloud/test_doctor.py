"""What the doctor says of a warehouse in an object store: it writes a probe, reads it back, and deletes it."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest

import nova_assets as nova
from nova_assets.engine.storage.remote_warehouse import open_warehouse
from nova_assets.store.repair import Repair
from nova_assets_tests.cloud.faulty_s3 import FaultyS3, Kind

pytestmark = pytest.mark.slow


@pytest.mark.core
def test_a_probe_is_written_read_and_deleted(faulty: FaultyS3) -> None:
    assert open_warehouse("s3://lake/wh").check_writable() == "s3://lake/wh (new)"
    counted = faulty.counted()
    assert counted["PUT"] and counted["GET"] and counted["DELETE"] + counted["HEAD"]


@pytest.mark.core
@pytest.mark.parametrize("kind", ["PUT", "GET", "DELETE"])
def test_what_is_denied_is_told(faulty: FaultyS3, kind: Kind) -> None:
    faulty.choose = lambda asked, path: "denied" if asked == kind else None
    with pytest.raises(nova.WarehouseUnavailable, match="s3://lake/wh") as told:
        open_warehouse("s3://lake/wh").check_writable()
    assert "ACCESS_DENIED" in str(told.value.found)
    assert faulty.faults["denied"] <= 2, "a denial is final: no request is repeated as if the store throttled it"


@pytest.mark.core
def test_a_denied_read_of_the_marker_is_told_at_once(faulty: FaultyS3) -> None:
    """The few bytes of a marker are shorter than the answer that denies them."""
    warehouse = open_warehouse("s3://lake/wh")
    warehouse.write_catalog_marker("c" * 32, "w")
    faulty.choose = lambda asked, path: "denied" if asked == "GET" else None
    with pytest.raises(nova.WarehouseUnavailable, match="ACCESS_DENIED"):
        warehouse.read_catalog_marker("c" * 32)
    assert faulty.faults["denied"] == 2, "the second request shows the status that Arrow hides in the first"
    throttled_once = iter(["fails", "fails"])
    faulty.choose = lambda asked, path: next(throttled_once, None) if asked == "GET" else None  # type: ignore[return-value]
    assert warehouse.read_catalog_marker("c" * 32) == "w", "a throttled read is still repeated"


@pytest.mark.core
def test_uploads_that_nobody_finished_are_found_and_aborted(faulty: FaultyS3, tmp_path: Path) -> None:
    s3 = boto3.client("s3", endpoint_url=faulty.endpoint)
    channel = nova.Channel("c", schema="k bigint")
    with nova.open(nova.Project(channels=[channel]), f"sqlite:///{tmp_path}/c.db", "s3://lake/wh") as store:
        store.insert("c", [{"k": 1}])
        for key in ("wh/blocks/dead/part-0.parquet", "wh/elsewhere", "other/blocks/x/y"):
            upload = s3.create_multipart_upload(Bucket="lake", Key=key)["UploadId"]
            s3.upload_part(Bucket="lake", Key=key, UploadId=upload, PartNumber=1, Body=b"x")
        repair = Repair(store.runtime, 3600.0)
        examination = repair.find_damages()
        [damage] = [d for d in examination.damages if d.kind == "upload"]
        assert damage.subject == "blocks/dead/part-0.parquet" and damage.cure == "abort"
        assert [o.mended for o in repair.repair_damages([damage])] == [True]
        assert [d for d in repair.find_damages().damages if d.kind == "upload"] == []
        left = s3.list_multipart_uploads(Bucket="lake")["Uploads"]
        assert sorted(u["Key"] for u in left) == ["other/blocks/x/y", "wh/elsewhere"], "others' are left"
