"""An object store over HTTP, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
from moto.server import ThreadedMotoServer

from nova_assets.engine.storage import file_io
from nova_assets_tests.cloud.faulty_s3 import FaultyS3

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "no_proxy": "*",
}


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that speaks S3 and SQS, which everything finds by the usual variables."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = f"http://{host}:{port}"
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": found}.items():
        monkeypatch.setenv(name, value)
    urlopen(Request(f"{found}/moto-api/reset", method="POST")).close()  # what servers before it had is kept otherwise
    yield found
    server.stop()


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """A server of S3 that counts requests, with an empty bucket ``lake``."""
    with FaultyS3() as server:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": server.endpoint}.items():
            monkeypatch.setenv(name, value)
        urlopen(Request(f"{server.endpoint}/moto-api/reset", method="POST")).close()
        file_io._patient_s3.cache_clear()
        boto3.client("s3", endpoint_url=server.endpoint).create_bucket(Bucket="lake")
        server.counted()
        yield server
        file_io._patient_s3.cache_clear()


@pytest.fixture
def s3(endpoint: str) -> Iterator[Any]:
    """A client of it, while no other is remembered."""
    file_io._patient_s3.cache_clear()
    yield boto3.client("s3", endpoint_url=endpoint)
    file_io._patient_s3.cache_clear()
