"""A service that listens: on a port that is free, until it is told to stop, and then in good order."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest
from fastapi import FastAPI

from nova_assets.client.connection import connect
from nova_assets.errors import PortTaken, ServiceRefused, ServiceUnavailable, SettingsError
from nova_assets.file_views.client import ViewServiceClient
from nova_assets.nova_error import NovaError
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import resolve_exposure
from nova_assets.service.http.server import GuardedApp, Server
from nova_assets_tests import patient
from nova_assets_tests.conftest import missing
from nova_assets_tests.effort import long_except
from nova_assets_tests.service.small_app import build_guarded_app, serve_small_app

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

SERVE = """
import sys
from nova_assets.service.http.access_log import configure_json_logging
from nova_assets.service.http.server import Server
from nova_assets_tests.service.small_app import build_guarded_app
configure_json_logging()
server = Server(build_guarded_app(**eval(sys.argv[1])))
print(server.listen(), flush=True)
server.run()
print("ended", flush=True)
"""


class ServerProcess:
    """A service in a process of its own."""

    def __init__(self, **config: Any) -> None:
        command = [sys.executable, "-c", SERVE, repr(config)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        for _ in range(200):
            try:
                patient.get(f"{self.url}/healthz")
                return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError("it does not answer")

    def end(self, with_signal: int = signal.SIGTERM) -> tuple[int, str, str]:
        """(exit code, stdout, stderr) after a signal."""
        self.process.send_signal(with_signal)
        out, err = self.process.communicate(timeout=45)
        return self.process.returncode, out, err


class BackgroundRequest(threading.Thread):
    """A request that is at work while other things happen."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.answer, self.error = url, None, None
        self.answer: httpx.Response | None
        self.error: Exception | None
        self.start()
        time.sleep(0.4)

    def run(self) -> None:
        try:
            self.answer = patient.get(self.url, timeout=15)
        except Exception as error:
            self.error = error


@pytest.fixture
def processes() -> Iterator[list[ServerProcess]]:
    """Processes that are ended with the test."""
    processes: list[ServerProcess] = []
    yield processes
    for p in processes:
        p.process.kill()
        p.process.communicate()


@pytest.mark.parametrize("how", long_except([signal.SIGTERM, signal.SIGINT], signal.SIGTERM))
def test_a_request_at_work_is_answered_before_the_service_ends_with_0(processes: list[ServerProcess], how: int) -> None:
    process = ServerProcess(shutdown_grace=90)  # longer than a process may take to end
    processes.append(process)
    background_request = BackgroundRequest(f"{process.url}/v1/slow?seconds=1.0")
    code, out, err = process.end(how)
    background_request.join()
    assert background_request.answer is not None and background_request.answer.json() == {"slept": 1.0}, (
        background_request.error
    )
    assert (code, out) == (0, "ended\n") and "Traceback" not in err


def test_while_it_stops_nobody_new_is_let_in_and_it_says_that_it_is_not_ready(processes: list[ServerProcess]) -> None:
    process = ServerProcess(shutdown_grace=8)
    processes.append(process)
    with httpx.Client(base_url=process.url, timeout=patient.SECONDS) as kept:
        assert kept.get("/readyz").status_code == 200
        background_request = BackgroundRequest(f"{process.url}/v1/slow?seconds=2")
        process.process.send_signal(signal.SIGTERM)
        time.sleep(0.4)
        unready = kept.get("/readyz")
        assert unready.status_code == 503 and unready.json()["code"] == "NOVA-SERVICE-UNAVAILABLE"
        assert kept.get("/healthz").status_code == 200, "it is well, and is not to be killed"
        refused = kept.get("/v1/whoami")
        assert refused.status_code == 503 and refused.headers["connection"] == "close"
        with pytest.raises(httpx.ConnectError):
            patient.get(f"{process.url}/readyz")
        background_request.join()
        assert background_request.answer is not None and background_request.answer.status_code == 200
    assert process.process.wait(10) == 0


@pytest.mark.parametrize("path", ["/v1/slow?seconds=90", "/v1/blocked?seconds=90"])
def test_what_takes_longer_than_its_grace_is_told_so_and_holds_nothing_up(
    processes: list[ServerProcess], path: str
) -> None:
    process = ServerProcess(shutdown_grace=0.5, request_seconds=100)
    processes.append(process)
    background_request = BackgroundRequest(process.url + path)
    code, _, err = process.end()
    background_request.join()
    assert code == 0, err
    assert background_request.answer is not None, background_request.error
    assert (
        background_request.answer.status_code == 503
        and background_request.answer.json()["code"] == "NOVA-SERVICE-UNAVAILABLE"
    )


def test_an_answer_that_has_begun_is_cut_short_and_not_taken_for_whole(processes: list[ServerProcess]) -> None:
    process = ServerProcess(shutdown_grace=0.5)
    processes.append(process)
    background_request = BackgroundRequest(f"{process.url}/v1/stream?seconds=0.2&parts=100")
    assert process.end()[0] == 0
    background_request.join()
    assert isinstance(background_request.error, httpx.RemoteProtocolError)


