"""The requests that a service has at work, and whether it is about to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nova_assets.errors import ServiceUnavailable

if TYPE_CHECKING:
    from nova_assets.service.http.request_limits import Exchange


class Work:
    """What one service does at the moment.

    A request is at work until its handler has ended, even where its caller has been told meanwhile that it took too
    long: a thread that waits for a database cannot be stopped, and is not to be joined by any number of others.
    """

    def __init__(self) -> None:
        self.draining = False
        self.handlers = 0
        self.exchanges: set[Exchange] = set()

    @property
    def answering(self) -> int:
        """How many callers wait for an answer, or for its end."""
        return len(self.exchanges)

    def drain(self) -> None:
        """No new work from now on: the service is about to stop."""
        self.draining = True

    def end(self) -> None:
        """Tell all who still wait that the service stops; answers that have begun are cut short."""
        for exchange in list(self.exchanges):
            exchange.refuse(stopping())


def stopping() -> ServiceUnavailable:
    """What callers are told while the service stops."""
    return ServiceUnavailable(
        "the service is about to stop", next="ask again in a moment, or elsewhere", reason="stopping"
    )
