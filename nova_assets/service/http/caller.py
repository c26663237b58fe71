"""Who asks the service, and what they may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nova_assets.errors import NotAllowed
from nova_assets.model.token import Right, Token

LOCAL = "local"
"""The name of whoever asks a service that wants no tokens."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Args:
        name: that of the token; logs show it.
        token: None for one who may do everything, on a service of this machine alone.
    """

    name: str
    token: Token | None = None

    def has_right(self, right: Right, channel: str) -> bool:
        """Whether the caller has this right on a channel."""
        return self.token is None or self.token.allows(right, channel)

    def require_right(self, right: Right, channel: str) -> None:
        """Refuse the request, unless the caller has this right on a channel. Ask before looking whether there is such a
        channel: who may not read it is not told that either.

        Raises:
            NotAllowed: answered with 403.
        """
        if not self.has_right(right, channel):
            raise NotAllowed(
                f"the token {self.name!r} gives no right to {right} the channel {channel!r}",
                expected=f"a token that was made with --{right} {channel}, or a pattern that fits it",
                next="ask who runs the service for one",
                right=right,
                channel=channel,
            )

    def channels_with_right(self, right: Right, names: Iterable[str]) -> list[str]:
        """Those of these channels on which the caller has this right, in their order."""
        return list(names) if self.token is None else self.token.allowed_channels(right, names)
