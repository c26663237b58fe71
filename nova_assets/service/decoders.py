"""Decodes bodies of inserts in processes of their own.

Anybody may have written a body, and what decodes it was made for files of one's own: a few bytes become gigabytes, or
end the process. Here that is a small process, with little memory and time, that knows no secret.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from nova_assets.errors import BadRecord, RequestRefused, ServiceBusy
from nova_assets.model.schema import Schema
from nova_assets.service.problems import error_of

log = logging.getLogger("nova_assets.service")

_KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "LANG", "LC_ALL")
"""Of the environment; the rest may hold passwords."""


class Decoders:
    """Some processes that decode, started when they are needed and kept for the next body.

    Args:
        at_once: so many bodies are decoded at the same time; more wait.
    """

    def __init__(self, at_once: int = min(4, max(2, (os.cpu_count() or 2) // 2))) -> None:
        self._free = threading.BoundedSemaphore(at_once)
        self._idle: list[subprocess.Popen[str]] = []

    def table(self, body: Path, kind: str, schema: Schema | None, most: int, seconds: float) -> pa.Table:
        """The rows of a body. They lie in a file beside it, which may be deleted as long as the table is there.

        Args:
            kind: ``arrow``, ``parquet`` or ``jsonl``.
            schema: of the channel; lines are parsed by it.
            most: bytes that the rows may take.
            seconds: that decoding may take, and that it waits for its turn.

        Raises:
            EmptyInput, BadRecord, RequestRefused, ServiceBusy.
        """
        out = body.with_name("rows.arrow")
        job = {"body": str(body), "kind": kind, "out": str(out), "most": most, "seconds": seconds}
        job["schema"] = None if schema is None else schema.as_json()
        if not self._free.acquire(timeout=seconds):
            raise ServiceBusy("other bodies are being decoded", next="ask again in a moment", reason="decoding")
        try:
            process = self._process()
            answer, is_late = _asked(process, job, seconds)
            if is_late:
                _end(process)
            else:
                self._idle.append(process)
        finally:
            self._free.release()
        if answer:
            raise error_of(answer)
        with pa.memory_map(str(out)) as source:
            return pa.ipc.open_file(source).read_all()

    def _process(self) -> subprocess.Popen[str]:
        while True:
            try:
                kept = self._idle.pop()
            except IndexError:
                return _started()
            if kept.poll() is None:
                return kept
            _end(kept)

    def close(self) -> None:
        """End the processes that wait for a body."""
        while self._idle:
            _end(self._idle.pop())


def _started() -> subprocess.Popen[str]:
    paths = os.pathsep.join(os.path.abspath(p) for p in sys.path)
    alone = {"PYTHONPATH": paths, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "nova_assets.service.decoding"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={n: os.environ[n] for n in _KEPT if n in os.environ} | alone,
        start_new_session=True,  # Ctrl-C is for the service
        text=True,
    )


def _asked(process: subprocess.Popen[str], job: dict[str, Any], seconds: float) -> tuple[dict[str, Any], bool]:
    """The answer of a process, and whether it was ended a moment after it had given that. One that gives none has
    ended.

    Raises:
        BadRecord, RequestRefused.
    """
    assert process.stdin is not None and process.stdout is not None
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        print(json.dumps(job), file=process.stdin, flush=True)
        line = process.stdout.readline()
    except OSError:
        line = ""
    finally:
        timer.cancel()
        timer.join()
    if line.endswith("\n"):
        answer: dict[str, Any] = json.loads(line)
        return answer, late.is_set()
    _end(process)
    log.warning("a body could not be decoded", extra={"exit_code": process.returncode, "kind": job["kind"]})
    if late.is_set():
        raise RequestRefused(
            f"the body cannot be decoded within {seconds:g} seconds", next="send it in several inserts", status=413
        )
    raise BadRecord(
        "the body cannot be decoded", found="something that ends whoever decodes it", next="write it anew, and smaller"
    )


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
