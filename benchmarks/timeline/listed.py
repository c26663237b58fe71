"""The same files as others find them: in a tree of folders, and in a bucket, one for each partition."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

BUCKET = "events"


def plant(root: Path, partitions: Sequence[str], files: int) -> None:
    """Empty files below folders that are named as Hive names them."""
    for partition in partitions:
        folder = root / partition
        folder.mkdir(parents=True)
        for n in range(files):
            (folder / _name(n)).touch()


@contextmanager
def bucket(partitions: Sequence[str], files: int) -> Iterator[str]:
    """A server that speaks S3, in this process, with as many objects; its address."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=url, **keys)
        client.create_bucket(Bucket=BUCKET)
        for partition in partitions:
            for n in range(files):
                client.put_object(Bucket=BUCKET, Key=f"{partition}/{_name(n)}", Body=b"")
        yield url
    finally:
        server.stop()


def _name(n: int) -> str:
    return f"part-{n:05d}-0123456789abcdef-c000.zstd.parquet"
