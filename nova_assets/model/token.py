"""Access tokens of the service: which operations on which channels their bearers may perform.

The text of a token is shown once, at creation. Only a hash of its secret is stored.

Hand-written, because signed tokens of libraries cannot be revoked before they expire (decision 0044).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal, get_args

from nova_assets.errors import DefinitionConflict, DefinitionError

Right = Literal["read", "write", "operate"]
"""Operations on a channel: reading; inserting data; or compacting, collecting, dropping, restoring,
pausing and removing.

No right implies another.
"""

RIGHTS: tuple[Right, ...] = get_args(Right)

Grants = Mapping[Right, tuple[str, ...]]
"""Right -> channels, by name or by pattern such as ``sales_*`` and ``*``."""

_TOKEN_TEXT = re.compile(r"nova_([0-9a-f]{16})_([A-Za-z0-9_-]{43,128})")
_TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}")
_CHANNEL_PATTERN = re.compile(r"[A-Za-z0-9_*?\[\]!-]{1,128}")
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Token:
    """Permissions of a caller of the service.

    Args:
        id: the public part of the token's text.
        name: the bearer, as shown in logs.
        digest: hash of the secret.
        expires_at: time from which the token is invalid; None for never.
        revoked_at: time from which the token is revoked; None if it is not.
    """

    id: str
    name: str
    grants: Grants
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    digest: str = field(default="", repr=False)

    def allows(self, right: Right, channel: str) -> bool:
        """Whether the token grants a right on a channel. ``is_valid`` tells whether the token itself is valid."""
        return any(fnmatchcase(channel, pattern) for pattern in self.grants.get(right, ()))

    def allowed_channels(self, right: Right, channel_names: Iterable[str]) -> list[str]:
        """The channels of a list on which the token grants a right, in the same order."""
        return [name for name in channel_names if self.allows(right, name)]

    def is_valid(self, now: datetime) -> bool:
        """Whether the token is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def has_secret(self, secret: str) -> bool:
        """Whether this is the secret of the token, compared in constant time."""
        return hmac.compare_digest(secret_digest(secret), self.digest)


def mint_token(name: str, grants: Grants, now: datetime, expires_at: datetime | None = None) -> tuple[str, Token]:
    """Create a token. Returns its text, which cannot be recovered later, and the token.

    Raises:
        DefinitionError: an invalid name or pattern, or no grant.
    """
    granted_patterns = {right: tuple(dict.fromkeys(grants.get(right, ()))) for right in RIGHTS if grants.get(right)}
    _check_name_and_grants(name, granted_patterns)
    token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)  # 256 bits
    token = Token(token_id, name, granted_patterns, now, expires_at, digest=secret_digest(secret))
    return f"nova_{token_id}_{secret}", token


def parse_token(text: str) -> tuple[str, str] | None:
    """(id, secret) from a token's text; None for other text."""
    match = _TOKEN_TEXT.fullmatch(text)
    return None if match is None else (match[1], match[2])


def secret_digest(secret: str) -> str:
    """Hash of a secret for storage.

    A plain SHA-256 suffices. Slow, salted hashes protect passwords, which can be guessed. 256 random bits cannot be
    guessed at any speed, and no two tokens share them.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def unknown_channels_in_grants(grants: Grants, channel_names: Iterable[str]) -> list[str]:
    """Names in grants that match none of these channels. Patterns with wildcards are not checked."""
    known_names = set(channel_names)
    granted_patterns = dict.fromkeys(pattern for patterns in grants.values() for pattern in patterns)
    return [pattern for pattern in granted_patterns if pattern not in known_names and not _WILDCARD.search(pattern)]


def token_name_taken_error(name: str, existing_token: Token | None, now: datetime) -> DefinitionConflict:
    """Error for a name that a token has, or had before."""
    if existing_token is None or existing_token.is_valid(now):
        token_state = "a valid token"
    else:
        token_state = "a revoked token" if existing_token.revoked_at is not None else "an expired token"
    return DefinitionConflict(
        f"there is a token {name!r} already",
        found=token_state,
        expected="a name that no token has had: logs identify callers by it, so it is never reused",
        next=f"nova token add {name}-2 …, and once that is in use: nova token revoke {name}",
        name=name,
    )


def _check_name_and_grants(name: str, grants: Grants) -> None:
    if not _TOKEN_NAME.fullmatch(name):
        raise DefinitionError(
            "a token has an unusable name",
            found=repr(name),
            expected="letters, digits and _ . @ -, starting with a letter or digit, at most 128",
        )
    wrong = [p for patterns in grants.values() for p in patterns if not _CHANNEL_PATTERN.fullmatch(p)]
    if wrong:
        raise DefinitionError(
            f"token {name!r} has an unusable pattern",
            found=", ".join(map(repr, wrong)),
            expected="a channel's name, or a pattern such as 'sales_*' or '*'",
        )
    if not grants:
        raise DefinitionError(
            f"token {name!r} has no grants",
            expected="at least one of --read, --write, --operate",
            next=f"nova token add {name} --read '*'",
        )
