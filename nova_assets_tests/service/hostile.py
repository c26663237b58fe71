"""Requests whose address is sent unchanged, and assertions on refusals."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx

from nova_assets_tests import patient
from nova_assets_tests.service.deployed import Deployed
from nova_assets_tests.service.small_app import raw


def asked(there: Deployed, target: str, *headers: str, method: str = "GET", body: bytes = b"") -> tuple[int, bytes]:
    """(status, answer) of a request whose address is sent as it is."""
    length = [f"content-length: {len(body)}"] if body else []
    lines = [f"{method} {target} HTTP/1.1", f"host: {urlsplit(there.url).netloc}", *length, *headers]
    answer = raw(there.url, "\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1") + body)
    return (int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0), answer


def tells_no_place(there: Deployed, answer: bytes | str) -> None:
    """It names no folder of the machine, nor the catalog."""
    text = answer.decode("latin-1") if isinstance(answer, bytes) else answer
    ours = ("catalog.db", "sqlite:", "site-packages", "nova_assets/", "Traceback", "/srv/", "hunter2")
    for secret in (str(there.folder), *ours):
        assert secret not in text, (secret, text)


def refused(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    assert answer.status_code in statuses, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    return body


def _blocks(there: Deployed, channel: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = patient.get(f"{there.url}/v1/channels/{channel}/blocks").json()
    return found
