"""Who may only write is told nothing of a channel's columns and types, whatever is wrong with the rows."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from nova_assets.service.http.asgi import ARROW, LINES
from nova_assets_tests import patient
from nova_assets_tests.service.served_deployment import (
    CHANNELS,
    ServedDeployment,
    encode_arrow_stream,
    serve_deployment,
)

pytestmark = pytest.mark.slow

NAMES = ("stock", "events", "quokka_ledger", "later")
TYPES = re.compile(r"\b(bigint|string|double|date|timestamp|int64|float64|date32|large_string|nullable)\b")

VALUES: dict[str, list[Any]] = {
    "a null": [None],
    "text": ["x"],
    "a number": [1],
    "a fraction": [1.5],
    "a list": [[1]],
    "a day": [date(1999, 1, 1)],
    "one value twice": [7, 7],
}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDeployment]:
    with serve_deployment(tmp_path_factory.mktemp("service"), auth="tokens") as made:
        yield made


def insert_bodies(channel: str) -> Iterator[tuple[set[str], str, bytes]]:
    """(columns that are sent, content type, body): wrong columns, wrong types, nulls, keys twice, no rows at all."""
    schema = CHANNELS[channel].schema
    names = () if schema is None else schema.names
    sent = [(), ("nonsense",), names[:1], names[1:2], names[-1:], names, (*names, "nonsense"), (*names, "_deleted")]
    for columns, values in itertools.product(dict.fromkeys(sent), VALUES.values()):
        table = pa.table({name: pa.array(values) for name in columns})
        lines = "\n".join(json.dumps(dict.fromkeys(columns, value), default=str) for value in values)
        yield set(columns), ARROW, encode_arrow_stream(table)
        yield set(columns), LINES, lines.encode()
    for broken in (b"", b"{", b"[1]", b"null", b'{"sku": 1e999}', b'{"sku": "\\ud800"}'):
        yield {"sku"}, LINES, broken


@pytest.mark.parametrize("channel", NAMES)
def test_a_refusal_names_no_column_that_was_not_sent_and_no_type(deployment: ServedDeployment, channel: str) -> None:
    token = deployment.add_token_header(f"writes-{channel}", write=(channel,))
    schema = CHANNELS[channel].schema
    columns = set() if schema is None else set(schema.names)
    refused = 0
    with httpx.Client(base_url=deployment.url, headers=token, timeout=30) as http:
        address = f"/v1/channels/{channel}/blocks"
        for n, (sent, kind, body) in enumerate(insert_bodies(channel)):
            given = {"dry_run": "true", **([{}, {"partition": "dt=nonsense"}, {"kind": "base"}][n % 3])}
            answer = http.post(address, params=given, content=body, headers={"content-type": kind})
            if answer.status_code == 200:
                assert answer.json()["columns"] == []
                continue
            refused += 1
            told = {**answer.json(), "request_id": "", "channel": ""}
            words = json.dumps(told).replace(channel, "")
            hidden = [name for name in columns - sent - {"name"} if re.search(rf"\b{name}\b", words)]
            assert answer.status_code in (400, 409, 415, 422), answer.text
            assert not hidden and not TYPES.search(words), answer.text
    assert refused > 20 or channel == "later"


def test_who_may_also_read_is_told_what_is_wrong(deployment: ServedDeployment) -> None:
    """And the code is the same for both, so that programs can tell the kinds of mistakes apart."""
    body = encode_arrow_stream(pa.table({"sku": ["x"], "name": ["a"], "price": [1.0]}))
    answers = [
        patient.post(
            f"{deployment.url}/v1/channels/stock/blocks", content=body, headers={**token, "content-type": ARROW}
        )
        for token in (
            deployment.add_token_header("both", write=("stock",), read=("stock",)),
            deployment.add_token_header("w", write=("stock",)),
        )
    ]
    both, writer = (a.json() for a in answers)
    assert both["code"] == writer["code"] == "NOVA-SCHEMA-MISMATCH" and answers[0].status_code == 422
    assert "sku" in json.dumps(both) and "bigint" in json.dumps(both)
    assert writer["detail"] == "the rows do not have the columns and types of channel 'stock'"
    assert writer["next"].startswith("ask someone who may read the channel for its schema")


def test_nothing_of_a_refused_insert_stays(deployment: ServedDeployment, tmp_path: Path) -> None:
    before = deployment.file_digests(), deployment.unfinished_executions()
    token = deployment.add_token_header("again", write=("stock",))
    body = encode_arrow_stream(pa.table({"wrong": [1]}))
    patient.post(f"{deployment.url}/v1/channels/stock/blocks", content=body, headers={**token, "content-type": ARROW})
    assert (deployment.file_digests(), deployment.unfinished_executions()) == before
