"""Hostile requests: addresses that lead elsewhere, wrong media types, archives, forged keys and positions."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import pytest

from nova_assets.service.http.asgi import ARROW, LINES, PARQUET
from nova_assets_tests.service.raw_requests import assert_no_server_paths, assert_problem, send_raw_request
from nova_assets_tests.service.served_deployment import (
    CHANNELS,
    HIDDEN,
    ServedDeployment,
    encode_arrow_stream,
    sample_rows,
)

pytestmark = pytest.mark.slow

FAR = "../../../../../../tmp/nova-was-here"


# --- addresses


@pytest.mark.core
@pytest.mark.parametrize("name", ["files", "data", "schema", "blocks"])
@pytest.mark.parametrize(
    "channel",
    [
        *("..", "../..", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "%2e%2e%2fstock", ".%2e/stock"),
        *("..%5c..%5cwindows", "..\\..\\windows", "%252e%252e%252fetc", "..%c0%af..%c0%afetc", "%c0%ae%c0%ae/etc"),
        *("..%e0%80%afetc", "stock%00", "stock%00.parquet", "%00", "stock%2f..%2fevents", "stock;events", "stock%20"),
        *(
            "/etc/passwd",
            "%2fetc%2fpasswd",
            "file:%2f%2f%2fetc%2fpasswd",
            "stock%0d%0aset-cookie:%20a=b",
            "sto%E2%80%8Bck",
        ),
        *(
            "%ef%bc%8e%ef%bc%8e%ef%bc%8fetc",
            "stock%u002f",
            "C:%5cwindows",
            "*",
            "%25",
            "stock'--",
            '"stock"',
            "$(id)",
            "x" * 129,
        ),
    ],
)
def test_no_address_leads_out_of_the_channels(deployment: ServedDeployment, channel: str, name: str) -> None:
    status, answer = send_raw_request(deployment, f"/v1/channels/{channel}/{name}")
    assert status in (400, 404), answer
    assert b"application/problem+json" in answer and b"root:" not in answer and b"\nset-cookie" not in answer.lower()
    assert_no_server_paths(deployment, answer)


@pytest.mark.core
@pytest.mark.parametrize(
    ("target", "status"),
    [
        *(
            ("/v1/channels/../../etc/passwd", 404),
            ("//etc/passwd", 404),
            ("/v1//channels", 404),
            ("/v1/channels/", 404),
        ),
        *(("/v1/channels/stock/", 404), ("/v1/./channels", 404), ("/V1/CHANNELS", 404), ("/%76%31/channels", 200)),
        *(
            ("/healthz/../v1/channels", 404),
            ("/docs", 404),
            ("/redoc", 404),
            ("/openapi.json", 404),
            ("/static/x", 404),
        ),
        *(("/v1/channels/stock?x#fragment", 404), ("*", 404), ("/v1/channels%3fx=1", 404), ("/v1/channels;a=b", 404)),
    ],
)
def test_an_address_is_what_it_says_and_never_redirected(
    deployment: ServedDeployment, target: str, status: int
) -> None:
    found, answer = send_raw_request(deployment, target)
    assert found in (status, 400) and b"\nlocation:" not in answer.lower(), answer


PARTITIONS = [
    *("..", "../..", "/", "//", "=", "dt", "dt=", "dt=/site=", "=a", "dt=2024-13-45", "dt=..", "dt=../../etc/site=a"),
    *("dt=2024-01-01/dt=2024-01-02", "dt=2024-01-01/site=a/x=1", "x=1", "dt=2024-01-01\0", "dt=%", "dt=%zz", "site=%"),
    *("dt=..%2F..%2Fetc", "DT=2024-01-01", "dt =2024-01-01", "dt=1999-01-01"),
    *("dt='; drop table channels; --", "\ud7ff", "dt=2024-01-01/site=" + "x" * 1990),
]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_partition_that_is_none_is_refused_and_changes_nothing(
    deployment: ServedDeployment, send_request: Callable[..., httpx.Response], partition: str
) -> None:
    before = deployment.channel_contents(*CHANNELS), deployment.file_digests()
    body = encode_arrow_stream(pa.table({"n": [1]}))
    address, where = "channels/events", {"partition": partition}
    answers = [
        send_request("POST", f"{address}/blocks", params=where, content=body, headers={"content-type": ARROW}),
        send_request("POST", f"{address}/drop", json=where),
    ]
    assert all(a.status_code in (400, 422) or a.json() is None for a in answers), [a.text for a in answers]
    for name in ("files", "partitions", "blocks", "history", "data"):
        answers.append(send_request("GET", f"{address}/{name}", params=where))
        assert answers[-1].status_code in (200, 400, 422), answers[-1].text
    for answer in answers:
        assert_no_server_paths(deployment, answer.content)
    assert (deployment.channel_contents(*CHANNELS), deployment.file_digests()) == before


@pytest.mark.core
@pytest.mark.parametrize(
    "value", [FAR, "..", ".", "/", "/etc/passwd", "a\\b", "a=b/c=d", "%2e%2e%2f", "a\nb", "\0", "_" * 300]
)
def test_a_partition_of_any_name_is_written_within_the_warehouse(
    deployment: ServedDeployment, send_request: Callable[..., httpx.Response], value: str
) -> None:
    around = {p for p in deployment.folder.rglob("*") if not p.is_relative_to(deployment.folder / "wh")}
    body, headers = encode_arrow_stream(sample_rows("events", 1, site=value)), {"content-type": ARROW}
    taken = send_request("POST", "channels/events/blocks", content=body, headers=headers)
    assert taken.status_code in (200, 422), taken.text
    assert_no_server_paths(deployment, taken.content)
    if taken.status_code == 200:
        [block] = taken.json()["blocks"]
        listed = send_request("GET", "channels/events/files", params={"partition": block["partition"]})
        assert listed.status_code == 200 and len(listed.json()["blocks"]) == 1
        rows = send_request("GET", "channels/events/data", params={"partition": block["partition"]})
        assert pa.ipc.open_stream(rows.content).read_all().column("site").to_pylist() == [value]
        root = (deployment.folder / "wh").resolve()
        for file in block["files"]:
            assert (root / file["path"]).resolve().is_relative_to(root) and (root / file["path"]).is_file()
    assert {p for p in deployment.folder.rglob("*") if not p.is_relative_to(deployment.folder / "wh")} == around


# --- types, encodings, archives


@pytest.mark.core
@pytest.mark.parametrize(
    "headers",
    [
        *(
            {},
            {"content-type": ""},
            {"content-type": "text/plain"},
            {"content-type": "application/json"},
            {"content-type": "*/*"},
        ),
        *({"content-type": "multipart/form-data; boundary=x"}, {"content-type": "application/x-www-form-urlencoded"}),
        *(
            {"content-type": "text/html, " + ARROW},
            {"content-type": f"{ARROW}, {LINES}"},
            {"content-type": f"x;{ARROW}"},
        ),
        *(
            {"content-type": ARROW, "content-encoding": e}
            for e in ("gzip", "x-gzip", "br", "zstd", "deflate", "gzip, identity", "", "nonsense")
        ),
    ],
)
def test_a_body_of_another_type_or_encoded_is_refused(
    deployment: ServedDeployment, send_request: Callable[..., httpx.Response], headers: dict[str, str]
) -> None:
    before, body = deployment.channel_contents("stock"), encode_arrow_stream(sample_rows("stock", 1))
    if "gzip" in headers.get("content-encoding", ""):
        body = gzip.compress(body)
    assert_problem(send_request("POST", "channels/stock/blocks", content=body, headers=headers), 415)
    assert deployment.channel_contents("stock") == before


@pytest.mark.core
@pytest.mark.parametrize(
    "headers",
    [
        [("content-type", ARROW), ("content-type", "text/html")],
        [("content-type", ARROW), ("content-encoding", "identity"), ("content-encoding", "gzip")],
    ],
)
def test_a_type_that_is_said_twice_is_none(
    send_request: Callable[..., httpx.Response], headers: list[tuple[str, str]]
) -> None:
    assert_problem(
        send_request(
            "POST", "channels/stock/blocks", content=encode_arrow_stream(sample_rows("stock", 1)), headers=headers
        ),
        415,
    )


@pytest.mark.core
@pytest.mark.parametrize("type_", [ARROW.upper(), f"{ARROW} ; x=y"])
def test_types_are_written_in_any_letters(send_request: Callable[..., httpx.Response], type_: str) -> None:
    headers = {"content-type": type_, "content-encoding": "Identity"}
    body = encode_arrow_stream(sample_rows("stock", 1))
    assert send_request("POST", "channels/stock/blocks", content=body, headers=headers).status_code == 200


def archives() -> dict[str, bytes]:
    """Good rows in archives, under names that lead elsewhere."""
    rows = b'{"sku": 1}\n'
    zipped, tarred, linked = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(FAR, rows)
        z.writestr("bomb.jsonl", rows * 100_000)
    for sink, mode in ((tarred, "w"), (linked, "w:gz")):
        with tarfile.open(fileobj=sink, mode=mode) as t:  # type: ignore[call-overload]
            entry = tarfile.TarInfo(FAR)
            entry.size = len(rows)
            t.addfile(entry, io.BytesIO(rows))
            link = tarfile.TarInfo("body.jsonl")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            t.addfile(link)
    some = {"zip": zipped.getvalue(), "tar": tarred.getvalue(), "tar.gz": linked.getvalue()}
    packed = {"gz": gzip.compress(rows), "bz2": bz2.compress(rows), "xz": lzma.compress(rows)}
    arrows = gzip.compress(encode_arrow_stream(sample_rows("stock", 1)))
    zeros = gzip.compress(bytes(50_000_000))
    zstd = bytes(pa.compress(rows, "zstd"))
    return {
        **some,
        **packed,
        "gz of a stream": arrows,
        "gz of zeros": zeros,
        "zst": zstd,
        "gz of a gz": gzip.compress(zeros),
    }


@pytest.mark.parametrize("type_", [ARROW, PARQUET, LINES, "application/zip", "application/gzip", "application/x-tar"])
def test_an_archive_is_no_body(
    deployment: ServedDeployment, send_request: Callable[..., httpx.Response], type_: str
) -> None:
    before = deployment.channel_contents("stock", "later"), deployment.file_digests()
    for name, body in archives().items():
        for channel in ("stock", "later"):
            answer = send_request("POST", f"channels/{channel}/blocks", content=body, headers={"content-type": type_})
            assert_problem(answer, 422 if type_ in (ARROW, PARQUET, LINES) else 415), name
            assert_no_server_paths(deployment, answer.content)
    assert (deployment.channel_contents("stock", "later"), deployment.file_digests()) == before


# --- keys, positions, columns


@pytest.mark.core
@pytest.mark.parametrize(
    "key",
    [
        b"a b",
        b"'; drop table commits; --",
        b"\xe9\xff",
        "ключ 🔑".encode(),
        b"../../x",
        b"%00",
        b'"',
        b"{}",
        b"x" * 512,
    ],
)
def test_an_odd_key_counts_once_and_for_its_channel_alone(
    send_request: Callable[..., httpx.Response], key: bytes
) -> None:
    headers = [(b"content-type", ARROW.encode()), (b"idempotency-key", key)]

    def put(channel: str) -> dict[str, Any]:
        answer = send_request(
            "POST", f"channels/{channel}/blocks", content=encode_arrow_stream(sample_rows(channel, 1)), headers=headers
        )
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    first, again, other = put("stock"), put("stock"), put("events")
    assert again["id"] == first["id"] and again["repeated"] and not first["repeated"]
    assert other["id"] != first["id"] and not other["repeated"]


@pytest.mark.core
@pytest.mark.parametrize("key", [b"", b"x" * 513])
def test_a_key_that_is_none_or_too_long_is_refused(
    deployment: ServedDeployment, send_request: Callable[..., httpx.Response], key: bytes
) -> None:
    before, headers = (
        deployment.channel_contents("stock"),
        [(b"content-type", ARROW.encode()), (b"idempotency-key", key)],
    )
    assert_problem(
        send_request(
            "POST", "channels/stock/blocks", content=encode_arrow_stream(sample_rows("stock", 1)), headers=headers
        ),
        400,
    )
    assert deployment.channel_contents("stock") == before


VIEWS = ["files", "changes", "history", "instants", "touched"]


@pytest.mark.core
@pytest.mark.parametrize("view", VIEWS)
def test_a_forged_position_is_told_apart_and_tells_nothing(
    deployment: ServedDeployment, send_request: Callable[..., httpx.Response], view: str
) -> None:
    catalog, since = deployment.store.catalog, {"since": "0"} if view == "changes" else {}
    own, others = (
        catalog.definitions.channel("stock").position,
        [catalog.definitions.channel(c).position for c in (*HIDDEN, "events")],
    )
    wrong = f"{own.prefix[:-1]}{'0' if own.prefix[-1] != '0' else '1'}"
    forged = [f"{own.step}-{wrong}", f"{own.step + 1}-{own.prefix}", f"{own.step - 1}-{own.prefix}", f"{own.step}-"]
    forged += [f"{o.step}-{o.prefix}" for o in others if o.prefix] + [f"999999999-{'f' * 64}", f"1-{'0' * 64}"]
    for known in forged:
        problem = assert_problem(send_request("GET", f"channels/stock/{view}", params={"known": known} | since), 409)
        assert problem["code"] == "NOVA-TIMELINE-DIFFERS"
        assert not [h for h in HIDDEN if h in json.dumps(problem)]
    for known in ("x", "-1-", "1", f"1-{'g' * 64}", "1-" + "0" * 65, "²-", "1_0-", " 1-", "9" * 60):
        assert_problem(send_request("GET", f"channels/stock/{view}", params={"known": known} | since), 400)


@pytest.mark.core
def test_very_many_columns_are_refused(
    deployment: ServedDeployment, send_request: Callable[..., httpx.Response]
) -> None:
    short, long = "&".join(["column=x"] * 900), "&".join(f"column=column_{n}" for n in range(3000))
    assert_problem(send_request("GET", f"channels/stock/data?{short}"), 400, 422)
    assert_problem(send_request("GET", f"channels/stock/data?{long}"), 414)
    for columns in (["sku"] * 1001, [f"c{n}" for n in range(1000)], [""], ["sku\0"], ["*"], ["x" * 100_000]):
        assert_problem(send_request("POST", "channels/stock/read", json={"columns": columns}), 422)
    assert_problem(send_request("GET", "channels/stock/data?" + "&".join(["at=1"] * 500)), 400)
    deep = b'{"keys": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    for body in (
        deep,
        b'{"keys": [' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]}",
        b"\xff",
        b"",
        b"[]",
        b"null",
    ):
        assert_problem(
            send_request("POST", "channels/stock/read", content=body, headers={"content-type": "application/json"}),
            400,
            422,
        )
    for keys in (
        [{"sku": 2**70}],
        [{"sku": "one"}],
        [{"sku": None}],
        [{}],
        [{"skew": 1}],
        [{"sku": {"a": 1}}],
        [{"sku": 1e400}],
    ):
        body = json.dumps({"keys": keys}).encode()
        answer = send_request("POST", "channels/stock/read", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (200, 422), (keys, answer.text)
