"""Claims that decide which code location reports a channel's commits to Dagster, if several share a catalog (R17)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Boolean, Column, Connection, String, Table, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.column_types import UtcMicroseconds
from nova_assets.catalog.database.transactions import batched
from nova_assets.catalog.tables import bindings, metadata

# In the catalog, because Dagster's storage has no compare-and-set, and sensors of two locations run at the same moment.
publishers = Table(
    "nova_publishers",
    metadata,
    # No foreign key: a code location may be loaded before its channels are registered.
    Column("channel", String(128), primary_key=True),
    Column("location", String(256), nullable=False),
    # Whether a binding of the location writes the channel.
    Column("writes", Boolean, nullable=False),
    Column("claimed_at", UtcMicroseconds, nullable=False),
    Column("renewed_at", UtcMicroseconds, nullable=False),
)


CLAIM_EXPIRY = timedelta(minutes=5)
"""Age at which a claim that was not renewed expires. Another location may then take over the channel."""

_CLAIM_RENEWAL = timedelta(minutes=1)
_CHANNELS_PER_QUERY = 300


@dataclass(frozen=True, slots=True)
class _Claim:
    location: str
    writes: bool
    claimed_at: datetime
    renewed_at: datetime


class DagsterPublishers(CatalogPart):
    """Claims of code locations on channels. Each channel has at most one claim."""

    def claim(self, location: str, written_channels: Iterable[str], read_channels: Iterable[str]) -> frozenset[str]:
        """Claim all channels of a location, and release its claims on other channels.

        A location whose bindings write a channel takes the channel over from a location that only reads it. Otherwise
        the first location keeps the channel until its claim expires. If the catalog knows a binding that writes the
        channel, a location without that binding holds the channel only once its claim is older than ``CLAIM_EXPIRY``.
        This gives the writing location time to start.

        Args:
            written_channels: channels that a binding of the location writes.
            read_channels: its other channels.

        Returns:
            The channels that the location holds now.
        """
        now = self.database.clock()
        own_claims = {channel: _Claim(location, False, now, now) for channel in read_channels}
        own_claims |= {channel: _Claim(location, True, now, now) for channel in written_channels}

        def write_claims(c: Connection) -> None:
            existing = _read_claims(c)
            for channel, claimed in sorted(own_claims.items()):
                if _should_replace_claim(claimed, existing.get(channel)):
                    _write_claim(c, channel, claimed, existing.get(channel))
            dropped = sorted(ch for ch, held in existing.items() if held.location == location and ch not in own_claims)
            for batch in batched(dropped, _CHANNELS_PER_QUERY):
                conditions = (publishers.c.channel.in_(batch), publishers.c.location == location)
                c.execute(delete(publishers).where(*conditions))

        existing = self.database.read(_read_claims)
        held = {ch for ch, claimed in existing.items() if claimed.location == location}
        if held - set(own_claims) or any(
            _should_replace_claim(claimed, existing.get(ch)) for ch, claimed in own_claims.items()
        ):
            self.database.write(write_claims)
            existing = self.database.read(_read_claims)
        held = {ch for ch, claimed in existing.items() if claimed.location == location and ch in own_claims}
        recently_claimed = {
            ch for ch in held if not own_claims[ch].writes and now - existing[ch].claimed_at < CLAIM_EXPIRY
        }
        return frozenset(
            held - (recently_claimed & self.database.read(_channels_with_writers) if recently_claimed else set())
        )

    def all(self) -> dict[str, tuple[str, bool]]:
        """For each channel, the location that holds it, and whether a binding of that location writes it."""
        return {channel: (held.location, held.writes) for channel, held in self.database.read(_read_claims).items()}


def _should_replace_claim(claim: _Claim, existing: _Claim | None) -> bool:
    """Whether to write a claim over the existing one."""
    if existing is None:
        return True
    age = claim.renewed_at - existing.renewed_at
    if existing.location == claim.location:
        return existing.writes != claim.writes or age >= _CLAIM_RENEWAL
    return age >= CLAIM_EXPIRY or (claim.writes and not existing.writes)


def _write_claim(c: Connection, channel: str, claim: _Claim, existing: _Claim | None) -> None:
    """Write a claim, unless another process has just written the row."""
    if existing is None:
        with suppress(IntegrityError), c.begin_nested():
            c.execute(insert(publishers).values(channel=channel, **asdict(claim)))
        return
    if existing.location == claim.location:
        claim = replace(claim, claimed_at=existing.claimed_at)
    is_unchanged = (publishers.c.location == existing.location, publishers.c.renewed_at == existing.renewed_at)
    c.execute(update(publishers).where(publishers.c.channel == channel, *is_unchanged).values(**asdict(claim)))


def _read_claims(c: Connection) -> dict[str, _Claim]:
    p = publishers.c
    query = select(p.channel, p.location, p.writes, p.claimed_at, p.renewed_at)
    return {channel: _Claim(*values) for channel, *values in c.execute(query)}


def _channels_with_writers(c: Connection) -> set[str]:
    """Channels that a registered binding of any location writes."""
    definitions = c.execute(select(bindings.c.definition)).scalars()
    return {
        d["channels"][e["port"]]
        for d in definitions
        for task in d["tasks"]
        for e in task["produces"]
        if e["port"] in d["channels"]
    }
