"""Output streams under ``--json``: only the result on standard output, and one JSON object per line on standard error.

All output of tasks, libraries and child processes, on either stream, becomes ``{"log": TEXT}`` on standard error. An
error is the last line of standard error.

Hand-written, because the JVM and child processes write below every logging library (decision 0044).
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


class JsonStreams:
    """Writers for the result and for an error.

    Args:
        write_stdout: writes a text with its line end to standard output.
        write_stderr: writes a text with its line end to standard error.
        wait_until_flushed: waits until all earlier output has been written as JSON lines.
    """

    def __init__(
        self,
        write_stdout: Callable[[str], None],
        write_stderr: Callable[[str], None],
        wait_until_flushed: Callable[[], None],
    ) -> None:
        self._write_stdout = write_stdout
        self._write_stderr = write_stderr
        self._wait_until_flushed = wait_until_flushed

    def write_result(self, text: str) -> None:
        """Print the result to standard output."""
        self._write_stdout(text + "\n")

    def write_error(self, error: dict[str, Any]) -> None:
        """Print an error as the last line of standard error."""
        self._wait_until_flushed()
        self._write_stderr(json.dumps(error) + "\n")


@contextlib.contextmanager
def redirect_streams_to_json() -> Iterator[JsonStreams]:
    """Context manager that converts all output on both streams to JSON lines on standard error."""
    stdout, stderr = sys.stdout, sys.stderr
    if not (_has_descriptor(stdout, 1) and _has_descriptor(stderr, 2)):  # streams of a test, or closed streams
        lines = _JsonLineStream(lambda text: _echo_to_stream(stderr, text))
        with contextlib.redirect_stdout(lines), contextlib.redirect_stderr(lines):
            yield JsonStreams(
                lambda text: _echo_to_stream(stdout, text),
                lambda text: _echo_to_stream(stderr, text),
                lines.write_incomplete_line,
            )
        lines.write_incomplete_line()
        return
    stdout_copy, stderr_copy = os.dup(1), os.dup(2)
    pipe_read_end, pipe_write_end = os.pipe()
    forwarding_thread = threading.Thread(
        target=_forward_lines_as_json, args=(pipe_read_end, stderr_copy), name="nova-json-stderr", daemon=True
    )
    forwarding_thread.start()
    for descriptor in (1, 2):
        os.dup2(pipe_write_end, descriptor)
    os.close(pipe_write_end)

    def wait_until_flushed() -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        flushed = threading.Event()
        _PENDING_FLUSHES.append(flushed)
        os.write(2, _FLUSH_MARKER)
        flushed.wait(2)

    sys.stdout = sys.stderr
    try:
        yield JsonStreams(
            lambda text: _write_to_descriptor(stdout_copy, text),
            lambda text: _write_to_descriptor(stderr_copy, text),
            wait_until_flushed,
        )
        wait_until_flushed()
    finally:
        sys.stdout = stdout
        stderr.flush()
        os.dup2(stdout_copy, 1)
        os.dup2(stderr_copy, 2)


_FLUSH_MARKER = b"\x00nova: all before this is written\n"
_PENDING_FLUSHES: list[threading.Event] = []


def _forward_lines_as_json(pipe_descriptor: int, stderr_descriptor: int) -> None:
    with open(pipe_descriptor, "rb") as lines:
        for line in lines:
            text_before_marker, marker, _ = line.partition(_FLUSH_MARKER)
            if text_before_marker:
                with contextlib.suppress(OSError):
                    _write_to_descriptor(
                        stderr_descriptor, to_json_line(text_before_marker.decode("utf-8", "backslashreplace"))
                    )
            if marker and _PENDING_FLUSHES:
                _PENDING_FLUSHES.pop(0).set()


def to_json_line(text: str) -> str:
    """JSON line for a line of output. A JSON object stays unchanged, and a blank line becomes empty text."""
    text = text.rstrip("\r\n")
    if not text.strip():
        return ""
    with contextlib.suppress(ValueError):
        if isinstance(json.loads(text), dict):
            return text + "\n"
    return json.dumps({"log": text}) + "\n"


class _JsonLineStream(io.TextIOBase):
    """Text stream that writes its lines as JSON."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        self._write_line = write_line
        self._incomplete_line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._incomplete_line = (self._incomplete_line + text).split("\n")
        for line in lines:
            self._write_line(to_json_line(line))
        return len(text)

    def write_incomplete_line(self) -> None:
        """Write the pending text that has no line end yet."""
        self._write_line(to_json_line(self._incomplete_line))
        self._incomplete_line = ""


def _has_descriptor(stream: Any, descriptor: int) -> bool:
    with contextlib.suppress(OSError, AttributeError, ValueError):
        stream.flush()
        return bool(stream.fileno() == descriptor)
    return False


def _echo_to_stream(stream: Any, text: str) -> None:
    if text:
        click.echo(text, file=stream, nl=False)


def _write_to_descriptor(descriptor: int, text: str) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
