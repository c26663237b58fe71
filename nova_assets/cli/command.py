"""Base class of all commands: options, output of results, and errors.

A command is a function that returns a ``CommandResult``. This module prints the result as text or as JSON, writes
errors, and sets the exit code: 0 done, 1 failed, 2 wrong use.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.deployment import Deployment
from nova_assets.cli.deployment_options import (
    DEPLOYMENT_OPTION_NAMES,
    deployment_options,
    option_of_command_line,
)
from nova_assets.cli.name_completion import CATALOG_NAMES
from nova_assets.cli.rendering import is_terminal, open_stdout_console
from nova_assets.errors import BindingNotFound, ChannelNotFound, TaskFailed
from nova_assets.masking import mask
from nova_assets.nova_error import NovaError


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command.

    Args:
        data: JSON value for ``--json``, in the shape that the command's help describes.
        show: prints the same result as text.
        exit_code: exit code of the process.
    """

    data: Any
    show: Callable[[Console], None]
    exit_code: int = 0


class NovaCommand(click.Command):
    """Command with ``--json`` and the deployment options. Its function gets the ``Deployment``, and the parameters by
    name, and returns a ``CommandResult``.

    Args:
        checks_project: load the project first, so that an invalid project fails before the command does anything. False
            for commands that diagnose a deployment or need no project.
    """

    def __init__(self, *args: Any, checks_project: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.checks_project = checks_project
        as_json = click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON on standard output.")
        for parameter in self.params:
            if type(parameter.type) is click.types.StringParamType and parameter.name in CATALOG_NAMES:
                parameter.type = CATALOG_NAMES[parameter.name]
        self.params = [*self.params, as_json, *deployment_options()]

    def invoke(self, ctx: click.Context) -> None:
        as_json = ctx.params.pop("as_json")
        deployment_values = {
            name: ctx.params.pop(name) or option_of_command_line(ctx.parent, name) for name in DEPLOYMENT_OPTION_NAMES
        }
        ctx.obj = Deployment(**deployment_values, quiet=as_json)
        ctx.exit(self._run_with_json(ctx) if as_json else self._run_with_text(ctx))

    def _run_with_json(self, ctx: click.Context) -> int:
        with redirect_streams_to_json() as streams:
            try:
                result = self._compute_result(ctx)
            except Exception as error:
                _raise_if_handled_by_click(error)
                _print_debug_traceback(error)
                streams.write_error(_error_as_dict(error))
                return 1
            streams.write_result(_encode_json(result.data))
        return result.exit_code

    def _compute_result(self, ctx: click.Context) -> CommandResult:
        if self.checks_project:
            ctx.obj.load_project()
        assert self.callback is not None
        result: CommandResult = ctx.invoke(self.callback, ctx.obj, **ctx.params)
        return result

    def _run_with_text(self, ctx: click.Context) -> int:
        try:
            result = self._compute_result(ctx)
            with open_stdout_console() as console:
                result.show(console)
        except Exception as error:
            _raise_if_handled_by_click(error)
            _print_debug_traceback(error)
            click.echo(_wrap_to_terminal(_error_as_text(error)), err=True)
            return 1
        return result.exit_code


def print_to_stderr(text: str) -> None:
    """Print a line to standard error, beside the result."""
    click.echo(text, err=True)


def is_debug_enabled() -> bool:
    """Whether NOVA_DEBUG requests tracebacks."""
    return os.environ.get("NOVA_DEBUG", "") not in ("", "0")


def _raise_if_handled_by_click(error: Exception) -> None:
    """Re-raise usage errors, exits and closed pipes, which click reports itself."""
    if isinstance(error, click.ClickException | click.exceptions.Exit | click.Abort):
        raise error
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        raise error


def _print_debug_traceback(error: Exception) -> None:
    """Print the traceback if NOVA_DEBUG requests it."""
    if is_debug_enabled():
        sys.stderr.write(mask("".join(traceback.format_exception(error))))


def _error_as_text(error: Exception) -> str:
    if isinstance(error, NovaError):
        debug_hint = (
            "\n  (NOVA_DEBUG=1 shows the traceback)" if isinstance(error, TaskFailed) and not is_debug_enabled() else ""
        )
        help_hint = "" if error.help_url is None else f"\n  Read more: {error.help_url}"
        return _add_next_command(error).render() + help_hint + debug_hint
    debug_hint = "" if is_debug_enabled() else "; nova did not expect this error: NOVA_DEBUG=1 shows the traceback"
    return f"[NOVA-UNEXPECTED] {_format_unexpected_error(error)}{debug_hint}"


def _wrap_to_terminal(text: str) -> str:
    """Wrap a message at word boundaries to the width of the terminal."""
    if not is_terminal(sys.stderr):
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(
            line,
            width,
            subsequent_indent=" " * (12 if line.startswith("  ") else 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.splitlines()
    )


def _error_as_dict(error: Exception) -> dict[str, Any]:
    if isinstance(error, NovaError):
        error_fields = _add_next_command(error).as_dict()
        if "next" in error_fields:
            error_fields["next"] = " ".join(error_fields["next"].split())
        return error_fields | ({} if error.help_url is None else {"help_url": error.help_url})
    return {
        "code": "NOVA-UNEXPECTED",
        "what": _format_unexpected_error(error),
        "next": "NOVA_DEBUG=1 shows the traceback",
    }


def _format_unexpected_error(error: Exception) -> str:
    return mask(" ".join(f"{type(error).__name__}: {error}".split()).rstrip(":. "))


def _add_next_command(error: NovaError) -> NovaError:
    """Add the command that lists valid names to a not-found error without advice."""
    if error.next is None and isinstance(error, ChannelNotFound):
        error.next = "nova channels"
    if error.next is None and isinstance(error, BindingNotFound):
        error.next = "nova bindings"
    return error


def _encode_json(data: Any) -> str:
    """Strict JSON, in ASCII unless standard output is UTF-8."""
    return json.dumps(data, ensure_ascii=not _is_utf8(sys.__stdout__), indent=2, allow_nan=False)


def _is_utf8(stream: Any) -> bool:
    return (getattr(stream, "encoding", "") or "").lower().replace("-", "") == "utf8"


class JsonStreams:
    """Writers for the result and for an error, under ``--json``.

    Only the result is on standard output. All output of tasks, libraries and child processes, on either stream, becomes
    ``{"log": TEXT}`` on standard error. An error is the last line of standard error. No logging library can do this,
    because the JVM and child processes write below it (decision 0044).

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
