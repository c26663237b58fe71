"""Callers of the service and their rights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nova_assets.errors import NotAllowed
from nova_assets.model.token import Right, Token

LOCAL_CALLER_NAME = "local"
"""Name of the caller of a service without tokens."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request.

    Args:
        name: name of the token, shown in logs.
        token: None for a caller with all rights, on a service that only this machine can reach.
    """

    name: str
    token: Token | None = None

    def has_right(self, right: Right, channel: str) -> bool:
        """Whether the caller has this right on a channel."""
        return self.token is None or self.token.allows(right, channel)

    def require_right(self, right: Right, channel: str) -> None:
        """Check that the caller has this right on a channel.

        Check before looking up the channel: a caller without read access must not learn whether the channel exists.

        Raises:
            NotAllowed: answered with 403.
        """
        if not self.has_right(right, channel):
            raise NotAllowed(
                f"the token {self.name!r} grants no right to {right} channel {channel!r}",
                expected=f"a token that was created with --{right} {channel} or a matching pattern",
                next="ask the operator of the service for a token",
                right=right,
                channel=channel,
            )

    def channels_with_right(self, right: Right, names: Iterable[str]) -> list[str]:
        """The given channels on which the caller has this right, in order."""
        return list(names) if self.token is None else self.token.allowed_channels(right, names)