def test_a_second_interruption_does_not_wait(processes: list[ServerProcess]) -> None:
    process = ServerProcess(shutdown_grace=90, request_seconds=100)
    processes.append(process)
    BackgroundRequest(f"{process.url}/v1/slow?seconds=90")
    process.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.end(signal.SIGINT)[0] == 0


def test_a_port_that_is_taken() -> None:
    with serve_small_app() as (url, _):
        port = urlsplit(url).port
        with pytest.raises(PortTaken) as refused:
            Server(build_guarded_app(port=port)).listen()
        error = refused.value
        assert error.port == port and "--port 0" in str(error.next)
        assert patient.get(f"{url}/healthz").status_code == 200


@pytest.mark.core
@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_an_address_that_is_not_ones_own(host: str) -> None:
    with pytest.raises(ServiceRefused, match=f"cannot listen on '{host}'"):
        Server(build_guarded_app(host=host, proxies=("10.0.0.1",))).listen()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_any_free_port_is_said_and_answers(host: str) -> None:
    if host == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    with serve_small_app(host=host) as (url, _):
        answer = patient.get(f"{url}/v1/whoami")
        assert answer.status_code == 200 and urlsplit(url).port not in (0, None)
        assert "server" not in answer.headers, "what it is made of is nobody's business"
        assert answer.json()["client"] in ("127.0.0.1", "::1")


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_in_the_background_signals_are_left_alone_and_the_port_is_free_again() -> None:
    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)}
    with serve_small_app() as (url, _):
        assert {s: signal.getsignal(s) for s in before} == before
        assert patient.get(f"{url}/healthz").status_code == 200
    with pytest.raises(httpx.ConnectError):
        patient.get(f"{url}/healthz")
    with serve_small_app(port=urlsplit(url).port) as (again, _):
        assert again == url and patient.get(f"{again}/healthz").status_code == 200


def test_a_block_that_raises_ends_the_service_too() -> None:
    with pytest.raises(KeyError), serve_small_app() as (url, _):
        raise KeyError("x")
    with pytest.raises(httpx.ConnectError):
        patient.get(url)


@pytest.mark.core
@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [(SettingsError("no such place"), SettingsError, "no such place"), (RuntimeError("boo"), ServiceRefused, "boo")],
)
def test_an_app_that_cannot_start_says_why(error: Exception, kind: type[NovaError], says: str) -> None:
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        raise error
        yield

    config = ServiceConfig(port=0)
    server = Server(GuardedApp(FastAPI(lifespan=lifespan), config, resolve_exposure(config, has_token=False)))
    with pytest.raises(kind, match=says), server.in_background():
        pass
    with pytest.raises(kind, match=says):
        server.run()


def _certificate(folder: Path) -> dict[str, str]:
    if shutil.which("openssl") is None:
        missing("no program that makes certificates", "install openssl")
    files = {"tls_cert": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", files["tls_cert"], "-keyout", files["tls_key"]]
    subprocess.run(command, check=True, capture_output=True)
    return files


def test_tls(tmp_path: Path) -> None:
    import ssl

    files = _certificate(tmp_path)
    with serve_small_app(**files) as (url, _):
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=files["tls_cert"])
        assert patient.get(f"{url}/v1/whoami", verify=trusted).json()["url"].startswith("https://")
        with pytest.raises(httpx.ConnectError):
            patient.get(f"{url}/v1/whoami")
        with pytest.raises(httpx.TransportError):
            patient.get(f"{url}/v1/whoami".replace("https", "http"))


def test_a_certificate_of_ones_own_is_named_to_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _certificate(tmp_path)
    with serve_small_app(**files) as (url, _):
        with connect(url) as stranger, pytest.raises(ServiceUnavailable, match="is not trusted") as refused:
            stranger.insert("t", pa.table({"n": [1]}))
        assert "SSL_CERT_FILE" in str(refused.value.next) and "idempotency" not in str(refused.value)
        monkeypatch.setenv("SSL_CERT_FILE", files["tls_cert"])
        with connect(url) as known:
            assert known._transport.get("/v1/whoami", dict)["url"].startswith("https://")
        assert ViewServiceClient(url)._get_body(url, "/v1/whoami", {})


@pytest.mark.core
@pytest.mark.parametrize("which", ["missing", "nonsense", "other"])
def test_a_certificate_that_cannot_be_used(tmp_path: Path, which: str) -> None:
    files = _certificate(tmp_path)
    if which == "missing":
        files["tls_key"] = str(tmp_path / "nothing.pem")
    elif which == "nonsense":
        Path(files["tls_cert"]).write_text("hello")
    else:
        (tmp_path / "other").mkdir()
        files["tls_key"] = _certificate(tmp_path / "other")["tls_key"]
    with pytest.raises(SettingsError, match="certificate and its key"):
        Server(build_guarded_app(**files)).listen()
