"""One client, as a process of its own: asks for partitions at random, one after the other, for some seconds.

    python -m benchmarks.timeline.asker

It reads a line with its job, says that it is ready, waits for another line, and prints the seconds of each lookup.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Look = Callable[[str], int]
"""The name of a partition -> how many files it has."""


def over_http(job: dict[str, Any]) -> Look:
    """A service, on a connection that stays; the answer is read, and not looked into but for its size."""
    import http.client

    from benchmarks.timeline.served import path

    connection = http.client.HTTPConnection(job["at"])

    def look(partition: str) -> int:
        connection.request("GET", path("files", partition=partition, known=job["known"], fresh="false"))
        response = connection.getresponse()
        text = response.read()
        assert response.status == 200, text
        return text.count(b'"path":')

    return look


def in_catalog(job: dict[str, Any]) -> Look:
    """The catalog itself, as who plans a read asks it."""
    from nova_assets.catalog.open_catalog import open_catalog

    catalog, head = open_catalog(job["at"]), job["head"]

    def look(partition: str) -> int:
        found = catalog.histories.of(job["channel"], head, partition, back_to=head)
        return sum(len(b.manifest.files) for b in found.blocks)

    return look


def in_process(job: dict[str, Any]) -> Look:
    """Views in this process, without HTTP."""
    from nova_assets.catalog.open_catalog import open_catalog
    from nova_assets.file_views.query_handler import ViewQueryHandler
    from nova_assets.file_views.sqlite_storage import open_storage
    from nova_assets.file_views.timeline_follower import TimelineFollower
    from nova_assets.model.timeline import TimelinePosition

    catalog = open_catalog(job["catalog"])
    storage = open_storage(job["storage"], Path(job["at"]), 64 * 2**20, catalog.identity.get())
    desk, known = ViewQueryHandler(TimelineFollower(catalog, storage)), TimelinePosition.parse(job["known"])

    def look(partition: str) -> int:
        return desk.files_answer(job["channel"], partition, None, known, allow_stale=True).count(b'"path":')

    return look


def in_folders(job: dict[str, Any]) -> Look:
    """A tree of folders, with the size of each file: who reads them needs that, and the service tells it, too."""
    root = job["at"]

    def look(partition: str) -> int:
        with os.scandir(os.path.join(root, partition)) as found:
            return len([(f.path, f.stat().st_size) for f in found])

    return look


def in_bucket(job: dict[str, Any]) -> Look:
    """A bucket, listed by prefix."""
    import boto3

    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=job["at"], **keys)

    def look(partition: str) -> int:
        found = client.list_objects_v2(Bucket=job["bucket"], Prefix=f"{partition}/")
        return len([(o["Key"], o["Size"]) for o in found["Contents"]])

    return look


WAYS: dict[str, Callable[[dict[str, Any]], Look]] = {
    "service": over_http,
    "catalog": in_catalog,
    "process": in_process,
    "folders": in_folders,
    "bucket": in_bucket,
}


def main() -> None:
    job = json.loads(sys.stdin.readline())
    look, partitions, files = WAYS[job["way"]](job), job["partitions"], job["files"]
    rng, seconds = random.Random(job["seed"]), []
    for partition in rng.sample(partitions, min(5, len(partitions))):
        look(partition)
    print("ready", flush=True)
    sys.stdin.readline()
    now = began = time.perf_counter()
    while now - began < job["seconds"]:
        found = look(rng.choice(partitions))
        assert found >= files, f"{found} files"
        before, now = now, time.perf_counter()
        seconds.append(now - before)
    print(json.dumps({"seconds": seconds, "wall": now - began}), flush=True)


if __name__ == "__main__":
    main()
