"""Clients of the soak: one inserts events over HTTP, one probes the services, one runs commands."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from pathlib import Path

import httpx

from nova_assets_tests.catalog_soak.deployment import Deployment, describe_code, nova
from nova_assets_tests.catalog_soak.project import EVENTS
from nova_assets_tests.catalog_soak.tally import Tally

PATIENCE = 150.0
"""Seconds in which an insert or a command has to succeed, whatever is stopped meanwhile."""

_PROBES = ("/readyz", "/healthz", "/metrics")
_RETRIED = (429, 503, 504)
_TAKEN_OVER = "NOVA-EXECUTION-NOT-LIVE"
"""The process that wrote the rows was stopped for longer than its lease."""

_COMMANDS = (
    ("channels",),
    ("channels",),
    ("timeline", EVENTS),
    ("cursors",),
    ("doctor",),
    ("compact", EVENTS),
    ("gc", "--retain", "10s"),
)


class Inserter(threading.Thread):
    """Inserts events, each batch under a key of its own until the insert is acknowledged.

    Args:
        number: of this client.
    """

    def __init__(self, number: int, seed: int, deployment: Deployment, is_over: threading.Event) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        self.acknowledged: dict[str, list[str]] = {}
        """Idempotency key -> ids of the rows."""
        self.unacknowledged: dict[str, list[str]] = {}
        self._number = number
        self._rng = random.Random(f"{seed} {number}")
        self._urls = deployment.urls
        self._tally = deployment.tally
        self._is_over = is_over

    def run(self) -> None:
        nth = 0
        with httpx.Client() as client:
            while not self._is_over.is_set():
                key = f"{self._number}-{nth}"
                ids = [f"{key}-{row}" for row in range(self._rng.randint(1, 3))]
                self.unacknowledged[key] = ids
                if self._insert(client, key, ids):
                    self.acknowledged[key] = self.unacknowledged.pop(key)
                nth += 1
                self._is_over.wait(self._rng.uniform(0.1, 0.8))

    def _insert(self, client: httpx.Client, key: str, ids: list[str]) -> bool:
        body = "".join(json.dumps({"id": row, "client": self._number}) + "\n" for row in ids)
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            address = f"{self._rng.choice(self._urls)}/v1/channels/{EVENTS}/blocks"
            try:
                answer = client.post(
                    address, content=body, headers=headers, timeout=self._rng.choice((0.5, 10.0, 10.0))
                )
            except httpx.HTTPError as error:
                self._tally.count("inserts", f"retried: {type(error).__name__}")
                time.sleep(0.2)
                continue
            if answer.status_code == 200:
                self._tally.count("inserts", "acknowledged")
                return True
            self._tally.count("inserts", f"retried: {answer.status_code} {_code_of(answer)}")
            if not _is_retried(answer):
                self._tally.problem("no insert fails", f"{answer.status_code} {answer.text[:300]}")
            time.sleep(0.2)
        self._tally.problem("no insert fails", f"an insert is not acknowledged within {PATIENCE:.0f} s")
        return False


class Prober(threading.Thread):
    """Probes one service once a second, as a supervisor does."""

    def __init__(self, name: str, url: str, tally: Tally, is_over: threading.Event) -> None:
        super().__init__(name=f"probes of {name}", daemon=True)
        self._service = name
        self._url = url
        self._tally = tally
        self._is_over = is_over

    def run(self) -> None:
        while not self._is_over.wait(1.0):
            for path in _PROBES:
                status = probe(self._url + path)
                self._tally.count("probes", f"{self._service} {path}: {status or 'no answer'}")
                if status == 500:
                    self._tally.problem("no probe is answered with a failure", f"{self._service} {path}: {status}")


class Commander(threading.Thread):
    """Runs commands of nova, one after another."""

    def __init__(self, number: int, seed: int, deployment: Deployment, is_over: threading.Event) -> None:
        super().__init__(name=f"commands {number}", daemon=True)
        self.signalled: set[int] = set()
        """Process ids to which a signal was sent: their exit codes are no problem."""
        self._rng = random.Random(f"{seed} commands {number}")
        self._log = deployment.folder / f"commands-{number}.log"
        self._deployment = deployment
        self._is_over = is_over
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The command that runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def run(self) -> None:
        while not self._is_over.is_set():
            self._run_command(self._rng.choice(_COMMANDS))
            self._is_over.wait(self._rng.uniform(0.0, 1.0))

    def _run_command(self, command: tuple[str, ...]) -> None:
        tally, name = self._deployment.tally, f"nova {command[0]}"
        with self._log.open("ab") as log:
            began = log.tell()
            process = self._process = self._deployment.start_process(nova(*command), log.fileno())
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            tally.problem("each command ends well", f"{name} does not end within {PATIENCE:.0f} s")
            return
        tally.count("commands", f"{name}: {describe_code(code)}")
        if code and process.pid not in self.signalled:
            tally.problem("each command ends well", f"{name}: {describe_code(code)}: {_last_error(self._log, began)}")


def probe(url: str, patience: float = 5.0) -> int | None:
    """Status of an answer; None if none comes."""
    try:
        return httpx.get(url, timeout=patience).status_code
    except httpx.HTTPError:
        return None


def _is_retried(answer: httpx.Response) -> bool:
    return answer.status_code in _RETRIED or (answer.status_code == 409 and _code_of(answer) == _TAKEN_OVER)


def _code_of(answer: httpx.Response) -> str:
    try:
        return str(answer.json().get("code", ""))
    except ValueError:
        return ""


def _last_error(log: Path, began: int) -> str:
    with log.open("rb") as file:
        file.seek(began)
        return file.read().decode(errors="replace").strip()[-400:]
