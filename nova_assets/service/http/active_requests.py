"""Requests in progress, and the shutdown state of a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nova_assets.errors import ServiceUnavailable

if TYPE_CHECKING:
    from nova_assets.service.http.request_limits import LimitedExchange


class ActiveRequests:
    """Requests in progress of one service.

    A request counts until its handler has ended, even if its caller was already told that it timed out. A thread that
    waits for a database cannot be stopped, and must not be joined by an unlimited number of others.
    """

    def __init__(self) -> None:
        self.is_draining = False
        self.handler_count = 0
        self.open_exchanges: set[LimitedExchange] = set()

    @property
    def unanswered_count(self) -> int:
        """Number of callers that wait for an answer or for the rest of it."""
        return len(self.open_exchanges)

    def start_draining(self) -> None:
        """Refuse new requests from now on, since the service is shutting down."""
        self.is_draining = True

    def refuse_unanswered(self) -> None:
        """Refuse all unanswered requests because of the shutdown. Answers that have begun are cut short."""
        for exchange in list(self.open_exchanges):
            exchange.refuse(stopping_error())


def stopping_error(*, not_started: bool = False) -> ServiceUnavailable:
    """Error for requests during the shutdown.

    Args:
        not_started: the request was refused before its handler began, so that clients may repeat even a change.
    """
    return ServiceUnavailable(
        "the service is shutting down",
        next="retry in a moment, or on another instance",
        reason="stopping",
        **({"not_started": True} if not_started else {}),
    )
