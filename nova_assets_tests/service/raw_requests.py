"""Requests whose address is sent unchanged, and assertions on refusals."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx

from nova_assets_tests import patient
from nova_assets_tests.service.served_deployment import ServedDeployment
from nova_assets_tests.service.small_app import send_raw


def send_raw_request(
    deployment: ServedDeployment, target: str, *headers: str, method: str = "GET", body: bytes = b""
) -> tuple[int, bytes]:
    """Send a request whose address stays unchanged. Returns its status and response."""
    length = [f"content-length: {len(body)}"] if body else []
    lines = [f"{method} {target} HTTP/1.1", f"host: {urlsplit(deployment.url).netloc}", *length, *headers]
    answer = send_raw(deployment.url, "\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1") + body)
    return (int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0), answer


def assert_no_server_paths(deployment: ServedDeployment, answer: bytes | str) -> None:
    """The response names neither a folder of the server nor its catalog."""
    text = answer.decode("latin-1") if isinstance(answer, bytes) else answer
    ours = ("catalog.db", "sqlite:", "site-packages", "nova_assets/", "Traceback", "/srv/", "hunter2")
    for secret in (str(deployment.folder), *ours):
        assert secret not in text, (secret, text)


def assert_problem(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    assert answer.status_code in statuses, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    return body


def list_blocks(deployment: ServedDeployment, channel: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = patient.get(f"{deployment.url}/v1/channels/{channel}/blocks").json()
    return found
