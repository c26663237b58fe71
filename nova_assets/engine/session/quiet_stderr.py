"""Standard error without noise: output of Java, py4j and PySpark that duplicates a raised exception is dropped.

An exception reaches the caller once. The same failure as a line of JSON, a traceback of py4j, or a JVM warning about
its own start adds no information.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_NOISE = re.compile(
    rb"WARNING: (Using incubator modules|A terminally deprecated method|A restricted method|Use --enable-native-access"
    rb"|Please consider reporting this|sun\.misc\.Unsafe|java\.lang\.System::load)|Picked up J\w+_OPTIONS"
)
"""Lines that a JVM prints about its own start."""

_REPEATED = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers of PySpark that print each exception again, as JSON."""


_LOGGERS_OF_CALLS = ("py4j", "py4j.java_gateway", "py4j.clientserver")


def silence_loggers() -> None:
    """Stop PySpark and py4j from logging exceptions that they also raise. Idempotent."""
    root = logging.getLogger()
    if _is_not_py4j not in root.filters:
        root.addFilter(_is_not_py4j)  # py4j logs on the root logger; a filter there concerns no other logger
    with suppress(ImportError):  # PySpark 3.5 lacks this module
        from pyspark.logger import PySparkLogger

        for name in _REPEATED:
            PySparkLogger.getLogger(name).disabled = True


@contextmanager
def hide_from_call_logs(secret: str | None) -> Iterator[None]:
    """Keep a secret out of py4j's logs, which show each argument of each call at the level DEBUG."""

    def lacks_secret(record: logging.LogRecord) -> bool:
        return secret is None or secret not in record.getMessage()

    loggers = [logging.getLogger(name) for name in _LOGGERS_OF_CALLS]
    for logger in loggers:
        logger.addFilter(lacks_secret)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(lacks_secret)


def silence_context_threads(spark_context: Any) -> None:
    """Stop a Spark context from printing tracebacks of its own threads when its Java process has ended."""
    server = getattr(spark_context, "_accumulatorServer", None)
    if server is not None and "handle_error" not in vars(server):
        print_error = server.handle_error
        server.handle_error = lambda *of: None if isinstance(sys.exception(), EOFError | OSError) else print_error(*of)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


@contextmanager
def filter_java_startup_messages() -> Iterator[None]:
    """Context in which a JVM may be started. The JVM's messages about its own start are removed from standard error.

    The JVM inherits a pipe instead of file descriptor 2. A thread forwards its lines for the lifetime of the JVM.
    """
    try:
        sys.stderr.flush()
        original_stderr = os.dup(2)
    except (OSError, AttributeError, ValueError):  # standard error is closed
        yield
        return
    pipe_reader, pipe_writer = os.pipe()
    os.dup2(pipe_writer, 2)
    os.close(pipe_writer)
    threading.Thread(
        target=_forward_lines, args=(pipe_reader, original_stderr), name="nova-java-stderr", daemon=True
    ).start()
    try:
        yield
    finally:
        with suppress(OSError, AttributeError, ValueError):
            sys.stderr.flush()
        os.dup2(original_stderr, 2)


def _forward_lines(pipe_fd: int, stderr_fd: int) -> None:
    """Copy lines until every process has closed the pipe.

    The lines go to the original target of file descriptor 2, because inside the context the descriptor is the pipe
    itself.
    """
    with open(pipe_fd, "rb") as lines:
        for line in lines:
            if not _NOISE.match(line):
                with suppress(OSError):
                    os.write(stderr_fd, line)
