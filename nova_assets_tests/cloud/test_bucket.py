"""Files that arrive in an S3 bucket, over HTTP: announced by a queue, found without one, gone or changed meanwhile."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import boto3
import pytest

import nova_assets as nova
from nova_assets_tests.sources.landing import DDL, row

pytestmark = pytest.mark.slow

LOCATION = "s3://logs/raw"


class Cloud:
    """A bucket with a queue that is told of what is put there, and a store with a channel that is fed from it."""

    def __init__(self, home: Path, endpoint: str, **options: Any) -> None:
        self.s3: Any = boto3.client("s3", endpoint_url=endpoint)
        self.sqs: Any = boto3.client("sqs", endpoint_url=endpoint)
        self.s3.create_bucket(Bucket="logs")
        self.queue = self.sqs.create_queue(QueueName="arrivals")["QueueUrl"]
        source = nova.files(LOCATION, queue="arrivals", **options)
        self.channel = nova.Channel("actions", schema=DDL, source=source)
        project = nova.Project(channels=[self.channel])
        self.store = nova.open(project, catalog=f"sqlite:///{home}/c.db", warehouse=home / "wh")

    def put(self, name: str, *rows: Any, tell: bool = True) -> None:
        content = "\n".join(json.dumps(r) for r in rows).encode()
        body = gzip.compress(content) if name.endswith(".gz") else content
        etag = self.s3.put_object(Bucket="logs", Key=f"raw/{name}", Body=body)["ETag"].strip('"')
        if tell:
            self.tell(name, len(body), etag)

    def tell(self, name: str, size: int, etag: str) -> None:
        found = {"key": quote_plus(f"raw/{name}"), "size": size, "eTag": etag}
        self.say({"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "logs"}, "object": found}}]})

    def say(self, body: Any) -> None:
        self.sqs.send_message(QueueUrl=self.queue, MessageBody=body if isinstance(body, str) else json.dumps(body))

    def left(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        asked = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)
        return sum(int(asked["Attributes"][n]) for n in names)

    def ids(self) -> list[int]:
        return sorted(self.store.read("actions").to_arrow().column("id").to_pylist())


@pytest.fixture
def cloud(endpoint: str, tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path, endpoint)
    yield made
    made.store.close()


def test_what_the_queue_tells_of_is_taken_once_and_acknowledged_after(cloud: Cloud) -> None:
    cloud.put("a.json", row(1))
    cloud.put("2024/01/01/00/b c+é.json.gz", row(2), row(3))
    cloud.put("_SUCCESS")
    cloud.put("never told.json", row(9), tell=False)
    found = cloud.store.receive("actions", look=False)
    assert (found.announced, found.rows) == (2, 3) and cloud.ids() == [1, 2, 3]
    assert cloud.left() == 0
    cloud.put("a.json", row(1))  # the same content: a repeated upload
    assert cloud.store.receive("actions", look=False).announced == 0 and cloud.left() == 0
    assert cloud.store.receive("actions").rows == 1, "what was never announced is found by looking"
    assert cloud.ids() == [1, 2, 3, 9]


def test_every_way_in_which_an_event_comes(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    def put(name: str, n: int) -> dict[str, Any]:
        cloud.put(name, row(n), tell=False)
        head = cloud.s3.head_object(Bucket="logs", Key=f"raw/{name}")
        return {"key": f"raw/{name}", "size": head["ContentLength"], "etag": head["ETag"].strip('"')}

    bridge = {"detail-type": "Object Created", "detail": {"bucket": {"name": "logs"}, "object": put("a.json", 1)}}
    cloud.say(bridge)
    found = put("b.json", 2)
    record = {"key": found["key"], "size": found["size"], "eTag": found["etag"]}
    inner = {"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "logs"}, "object": record}}]}
    cloud.say({"Type": "Notification", "Message": json.dumps(inner)})
    cloud.say({"Event": "s3:TestEvent"})
    removed = {"eventName": "ObjectRemoved:Delete", "s3": {"bucket": {"name": "logs"}, "object": {"key": "raw/x.json"}}}
    cloud.say({"Records": [removed]})
    cloud.say("what is this?")
    assert cloud.store.receive("actions", look=False).rows == 2
    assert cloud.left() == 1, "what nobody can read is left for the dead-letter queue"
    assert "what is this?" in caplog.text


def test_an_object_that_is_gone_or_changed_meanwhile(cloud: Cloud) -> None:
    cloud.tell("gone.json", 3, "0" * 32)
    cloud.put("a.json", row(1))
    cloud.put("a.json", row(2), row(3))
    assert cloud.store.receive("actions", look=False).rows == 2
    assert cloud.ids() == [2, 3] and cloud.left() == 0
    assert sorted(s.state for s in cloud.store.arrivals("actions")) == ["gone", "gone", "taken"]


def test_a_bucket_or_queue_that_does_not_answer_is_told(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.put("a.json", row(1))
    cloud.sqs.delete_queue(QueueUrl=cloud.queue)
    with pytest.raises(nova.SourceUnavailable, match="s3://logs/raw does not answer") as met:
        cloud.store.receive("actions")
    assert "credentials" in str(met.value.next)
    assert cloud.store.arrivals("actions") == []
