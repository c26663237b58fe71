"""Bodies that nobody should send, sent to a real ``nova serve``: each is refused in words, nothing is changed, and the
process goes on, in the memory that it had.

NOVA_TEST_EXAMPLES=2000 tries so many mutations of the corpus.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_assets.service.http.asgi import ARROW, LINES, PARQUET
from nova_assets.service.uploads import UploadSpool
from nova_assets_tests import patient
from nova_assets_tests.effort import examples
from nova_assets_tests.service.make_corpus import FOLDER, corpus
from nova_assets_tests.service.served_deployment import Deployment, encode_arrow_stream, open_deployment, sample_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = int(os.environ.get("NOVA_TEST_EXAMPLES") or examples(20, 60))
MIB = 2**20

TYPES = {".arrows": ARROW, ".parquet": PARQUET, ".jsonl": LINES}
KEPT = sorted(FOLDER.iterdir())
SMALL = {file: file.read_bytes() for file in KEPT if file.stat().st_size < 10_000}
GOOD = [file for file in KEPT if file.name.startswith("good")]
BAD = [file for file in KEPT if file not in GOOD]

CODES = {"NOVA-BAD-KEY", "NOVA-BAD-RECORD", "NOVA-EMPTY-INPUT", "NOVA-PARTITION", "NOVA-REQUEST-REFUSED"}
CODES |= {"NOVA-SCHEMA-MISMATCH"}


ON_LINUX = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc tells of other processes")


@dataclass
class ServiceUnderTest:
    """A service in a process of its own, whose deployment this process can inspect."""

    deployment: Deployment
    process: subprocess.Popen[str]
    url: str

    def put(self, body: bytes, type_: str, channel: str = "stock", **query: str) -> httpx.Response:
        address = f"{self.url}/v1/channels/{channel}/blocks"
        return SESSION.post(address, content=body, headers={"content-type": type_}, params=query, timeout=60)

    def stored_state(self) -> Any:
        """Everything that an insert could change."""
        contents = self.deployment.channel_contents("stock", "events", "later")
        return contents, self.deployment.file_digests(), self.deployment.unfinished_executions()

    def peak_memory_bytes(self) -> list[int]:
        """Peak memory of the process and of its children, in bytes."""
        each = [Path(f"/proc/{pid}/status").read_text() for pid in (self.process.pid, *self.child_process_ids())]
        return [int(text.split("VmHWM:")[1].split()[0]) * 1024 for text in each]

    def child_process_ids(self) -> list[int]:
        """The processes that it has started."""
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]


SESSION = httpx.Client(timeout=patient.SECONDS)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceUnderTest]:
    """With room for a mebibyte a body, which makes 16 of rows."""
    folder = tmp_path_factory.mktemp("uploads")
    with open_deployment(folder) as deployment:
        where = {
            "NOVA_CATALOG": deployment.store.settings.catalog,
            "NOVA_WAREHOUSE": deployment.store.settings.warehouse,
        }
        command = [sys.executable, "-c", "from nova_assets.cli.main import main; main()", "serve", "--port", "0"]
        process = subprocess.Popen(
            [*command, "--max-body", "1", "--request-seconds", "60", "--views", "memory"],
            cwd=folder,
            env={**os.environ, **where, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        while "listening on " not in line:
            assert line, "it does not start"
            line = process.stderr.readline()
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        try:
            yield ServiceUnderTest(deployment, process, line.split("listening on ")[1].strip())
            assert process.poll() is None, "it has not ended by itself"
        finally:
            process.terminate()
            assert process.wait(20) == 0
            drain.wait(20)


def assert_refused_without_effect(serving: ServiceUnderTest, before: Any, answer: httpx.Response) -> None:
    """It was refused in words, and nothing has changed."""
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] in CODES and answer.json()["detail"], answer.text
    assert str(serving.deployment.folder) not in answer.text and "nova-upload" not in answer.text
    assert serving.stored_state() == before
    assert serving.process.poll() is None, "the service has ended"


def test_the_corpus_is_what_the_script_makes() -> None:
    assert {file.name for file in KEPT} == set(corpus())


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.name)
def test_a_bad_body_is_refused_and_changes_nothing(serving: ServiceUnderTest, file: Path) -> None:
    body, type_, before = file.read_bytes(), TYPES[file.suffix], serving.stored_state()
    for channel in ("stock", "events"):
        assert_refused_without_effect(serving, before, serving.put(body, type_, channel))
        assert_refused_without_effect(serving, before, serving.put(body, type_, channel, kind="base"))
    # What has no columns yet would take some of them.
    assert serving.put(body, type_, "later", dry_run="true").status_code in (200, 413, 422)
    assert serving.stored_state() == before


@pytest.mark.core
@pytest.mark.parametrize("file", GOOD, ids=lambda file: file.name)
def test_a_good_body_is_taken(serving: ServiceUnderTest, file: Path) -> None:
    answer = serving.put(file.read_bytes(), TYPES[file.suffix])
    assert answer.status_code == 200, answer.text
    assert answer.json()["blocks"] or "of_no_rows" in file.name


@pytest.mark.parametrize("file", GOOD, ids=lambda file: file.name)
def test_a_good_body_of_another_type_is_refused(serving: ServiceUnderTest, file: Path) -> None:
    before = serving.stored_state()
    for type_ in set(TYPES.values()) - {TYPES[file.suffix]}:
        assert_refused_without_effect(serving, before, serving.put(file.read_bytes(), type_))


@pytest.mark.core
@pytest.mark.parametrize("type_", TYPES.values())
@pytest.mark.parametrize("channel", ["stock", "events", "later"])
def test_no_body_is_no_insert(serving: ServiceUnderTest, type_: str, channel: str) -> None:
    before = serving.stored_state()
    assert_refused_without_effect(serving, before, serving.put(b"", type_, channel))


@pytest.mark.core
def test_a_body_that_claims_more_bytes_than_it_has_is_no_stream(serving: ServiceUnderTest) -> None:
    """Random bytes do so. The body is not too large: it holds no rows."""
    rows = encode_arrow_stream(sample_rows("stock", 1, 2, 3))
    length = (2**31 - 8).to_bytes(4, "little")
    before = serving.stored_state()
    for body in (length + b"x" * 100, b"\xff" * 4 + length + b"x" * 100, rows[:-8] + b"\xff" * 4 + length + b"x" * 100):
        answer = serving.put(body, ARROW)
        assert (answer.status_code, answer.json()["code"]) == (422, "NOVA-BAD-RECORD"), answer.text
        assert_refused_without_effect(serving, before, answer)


LARGE = {
    "one line of a mebibyte": (b'{"sku": 1, "name": "' + b"x" * (MIB - 30) + b'" \n', LINES),
    "objects 150,000 deep": (b'{"a":' * 150_000 + b"1" + b"}" * 150_000, LINES),
    "lists 500,000 deep": (b'{"sku":' + b"[" * 500_000 + b"]" * 500_000 + b"}", LINES),
    "half a million digits": (b'{"sku": ' + b"1" * 500_000 + b"}", LINES),
    "30,000 columns of their own": (b"".join(b'{"sku":%d,"c%d":1}\n' % (n, n) for n in range(30_000)), LINES),
    "blank lines": (b"\n" * MIB, LINES),
    "zeros": (bytes(MIB), ARROW),
    "nothing but 0xff": (b"\xff" * MIB, ARROW),
    "magic, and zeros": (b"PAR1" + bytes(MIB - 8) + b"PAR1", PARQUET),
    "more than may be": (b"x" * (MIB + 1), LINES),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_bad_body_is_refused_in_little_memory(serving: ServiceUnderTest, name: str) -> None:
    body, type_ = LARGE[name]
    before = serving.stored_state()
    assert_refused_without_effect(serving, before, serving.put(body, type_))
    assert patient.get(f"{serving.url}/readyz").status_code == 200


@settings(
    max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(data=st.data())
def test_bodies_that_are_mutated_are_refused_or_taken_whole(serving: ServiceUnderTest, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(sorted(SMALL)))
    body = bytearray(SMALL[file])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(body) - 1)))
        some = data.draw(
            st.one_of(st.binary(max_size=8), st.sampled_from([b"\xff" * 4, b"\0" * 8, b"\x7f", bytes(body)]))
        )
        how = data.draw(st.sampled_from(["put", "insert", "cut", "drop"]))
        if how == "cut":
            del body[at:]
        elif how == "drop":
            del body[at : at + len(some)]
        else:
            body[at : at + (len(some) if how == "put" else 0)] = some
    before = serving.stored_state()
    answer = serving.put(bytes(body), TYPES[file.suffix])
    if answer.status_code == 200:
        assert answer.json()["channel" if "columns" in answer.json() else "id"]
        assert patient.get(f"{serving.url}/v1/channels/stock/data").status_code == 200
    else:
        assert_refused_without_effect(serving, before, answer)


@ON_LINUX
def test_none_of_this_took_much_memory(serving: ServiceUnderTest) -> None:
    for _ in range(5):
        for file in BAD:
            if "expand" in file.name or "one_run" in file.name or "long_value" in file.name:
                assert serving.put(file.read_bytes(), TYPES[file.suffix]).status_code == 413
    service, *decoders = serving.peak_memory_bytes()
    assert service < 500 * MIB, service
    assert decoders and all(each < 700 * MIB for each in decoders), decoders


@pytest.mark.core
@pytest.mark.parametrize(
    ("body", "reason"),
    [(b'null\n{"id": 1}', "line 1 is no object"), (b'{"id": 1}\n{"id": "\\ud800"}', "line 2, column 'id'")],
)
def test_a_bad_line_is_named(serving: ServiceUnderTest, body: bytes, reason: str) -> None:
    answer = serving.put(body, LINES)
    assert answer.status_code == 422 and reason in answer.json()["detail"]


@ON_LINUX
def test_a_decoder_that_has_ended_is_replaced(serving: ServiceUnderTest) -> None:
    assert serving.put(encode_arrow_stream(sample_rows("stock", 1)), ARROW).status_code == 200
    assert serving.child_process_ids()
    for pid in serving.child_process_ids():
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    assert serving.put(encode_arrow_stream(sample_rows("stock", 2)), ARROW).status_code == 200


@pytest.mark.core
@ON_LINUX
def test_a_decoder_knows_no_secret_of_the_service(serving: ServiceUnderTest) -> None:
    assert serving.put(encode_arrow_stream(sample_rows("stock", 1)), ARROW).status_code == 200
    for pid in serving.child_process_ids():
        assert b"NOVA_" not in Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.core
def test_what_a_killed_process_has_left_is_deleted(tmp_path: Path) -> None:
    held, ended = UploadSpool(tmp_path), UploadSpool(tmp_path)
    mine, gone = held.ensure_folder(), ended.ensure_folder()
    ended.close()
    left, begun, elsewhere = (
        tmp_path / f"{name}" for name in (f"{UploadSpool.prefix}left", f"{UploadSpool.prefix}new", "other")
    )
    for folder in (left, begun, elsewhere):
        (folder / "abc").mkdir(parents=True)
        (folder / "abc" / "body.arrow").write_bytes(b"rows")
    link = tmp_path / f"{UploadSpool.prefix}link"
    link.symlink_to(elsewhere)
    for old in (mine, left, elsewhere):
        os.utime(old, (0, 0))
    os.utime(link, (0, 0), follow_symlinks=False)
    next_ = UploadSpool(tmp_path)
    expected = sorted([mine, begun, elsewhere, link, next_.ensure_folder()])
    assert sorted(tmp_path.iterdir()) == expected
    assert not gone.exists() and (elsewhere / "abc" / "body.arrow").exists()
    shutil.rmtree(mine)  # by a cleaner of temporary folders
    assert held.ensure_folder() == mine and mine.is_dir()
    os.utime(mine, (0, 0))
    another = UploadSpool(tmp_path)
    another.ensure_folder()
    assert mine.is_dir(), "a folder that was created again is locked, too"
    for spool in (held, next_, another):
        spool.close()
    assert sorted(tmp_path.iterdir()) == sorted([begun, elsewhere, link])


@pytest.mark.core
def test_a_folder_that_cannot_be_created_is_below_the_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spool = UploadSpool(tmp_path / "file" / "service")
    assert spool.ensure_folder().parent == Path(tempfile.gettempdir())
    spool.close()


@ON_LINUX
def test_a_body_whose_folder_is_emptied_fails_alone(serving: ServiceUnderTest) -> None:
    """The folder is emptied after the body has begun to arrive, as a cleaner might do."""
    service_folder = serving.deployment.folder / ".nova" / "service"

    def body() -> Iterator[bytes]:
        stream = encode_arrow_stream(sample_rows("stock", 3))
        yield stream[:100]
        while not list(service_folder.glob("*/*/body.*")):
            time.sleep(0.01)
        shutil.rmtree(service_folder)
        yield stream[100:]

    before = serving.stored_state()
    address = f"{serving.url}/v1/channels/stock/blocks"
    answer = SESSION.post(address, content=body(), headers={"content-type": ARROW}, timeout=60)
    assert answer.status_code == 503 and answer.json()["code"] == "NOVA-SERVICE-UNAVAILABLE", answer.text
    assert "was deleted on the server" in answer.json()["title"] + answer.json()["detail"]
    assert serving.stored_state() == before
    assert serving.put(encode_arrow_stream(sample_rows("stock", 4)), ARROW).status_code == 200


def test_what_was_taken_is_what_was_sent(serving: ServiceUnderTest) -> None:
    rows = pa.table({"sku": [901, 902], "name": ["ä", None], "price": [float("nan"), 0.0]})
    assert serving.put(encode_arrow_stream(rows), ARROW).status_code == 200
    keys = {"keys": [{"sku": 901}, {"sku": 902}]}
    answer = patient.post(f"{serving.url}/v1/channels/stock/read", json=keys)
    found = pa.ipc.open_stream(answer.content).read_all().sort_by("sku")
    assert found.column("name").to_pylist() == ["ä", None] and str(found.column("price")[0]) == "nan"
