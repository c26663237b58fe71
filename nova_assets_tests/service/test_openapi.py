"""The service against its own description, asked by a machine: nothing is undocumented, nothing fails, and nobody
learns or changes more than their token allows.

NOVA_TEST_EXAMPLES=200 asks each address so many times more than the few that it takes to see that all is well.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig

from nova_assets.service.app import make_app
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.media_types import ARROW, LINES, PARQUET
from nova_assets_tests.service.deployed import CHANNELS, HIDDEN, Deployed, deployed, rows_of, stream_of

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("NOVA_TEST_EXAMPLES", "6"))


@dataclass
class _Described:
    """As much of a service as its description takes."""

    config: ServiceConfig


DESCRIPTION = make_app(cast(Any, _Described(ServiceConfig()))).openapi()

CONFIG = {
    "seed": 8,
    "generation": {
        "max-examples": EXAMPLES,
        "deterministic": True,
        "database": "none",
        "no-shrink": EXAMPLES < 50,
        # Tokens are those of the tests.
        "with-security-parameters": False,
    },
    "phases": {
        # What was answered before, which is full of new ids, would make each run another one.
        "fuzzing": {"extra-data-sources": {"responses": False}, "error-feedback": {"enabled": False}},
    },
    "checks": {
        # What is well formed may not go together with what is there (numbers, partitions, columns, keys), or be too
        # long when it is put together.
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "401", "403", "404", "409", "410", "414", "415", "422"]
        },
        # Nothing is made at an address of its own, nor deleted there, nor does anybody own an object.
        "use_after_free": {"enabled": False},
        "ensure_resource_availability": {"enabled": False},
        "object_level_authorization": {"enabled": False},
        # What is refused may be too much as well.
        "negative_data_rejection": {
            "expected-statuses": ["400", "401", "403", "404", "405", "409", "410", "414", "415", "422", "431"]
        },
        # No header is required.
        "missing_required_header": {"enabled": False},
    },
}
schema = schemathesis.openapi.from_dict(DESCRIPTION, config=SchemathesisConfig.from_dict(CONFIG))

# As it stands, no token is asked for; the description tells where one belongs.
_PATHS = {
    path: {m: {k: v for k, v in operation.items() if k != "security"} for m, operation in item.items()}
    for path, item in DESCRIPTION["paths"].items()
}
anonymous = schemathesis.openapi.from_dict(
    {**DESCRIPTION, "paths": _PATHS}, config=SchemathesisConfig.from_dict(CONFIG)
)

NAME = re.compile("[A-Za-z_][A-Za-z0-9_]{0,127}")
ID = re.compile("[0-9a-f]{32}")
SESSION = requests.Session()
HEALTH = ("/healthz", "/readyz")
POSITION = re.compile("[0-9]{1,9}-([0-9a-f]{64})?")
PARTITIONS = ("dt=2024-01-01/site=a", "site=a", "dt=2024-01-02", "wombat_site=numbat_a", "dt=2030-01-01", "nothing=1")


def _bodies(table: pa.Table) -> list[bytes]:
    whole = stream_of(table)
    return [whole, whole[: len(whole) // 2], b""]


for _type in (ARROW, PARQUET, LINES):
    _some = [*_bodies(rows_of("stock", 1, 2)), *_bodies(rows_of("events", 1, 2)), b'{"sku": 1}\n', b"PAR1PAR1"]
    schemathesis.openapi.media_type(_type, st.one_of(st.sampled_from(_some), st.binary(max_size=64)))


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(tmp_path_factory.mktemp("open"), auth="none") as there:
        yield there


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(tmp_path_factory.mktemp("guarded"), auth="tokens") as there:
        others = [c for c in CHANNELS if c != "events"]
        before, cursors, firings = there.standing(*others), there.store.cursors(), there.store.catalog.firings()
        yield there
        assert there.standing(*others) == before, "what nobody had a right to write or operate is as it was"
        assert [c for c in there.store.cursors() if c.channel != "events"] == cursors
        assert there.store.catalog.firings() == firings
        assert {i.action for i in there.store.timeline("events")} == {"commit"}, "nobody had a right to more"


@dataclass
class Caller:
    """Who asks with a token, and what they must not be told."""

    there: Deployed
    headers: dict[str, str]
    secrets: set[str]


@pytest.fixture(scope="module")
def reader(guarded: Deployed) -> Caller:
    secrets = guarded.secrets("events", "totals", *HIDDEN)
    return Caller(guarded, guarded.token("reader", read=("stock",)), secrets)


@pytest.fixture(scope="module")
def writer(guarded: Deployed) -> Caller:
    return Caller(guarded, guarded.token("writer", write=("events",)), guarded.secrets(*CHANNELS))


@pytest.fixture(scope="module")
def nobodies(guarded: Deployed) -> list[Caller]:
    """Those who may do nothing."""
    good, revoked = (guarded.token(name, read=("*",), operate=("*",)) for name in ("numbat-good", "numbat-revoked"))
    guarded.store.catalog.revoke_token("numbat-revoked")
    text = good["authorization"]
    told = [text[:-1], text.replace("Bearer", "Basic"), text.replace("nova_", "nova_0"), "Bearer", f"{text}, {text}"]
    headers = [{}, revoked, *({"authorization": t} for t in told)]
    secrets = guarded.secrets(*CHANNELS)
    return [Caller(guarded, h, secrets) for h in headers]


def test_what_is_served_is_what_is_described(open_to_all: Deployed) -> None:
    assert requests.get(f"{open_to_all.url}/v1/openapi.json", timeout=10).json() == DESCRIPTION


@anonymous.parametrize()
def test_who_may_do_everything(case: schemathesis.Case, open_to_all: Deployed) -> None:
    aim(case, open_to_all)
    check(case, open_to_all, {})


@schema.parametrize()
def test_who_may_read_one_channel(case: schemathesis.Case, reader: Caller) -> None:
    aim(case, reader.there)
    learns_nothing(case, check(case, reader.there, reader.headers), reader.secrets)


@schema.parametrize()
def test_who_may_write_one_channel_and_operate_none(case: schemathesis.Case, writer: Caller) -> None:
    aim(case, writer.there)
    answer = check(case, writer.there, writer.headers)
    learns_nothing(case, answer, writer.secrets)
    if answer.status_code == 200 and case.method != "GET":
        assert (case.path, case.path_parameters["channel"]) == ("/v1/channels/{channel}/blocks", "events")


@schema.parametrize()
def test_who_has_no_good_token(case: schemathesis.Case, nobodies: list[Caller]) -> None:
    nobody = nobodies[aim(case, nobodies[0].there) % len(nobodies)]
    answer = check(case, nobody.there, nobody.headers)
    assert answer.status_code == 401 or case.path in HEALTH or answer.status_code in (400, 413, 414, 431)
    learns_nothing(case, answer, nobody.secrets)


def check(case: schemathesis.Case, there: Deployed, headers: dict[str, str]) -> schemathesis.Response:
    """Ask, and see that what is answered is as it was described."""
    answer = case.call(base_url=there.url, headers=headers, session=SESSION)
    if answer.status_code == 503 and answer.json()["code"] == "NOVA-ENGINE-UNAVAILABLE":
        return answer  # once a base was inserted, changes are compared by Spark, which this deployment does not have
    case.validate_response(answer, headers=headers)
    return answer


def learns_nothing(case: schemathesis.Case, answer: schemathesis.Response, secrets: set[str]) -> None:
    """Nothing is told that was not in the question."""
    asked = unquote(f"{answer.request.url} {case.body!r} {answer.request.headers}")
    told = answer.content + repr(answer.headers).encode()
    if answer.status_code == 200 and ARROW in answer.headers["content-type"]:
        told += repr(pa.ipc.open_stream(answer.content).read_all().to_pylist()).encode()
    found = [secret for secret in secrets if secret.encode() in told and secret not in asked]
    assert not found, (found, case.as_curl_command(), told)


def aim(case: schemathesis.Case, there: Deployed) -> int:
    """Most of what is made up fits nothing that is there: have it ask for that, where it is well formed."""
    dice = zlib.crc32(repr((case.path_parameters, case.query, case.body)).encode())
    names = [*CHANNELS, "nothing"]
    channel = names[dice % len(names)]
    if NAME.fullmatch(str(case.path_parameters.get("channel", ""))):
        case.path_parameters["channel"] = channel
    if ID.fullmatch(str(case.path_parameters.get("execution", ""))):
        executions = there.store.executions()
        case.path_parameters["execution"] = executions[dice % len(executions)].id
    query = case.query
    for name in ("at", "since", "back_to"):
        if isinstance(query.get(name), int) and query[name] >= 0:
            query[name] %= 6
    known = query.get("known")
    if isinstance(known, str) and POSITION.fullmatch(known) and dice % 3 and channel in CHANNELS:
        query["known"] = str(there.store.catalog.channel(channel).position)
    if isinstance(query.get("partition"), str) and dice % 3:
        query["partition"] = PARTITIONS[dice % len(PARTITIONS)]
    if isinstance(query.get("column"), list) and all(isinstance(c, str) for c in query["column"]) and dice % 3:
        query["column"] = ["sku", "price", "n"][: dice % 4]
    return dice
