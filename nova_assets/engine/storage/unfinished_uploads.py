"""Unfinished multipart uploads in S3, left by a process that died. They are not objects, but they use paid storage."""

from __future__ import annotations

from typing import Any

from nova_assets.engine.storage.warehouse import BLOCKS
from nova_assets.errors import NotSupported, WarehouseUnavailable
from nova_assets.model.address import split_store_address
from nova_assets.model.warehouse_contents import UnfinishedUpload
from nova_assets.s3_settings import s3_endpoint_and_region


def pending_uploads(address: str) -> list[UnfinishedUpload]:
    """Unfinished uploads below ``blocks/`` of a warehouse in S3.

    Raises:
        NotSupported: boto3 is not installed.
        WarehouseUnavailable: the listing fails.
    """
    client, bucket, root = _s3_client_bucket_prefix(address)
    try:
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=f"{root}{BLOCKS}/")
        uploads = [u for page in pages for u in page.get("Uploads", [])]
    except Exception as error:
        raise _unavailable_error(address, "be searched for unfinished uploads", error) from error
    return [UnfinishedUpload(u["Key"].removeprefix(root), u["UploadId"], u["Initiated"]) for u in uploads]


def abort_upload(address: str, upload: UnfinishedUpload) -> None:
    """Abort an upload and free the space of its parts. Idempotent.

    Raises:
        NotSupported, WarehouseUnavailable.
    """
    client, bucket, root = _s3_client_bucket_prefix(address)
    try:
        client.abort_multipart_upload(Bucket=bucket, Key=f"{root}{upload.path}", UploadId=upload.id)
    except client.exceptions.NoSuchUpload:
        return
    except Exception as error:
        raise _unavailable_error(address, "be cleaned up", error) from error


def _s3_client_bucket_prefix(address: str) -> tuple[Any, str, str]:
    """S3 client, bucket, and key prefix of the warehouse."""
    try:
        import boto3
    except ModuleNotFoundError as error:
        raise NotSupported(
            "unfinished uploads cannot be listed: boto3 is not installed",
            found=str(error),
            next="pip install 'nova-assets[s3]'",
        ) from error
    endpoint, region = s3_endpoint_and_region()
    _, bucket, prefix = split_store_address(address)
    return boto3.client("s3", endpoint_url=endpoint, region_name=region), bucket, f"{prefix}/" if prefix else ""


def _unavailable_error(address: str, failed_action: str, error: Exception) -> WarehouseUnavailable:
    return WarehouseUnavailable(
        f"the warehouse {address} cannot {failed_action}",
        found=str(error).split("\n")[0],
        expected="credentials that may list and abort uploads in parts (s3:ListBucketMultipartUploads, "
        "s3:AbortMultipartUpload)",
        next="check AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL; then: nova doctor",
        warehouse=address,
    )
