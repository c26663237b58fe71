"""Arrivals: which files were announced for a channel, and what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from nova_assets.catalog.database import Database
from nova_assets.catalog.tables import arrivals, channels
from nova_assets.errors import CommitConflict
from nova_assets.model.arrival import Arrival, ArrivalCounts, ArrivalState, ArrivalStatus, Taken

_AT_ONCE = 500
"""So many keys are asked for by one query."""


class Arrivals:
    """The files that a channel knows of. What is announced is durable; what is taken is so by the commit that takes
    it."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def announce(self, channel: str, found: Iterable[Arrival], at: datetime | None = None) -> list[Arrival]:
        """Remember files that have arrived. Gives those that were not known, or were gone and have come back.

        Args:
            at: since when they are known to be there; now by default.
        """
        by_key = {a.key: a for a in found}
        new = [by_key[k] for k in sorted(set(by_key) - self._known(channel, list(by_key)))]
        since = at or self.database.clock()
        return self.database.write(lambda c: [a for a in new if self._announce(c, channel, a, since)]) if new else []

    def _known(self, channel: str, keys: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            mine = (arrivals.c.channel == channel, arrivals.c.key.in_(some), arrivals.c.state != "gone")
            query = select(arrivals.c.key).where(*mine)
            found |= set(self.database.read(lambda c, q=query: c.execute(q).scalars().all()))  # type: ignore[misc]
        return found

    def _announce(self, c: Connection, channel: str, arrival: Arrival, since: datetime) -> bool:
        """Unless another process was first."""
        row = {
            "channel": channel,
            "key": arrival.key,
            "place": arrival.place,
            "path": arrival.path,
            "version": arrival.version,
            "bytes": arrival.size,
            "modified": arrival.modified,
            "at": since,
            "state": "waiting",
        }
        back = {"state": "waiting", "at": since, "reason": None, "commit_id": None}
        new = (sqlite if self.database.is_sqlite else postgresql).insert(arrivals).values(**row)
        again = new.on_conflict_do_update(
            index_elements=[arrivals.c.channel, arrivals.c.key], set_=back, where=arrivals.c.state == "gone"
        )
        return c.execute(again.returning(arrivals.c.key)).first() is not None

    def waiting(self, channel: str, limit: int) -> list[ArrivalStatus]:
        """Files that were announced and not taken, oldest first."""
        query = select(arrivals).where(arrivals.c.channel == channel, arrivals.c.state == "waiting")
        query = query.order_by(arrivals.c.at, arrivals.c.key).limit(limit)
        return [_status(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def arrivals(self, channel: str, state: ArrivalState | None = None, limit: int = 100) -> list[ArrivalStatus]:
        """Files, latest first."""
        query = select(arrivals).where(arrivals.c.channel == channel)
        if state is not None:
            query = query.where(arrivals.c.state == state)
        query = query.order_by(arrivals.c.at.desc(), arrivals.c.key).limit(limit)
        return [_status(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def looked(self, channel: str, began: datetime) -> None:
        """All that was there at that moment has been announced. The latest word counts: clocks may have been ahead."""
        mine = channels.c.name == channel
        self.database.write(lambda c: c.execute(update(channels).where(mine).values(looked_at=began)))

    def versions(self, channel: str, places: Sequence[str]) -> dict[str, list[ArrivalStatus]]:
        """Place -> everything that is known of the files there."""
        found: dict[str, list[ArrivalStatus]] = {}
        for start in range(0, len(places), _AT_ONCE):
            some = list(places[start : start + _AT_ONCE])
            query = select(arrivals).where(arrivals.c.channel == channel, arrivals.c.place.in_(some))
            rows = self.database.read(lambda c, q=query: c.execute(q).mappings().all())  # type: ignore[misc]
            for row in rows:
                found.setdefault(row["place"], []).append(_status(row))
        return found

    def arrival_counts(self, channel: str) -> ArrivalCounts:
        """How many there are of each kind."""
        a = arrivals.c
        query = select(
            a.state, func.count(), func.sum(a.bytes), func.sum(a.rows), func.sum(a.bad), func.min(a.at)
        ).where(a.channel == channel)
        rows = self.database.read(lambda c: c.execute(query.group_by(a.state)).all())
        by_state = {r[0]: r for r in rows}
        waits = by_state.get("waiting")
        return ArrivalCounts(
            **{state: int(r[1]) for state, r in by_state.items()},
            waiting_bytes=0 if waits is None else int(waits[2]),
            rows=sum(int(r[3]) for r in rows),
            bad=sum(int(r[4]) for r in rows),
            oldest=None if waits is None else waits[5],
        )


def take(c: Connection, takes: Sequence[tuple[str, Taken]], commit_id: str) -> None:
    """Part of a commit: say what became of arrivals.

    Raises:
        CommitConflict: one of them is not waiting any more: somebody else took it.
    """
    for channel, taken in takes:
        values: dict[str, Any] = {
            "state": taken.state,
            "rows": taken.rows,
            "bad": taken.bad,
            "reason": taken.reason,
            "commit_id": commit_id,
        }
        key = taken.arrival.key
        before = "refused" if taken.state == "waiting" else "waiting"
        mine = (arrivals.c.channel == channel, arrivals.c.key == key, arrivals.c.state == before)
        if not c.execute(update(arrivals).where(*mine).values(**values)).rowcount:
            raise CommitConflict(
                f"{taken.arrival.path!r} was taken by somebody else meanwhile",
                expected=before,
                next="it is planned again",
                reason="arrival",
                channel=channel,
            )


def _status(row: RowMapping) -> ArrivalStatus:
    arrival = Arrival(row["path"], row["version"], row["bytes"], row["modified"])
    return ArrivalStatus(arrival, row["state"], row["at"], row["rows"], row["bad"], row["reason"], row["commit_id"])
