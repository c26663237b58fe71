"""Delivery of notifications in a thread, for processes that do other work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.store.store import Store

log = get_logger("nova_assets.notify")

_SHUTDOWN_SECONDS = 15.0
"""Time for a delivery in progress at the end. One that takes longer may be repeated by the next process."""


@contextmanager
def notifications_in_background(store: Store, interval: float = 5.0) -> Iterator[None]:
    """Deliver notifications in a thread while the body runs, if the settings have notifiers.

    Args:
        interval: seconds between two passes.
    """
    if not store.settings.notify:
        yield
        return
    stopped = threading.Event()

    def deliver_until_stopped() -> None:
        while not stopped.is_set():
            try:
                store.notify(time_limit=_SHUTDOWN_SECONDS)
            except NovaError as error:  # such as a catalog that is out of reach for a while
                log.error("%s", error)
            stopped.wait(interval)

    thread = threading.Thread(target=deliver_until_stopped, name="nova-notify", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(_SHUTDOWN_SECONDS)
