"""Answers that are none of the service's, such as the page of a proxy, are told as such by the client."""

from __future__ import annotations

import httpx
import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.errors import ServiceUnavailable


@pytest.mark.parametrize("body", ["<html>sign in</html>", "null", "{}", "[1]"])
def test_a_body_that_is_no_answer(body: str) -> None:
    with nova.connect("http://127.0.0.1:1") as connection:
        answer = httpx.MockTransport(lambda request: httpx.Response(200, text=body))
        connection._transport.http_client = httpx.Client(transport=answer)
        with pytest.raises(ServiceUnavailable, match="cannot be read"):
            connection.channel("c")
        with pytest.raises(ServiceUnavailable) as met:
            connection.insert("c", pa.table({"k": [1]}), idempotency_key="mine")
    assert met.value.fields["idempotency_key"] == "mine", "the insert may be committed: its key lets it be repeated"


def test_a_generator_is_no_list_of_a_definition() -> None:
    with pytest.raises(nova.DefinitionError, match="channels of nova"):
        nova.Project(channels=(c for c in [nova.Channel("c")]))  # type: ignore[arg-type]
