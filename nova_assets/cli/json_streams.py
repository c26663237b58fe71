"""Both streams under ``--json``: the answer alone on standard output, and a JSON object per line on standard error.

Whatever tasks, libraries and child processes print, on either stream, becomes ``{"log": TEXT}`` on standard error. An
error is the last line there.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import click


class Streams:
    """Where an answer and an error go.

    Args:
        out, err: write one text, with its end of line.
        settle: waits until everything that was printed before has become lines.
    """

    def __init__(self, out: Callable[[str], None], err: Callable[[str], None], settle: Callable[[], None]) -> None:
        self._out = out
        self._err = err
        self._settle = settle

    def answer(self, text: str) -> None:
        """Print the answer."""
        self._out(text + "\n")

    def fail(self, error: dict[str, Any]) -> None:
        """Print an error, as the last line of standard error."""
        self._settle()
        self._err(json.dumps(error) + "\n")


@contextlib.contextmanager
def streams_of_json() -> Iterator[Streams]:
    """A block in which both streams are kept to JSON."""
    stdout, stderr = sys.stdout, sys.stderr
    if not (_is_descriptor(stdout, 1) and _is_descriptor(stderr, 2)):  # a test's streams, or closed ones
        lines = _Lines(lambda text: _write(stderr, text))
        with contextlib.redirect_stdout(lines), contextlib.redirect_stderr(lines):
            yield Streams(lambda text: _write(stdout, text), lambda text: _write(stderr, text), lines.finish)
        lines.finish()
        return
    out, err = os.dup(1), os.dup(2)
    source, sink = os.pipe()
    pump = threading.Thread(target=_pump, args=(source, err), name="nova-json-stderr", daemon=True)
    pump.start()
    for descriptor in (1, 2):
        os.dup2(sink, descriptor)
    os.close(sink)

    def settle() -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        done = threading.Event()
        _WAITED.append(done)
        os.write(2, _MARK)
        done.wait(2)

    sys.stdout = sys.stderr
    try:
        yield Streams(lambda text: _put(out, text), lambda text: _put(err, text), settle)
        settle()
    finally:
        sys.stdout = stdout
        stderr.flush()
        os.dup2(out, 1)
        os.dup2(err, 2)


_MARK = b"\x00nova: all before this is written\n"
_WAITED: list[threading.Event] = []


def _pump(source: int, err: int) -> None:
    with open(source, "rb") as lines:
        for line in lines:
            before, mark, _ = line.partition(_MARK)
            if before:
                with contextlib.suppress(OSError):
                    _put(err, as_json_line(before.decode("utf-8", "backslashreplace")))
            if mark and _WAITED:
                _WAITED.pop(0).set()


def as_json_line(text: str) -> str:
    """A line that is a JSON object already stays; any other becomes one. An empty line becomes nothing."""
    text = text.rstrip("\r\n")
    if not text.strip():
        return ""
    with contextlib.suppress(ValueError):
        if isinstance(json.loads(text), dict):
            return text + "\n"
    return json.dumps({"log": text}) + "\n"


class _Lines(io.TextIOBase):
    """A text stream whose lines become JSON."""

    def __init__(self, put: Callable[[str], None]) -> None:
        self._put = put
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._put(as_json_line(line))
        return len(text)

    def finish(self) -> None:
        """Print what has no end of line yet."""
        self._put(as_json_line(self._rest))
        self._rest = ""


def _is_descriptor(stream: Any, number: int) -> bool:
    with contextlib.suppress(OSError, AttributeError, ValueError):
        stream.flush()
        return bool(stream.fileno() == number)
    return False


def _write(stream: Any, text: str) -> None:
    if text:
        click.echo(text, file=stream, nl=False)


def _put(descriptor: int, text: str) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
