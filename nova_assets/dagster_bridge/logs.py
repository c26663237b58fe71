"""What tasks and the runtime log, in the log of the Dagster step that runs them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGER = "nova_assets"


class _ToDagster(logging.Handler):
    def __init__(self, log: logging.Logger) -> None:
        super().__init__(logging.INFO)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        self.log.log(record.levelno, record.getMessage())


@contextmanager
def forwarded(log: logging.Logger) -> Iterator[None]:
    """Lines of ``ctx.log`` and of the runtime go to ``log``, too, while the body runs."""
    logger, handler = logging.getLogger(_LOGGER), _ToDagster(log)
    before = logger.level
    logger.addHandler(handler)
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
