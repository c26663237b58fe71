"""Inbox of an S3 bucket. Events in an SQS queue announce objects, and boto3 reads them.

Boto3's adaptive retries handle throttling. They slow down all requests of the client.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from nova_assets.errors import BadRecord, SourceUnavailable
from nova_assets.formats.input_file import InputFile
from nova_assets.masking import get_logger
from nova_assets.model.arrival import Arrival
from nova_assets.model.file_source import Files
from nova_assets.sources.inbox import Notice, SourceFileChanged, SourceFileMissing, folders_to_list

log = get_logger("nova_assets.ingest")

_MESSAGES_PER_REQUEST = 10  # the maximum of SQS
_CHUNK_BYTES = 1 << 20
_MISSING_CODES = ("NoSuchKey", "404", "NotFound")
_CHANGED_CODES = ("PreconditionFailed", "412")
_FORBIDDEN_CODES = ("AccessDenied", "403", "InvalidObjectState")


class S3Inbox:
    """Inbox of an S3 bucket or of a prefix in it.

    Boto3 finds the endpoint and the credentials as usual (``AWS_ENDPOINT_URL``, ``AWS_PROFILE``, ...).

    Args:
        source: declaration of the files, with a location ``s3://BUCKET/PREFIX`` and optionally a queue.
    """

    is_local = False

    def __init__(self, source: Files) -> None:
        self.source = source
        bucket, _, prefix = source.location.removeprefix("s3://").partition("/")
        self.bucket = bucket
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        settings = Config(retries={"mode": "adaptive", "max_attempts": 10})
        self.s3: Any = boto3.client("s3", config=settings)
        self.sqs: Any = boto3.client("sqs", config=settings) if source.queue is not None else None
        self._cached_queue_url: str | None = None

    def has_notices(self) -> bool:
        """Whether the queue has messages. False for a source without a queue."""
        if self.sqs is None:
            return False
        with self._translate_errors():
            name = "ApproximateNumberOfMessages"
            attributes = self.sqs.get_queue_attributes(QueueUrl=self._queue_url(), AttributeNames=[name])
            return int(attributes["Attributes"][name]) > 0

    def poll(self, limit: int) -> list[Notice]:
        """Receive events from the queue. Unreadable messages stay in the queue, for its dead-letter queue."""
        notices: list[Notice] = []
        if self.sqs is None:
            return notices
        with self._translate_errors():
            while len(notices) < limit:
                request = {
                    "QueueUrl": self._queue_url(),
                    "MaxNumberOfMessages": _MESSAGES_PER_REQUEST,
                    "WaitTimeSeconds": 0,
                }
                messages = self.sqs.receive_message(**request).get("Messages", [])
                notices += [n for m in messages if (n := self._notice_from_message(m)) is not None]
                if not messages:
                    break
        return notices

    def acknowledge(self, notices: Sequence[Notice]) -> None:
        """Delete the messages of the notices from the queue."""
        receipts = [n.receipt for n in notices]
        with self._translate_errors():
            for start in range(0, len(receipts), _MESSAGES_PER_REQUEST):
                entries = [
                    {"Id": str(n), "ReceiptHandle": r}
                    for n, r in enumerate(receipts[start : start + _MESSAGES_PER_REQUEST])
                ]
                self.sqs.delete_message_batch(QueueUrl=self._queue_url(), Entries=entries)

    def list_arrivals(self, now: datetime, last_listing_at: datetime | None) -> Iterator[Arrival]:
        """List every object under the prefixes of the last hours (see ``Inbox.list_arrivals``)."""
        pages = self.s3.get_paginator("list_objects_v2")
        for folder in folders_to_list(self.source, now, last_listing_at):
            prefix = f"{self.prefix}{folder}/" if folder else self.prefix
            with self._translate_errors():
                for page in pages.paginate(Bucket=self.bucket, Prefix=prefix):
                    for entry in page.get("Contents", []):
                        yield from self._arrivals_from_object(
                            entry["Key"], entry["Size"], entry["ETag"], entry["LastModified"]
                        )

    @contextmanager
    def fetch(self, arrival: Arrival) -> Iterator[InputFile]:
        """Download the object to a temporary file, which is deleted at the end of the block.

        Raises:
            BadRecord: the object is larger than the source allows, or may not be read.
            SourceFileMissing: the object no longer exists.
            SourceFileChanged: the object is no longer the announced version.
            SourceUnavailable: S3 does not answer, or the local disk is full.
        """
        if arrival.size > self.source.max_bytes:
            raise BadRecord(f"the object is larger than {self.source.max_bytes} bytes", found=f"{arrival.size} bytes")
        with tempfile.TemporaryDirectory(prefix="nova-arrival-") as folder:
            path = Path(folder, "object")
            with self._translate_errors(arrival):
                self._download_object(arrival, path)
            yield InputFile(path, arrival.path, self.source.max_bytes)

    def _download_object(self, arrival: Arrival, target: Path) -> None:
        request = {"Bucket": self.bucket, "Key": self.prefix + arrival.path, "IfMatch": _expected_etag(arrival)}
        body = self.s3.get_object(**request)["Body"]
        try:
            with target.open("wb") as out:
                for chunk in body.iter_chunks(_CHUNK_BYTES):
                    out.write(chunk)
        except OSError as error:
            raise SourceUnavailable(
                f"{arrival.path} cannot be copied to {target.parent.parent}",
                found=str(error),
                next="free some space there, or name another folder with TMPDIR",
                location=self.source.location,
            ) from error

    def close(self) -> None:
        """Close the connections."""
        for client in (self.s3, self.sqs):
            if client is not None:
                client.close()

    def _queue_url(self) -> str:
        if self._cached_queue_url is None:
            queue = str(self.source.queue)
            self._cached_queue_url = queue if "://" in queue else self.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        return self._cached_queue_url

    def _notice_from_message(self, message: Mapping[str, Any]) -> Notice | None:
        try:
            events = list(_created_objects_in_message(json.loads(message["Body"])))
        except (ValueError, KeyError, TypeError, AttributeError):
            log.warning(
                "a message of queue %s is not an event of S3, and stays in the queue: %.200r",
                self._cached_queue_url,
                message["Body"],
            )
            return None
        arrivals = [
            a
            for bucket, key, size, etag in events
            if bucket == self.bucket
            for a in self._arrivals_from_object(key, size, etag, None)
        ]
        return Notice(tuple(arrivals), message["ReceiptHandle"])

    def _arrivals_from_object(self, key: str, size: int, etag: str, modified: datetime | None) -> Iterator[Arrival]:
        path = key.removeprefix(self.prefix)
        if key.startswith(self.prefix) and self.source.takes(path) and not key.endswith("/"):
            yield Arrival(path, f"{size}-{etag.strip(chr(34))}", size, modified)

    @contextmanager
    def _translate_errors(self, arrival: Arrival | None = None) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            code = error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""
            if arrival is not None and code in _MISSING_CODES:
                raise SourceFileMissing(
                    f"{arrival.path}: the object was deleted before it was read", path=arrival.path
                ) from error
            if arrival is not None and code in _CHANGED_CODES:
                message = f"{arrival.path}: the object was changed after it was announced"
                raise SourceFileChanged(message, expected=arrival.version, path=arrival.path) from error
            if arrival is not None and code in _FORBIDDEN_CODES:
                raise BadRecord(f"{arrival.path}: the object may not be read", found=code) from error
            raise SourceUnavailable(
                f"{self.source.location} does not answer",
                found=str(error),
                expected="a readable bucket and queue",
                next="check the location, the queue and the credentials (aws sts get-caller-identity)",
                location=self.source.location,
            ) from error


def _expected_etag(arrival: Arrival) -> str:
    return f'"{arrival.version.partition("-")[2]}"'


class _CreatedObject(NamedTuple):
    bucket: str
    key: str
    size: int
    etag: str


def _created_objects_in_message(body: Any) -> Iterator[_CreatedObject]:
    """Created objects, with their sizes in bytes, in a message from S3, SNS or EventBridge.

    Raises:
        ValueError, KeyError: the message has none of these formats.
    """
    if body.get("Type") == "Notification":
        yield from _created_objects_in_message(json.loads(body["Message"]))
    elif body.get("Event") == "s3:TestEvent":
        return
    elif "detail" in body:
        if body.get("detail-type") == "Object Created":
            created_object = body["detail"]["object"]
            yield _CreatedObject(
                body["detail"]["bucket"]["name"],
                created_object["key"],
                int(created_object["size"]),
                created_object["etag"],
            )
    else:
        for record in body["Records"]:
            if record["eventName"].removeprefix("s3:").startswith("ObjectCreated:"):
                created_object = record["s3"]["object"]
                name = record["s3"]["bucket"]["name"]
                yield _CreatedObject(
                    name, unquote_plus(created_object["key"]), int(created_object["size"]), created_object["eTag"]
                )
