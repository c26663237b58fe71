"""Forwarding of log lines from tasks and the runtime to the log of the Dagster step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGER_NAME = "nova_assets"


class _DagsterLogHandler(logging.Handler):
    def __init__(self, dagster_log: logging.Logger) -> None:
        super().__init__(logging.INFO)
        self.dagster_log = dagster_log

    def emit(self, record: logging.LogRecord) -> None:
        self.dagster_log.log(record.levelno, record.getMessage())


@contextmanager
def forward_logs_to_dagster(dagster_log: logging.Logger) -> Iterator[None]:
    """Copy the log lines of ``ctx.log`` and of the runtime to ``dagster_log`` while the body runs."""
    logger, handler = logging.getLogger(_LOGGER_NAME), _DagsterLogHandler(dagster_log)
    previous_level = logger.level
    logger.addHandler(handler)
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(previous_level)
