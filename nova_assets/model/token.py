"""Tokens: who may do what on which channels, through the service.

The text of a token is shown once, when it is made; of its secret only a digest is kept.
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
"""What may be done with a channel: read it, put data onto it, or compact, collect, drop and restore. None of them
implies another."""

RIGHTS: tuple[Right, ...] = get_args(Right)

Grants = Mapping[Right, tuple[str, ...]]
"""Right -> on which channels: their names, or patterns such as ``sales_*`` and ``*``."""

_TOKEN_TEXT = re.compile(r"nova_([0-9a-f]{16})_([A-Za-z0-9_-]{43,128})")
_TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}")
_CHANNEL_PATTERN = re.compile(r"[A-Za-z0-9_*?\[\]!-]{1,128}")
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Token:
    """What a caller of the service may do.

    Args:
        id: the part of its text that is no secret.
        name: whose it is; logs show it.
        digest: of its secret.
        expires_at: from then on it allows nothing; None for never.
        revoked_at: since when it allows nothing any more.
    """

    id: str
    name: str
    grants: Grants
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    digest: str = field(default="", repr=False)

    def allows(self, right: Right, channel: str) -> bool:
        """Whether it gives this right on a channel. Whether it is valid at all is for ``is_valid`` to say."""
        return any(fnmatchcase(channel, pattern) for pattern in self.grants.get(right, ()))

    def allowed_channels(self, right: Right, channel_names: Iterable[str]) -> list[str]:
        """Those of these channels on which it gives this right, in their order."""
        return [name for name in channel_names if self.allows(right, name)]

    def is_valid(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def has_secret(self, secret: str) -> bool:
        """Whether this is its secret; found out in a time that does not tell how much of it is right."""
        return hmac.compare_digest(secret_digest(secret), self.digest)


def mint_token(name: str, grants: Grants, now: datetime, expires_at: datetime | None = None) -> tuple[str, Token]:
    """A new token, and its text, which cannot be had again.

    Raises:
        DefinitionError: an unusable name or pattern, or nothing is granted.
    """
    granted_patterns = {right: tuple(dict.fromkeys(grants.get(right, ()))) for right in RIGHTS if grants.get(right)}
    _check_name_and_grants(name, granted_patterns)
    token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)  # 256 bits
    token = Token(token_id, name, granted_patterns, now, expires_at, digest=secret_digest(secret))
    return f"nova_{token_id}_{secret}", token


def parse_token(text: str) -> tuple[str, str] | None:
    """(id, secret) of a token's text; None where it is none."""
    match = _TOKEN_TEXT.fullmatch(text)
    return None if match is None else (match[1], match[2])


def secret_digest(secret: str) -> str:
    """What is kept of a secret.

    A plain SHA-256 suffices: slow, salted hashes protect passwords, which can be guessed. Nobody guesses 256 random
    bits, however quickly guesses can be tried, and no two tokens share them.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def unknown_channels_in_grants(grants: Grants, channel_names: Iterable[str]) -> list[str]:
    """The names in grants that are none of these channels'; patterns with wildcards are not judged."""
    known_names = set(channel_names)
    granted_patterns = dict.fromkeys(pattern for patterns in grants.values() for pattern in patterns)
    return [pattern for pattern in granted_patterns if pattern not in known_names and not _WILDCARD.search(pattern)]


def token_name_taken_error(name: str, existing_token: Token | None, now: datetime) -> DefinitionConflict:
    """The refusal of a name that a token has, or had."""
    if existing_token is None or existing_token.is_valid(now):
        token_state = "one that is valid"
    else:
        token_state = "one that was revoked" if existing_token.revoked_at is not None else "one that has expired"
    return DefinitionConflict(
        f"there is a token {name!r} already",
        found=token_state,
        expected="a name that no token ever had: logs say by it who did what, so it is not given twice",
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
            f"token {name!r} would allow nothing",
            expected="at least one of --read, --write, --operate",
            next=f"nova token add {name} --read '*'",
        )
