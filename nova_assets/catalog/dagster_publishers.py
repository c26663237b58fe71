"""Which code location shows the commits on a channel in Dagster, where several share a catalog (R17)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from nova_assets.catalog.database import Database, batched
from nova_assets.catalog.tables import bindings, publishers

EXPIRY = timedelta(minutes=5)
"""A location that has not renewed its claim for so long is gone, and another may take the channel over."""

_RENEWAL = timedelta(minutes=1)
_AT_ONCE = 300


@dataclass(frozen=True, slots=True)
class _Claim:
    location: str
    writes: bool
    claimed_at: datetime
    renewed_at: datetime


class Publishers:
    """Claims of code locations to channels. One location holds the claim to a channel."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def claim_channels(self, location: str, writes: Iterable[str], reads: Iterable[str]) -> frozenset[str]:
        """Claim all channels of a location. Claims to channels that it no longer has are given up.

        A location whose bindings write a channel takes it over from one that only reads it. Otherwise the first
        location keeps the channel, until its claim expires. Where the catalog knows a binding that writes a channel, a
        location without that binding holds it only once its claim is older than ``EXPIRY``: the other may start.

        Args:
            writes: channels that a binding of the location writes.
            reads: its other channels.

        Returns:
            The channels that the location holds now.
        """
        now = self.database.clock()
        own = {channel: _Claim(location, False, now, now) for channel in reads}
        own |= {channel: _Claim(location, True, now, now) for channel in writes}

        def claim(c: Connection) -> None:
            existing = _claims(c)
            for channel, claimed in sorted(own.items()):
                if _replaces(claimed, existing.get(channel)):
                    _put(c, channel, claimed, existing.get(channel))
            dropped = sorted(ch for ch, held in existing.items() if held.location == location and ch not in own)
            for some in batched(dropped, _AT_ONCE):
                theirs = (publishers.c.channel.in_(some), publishers.c.location == location)
                c.execute(delete(publishers).where(*theirs))

        existing = self.database.read(_claims)
        held = {ch for ch, claimed in existing.items() if claimed.location == location}
        if held - set(own) or any(_replaces(claimed, existing.get(ch)) for ch, claimed in own.items()):
            self.database.write(claim)
            existing = self.database.read(_claims)
        held = {ch for ch, claimed in existing.items() if claimed.location == location and ch in own}
        young = {ch for ch in held if not own[ch].writes and now - existing[ch].claimed_at < EXPIRY}
        return frozenset(held - (young & self.database.read(_written) if young else set()))

    def publishers(self) -> dict[str, tuple[str, bool]]:
        """Channel -> the location that holds it, and whether a binding of that location writes it."""
        return {channel: (held.location, held.writes) for channel, held in self.database.read(_claims).items()}


def _replaces(claimed: _Claim, existing: _Claim | None) -> bool:
    """Whether a claim is to be written over the existing one."""
    if existing is None:
        return True
    age = claimed.renewed_at - existing.renewed_at
    if existing.location == claimed.location:
        return existing.writes != claimed.writes or age >= _RENEWAL
    return age >= EXPIRY or (claimed.writes and not existing.writes)


def _put(c: Connection, channel: str, claimed: _Claim, existing: _Claim | None) -> None:
    """Write a claim, unless another process has just written the row."""
    if existing is None:
        with suppress(IntegrityError), c.begin_nested():
            c.execute(insert(publishers).values(channel=channel, **asdict(claimed)))
        return
    if existing.location == claimed.location:
        claimed = replace(claimed, claimed_at=existing.claimed_at)
    same = (publishers.c.location == existing.location, publishers.c.renewed_at == existing.renewed_at)
    c.execute(update(publishers).where(publishers.c.channel == channel, *same).values(**asdict(claimed)))


def _claims(c: Connection) -> dict[str, _Claim]:
    p = publishers.c
    query = select(p.channel, p.location, p.writes, p.claimed_at, p.renewed_at)
    return {channel: _Claim(*values) for channel, *values in c.execute(query)}


def _written(c: Connection) -> set[str]:
    """Channels that a registered binding writes, of whichever location."""
    definitions = c.execute(select(bindings.c.definition)).scalars()
    return {
        d["channels"][e["port"]]
        for d in definitions
        for task in d["tasks"]
        for e in task["produces"]
        if e["port"] in d["channels"]
    }
