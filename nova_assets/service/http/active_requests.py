"""The requests that a service has at work, and whether it is about to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nova_assets.errors import ServiceUnavailable

if TYPE_CHECKING:
    from nova_assets.service.http.request_limits import LimitedExchange


class ActiveRequests:
    """What one service does at the moment.

    A request is at work until its handler has ended, even where its caller has been told meanwhile that it took too
    long: a thread that waits for a database cannot be stopped, and is not to be joined by any number of others.
    """

    def __init__(self) -> None:
        self.is_draining = False
        self.handler_count = 0
        self.open_exchanges: set[LimitedExchange] = set()

    @property
    def unanswered_count(self) -> int:
        """How many callers wait for an answer, or for its end."""
        return len(self.open_exchanges)

    def start_draining(self) -> None:
        """No new work from now on: the service is about to stop."""
        self.is_draining = True

    def refuse_unanswered(self) -> None:
        """Tell all who still wait that the service stops; answers that have begun are cut short."""
        for exchange in list(self.open_exchanges):
            exchange.refuse(stopping_error())


def stopping_error() -> ServiceUnavailable:
    """What callers are told while the service stops."""
    return ServiceUnavailable(
        "the service is about to stop", next="ask again in a moment, or elsewhere", reason="stopping"
    )
