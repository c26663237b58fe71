"""Arrivals: files that were announced for a channel, their outcomes, and the seals of complete groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    Index,
    RowMapping,
    String,
    Table,
    Text,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import sqlite

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.column_types import UtcMicroseconds
from nova_assets.catalog.database.transactions import query_as_dict
from nova_assets.catalog.tables import channels, metadata, seals
from nova_assets.errors import CommitConflict, GroupSealed
from nova_assets.model.arrival import Arrival, ArrivalCounts, ArrivalOutcome, ArrivalState, ArrivalStatus
from nova_assets.model.commit import CommitRequest
from nova_assets.model.partitions import partition_values
from nova_assets.model.seal import AddSeal, Seal, Sealing

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql


arrivals = Table(
    "nova_arrivals",
    metadata,
    Column("channel", ForeignKey("nova_channels.name"), primary_key=True),
    # Hash of path and version, so that repeated announcements are one arrival.
    Column("key", String(64), primary_key=True),
    # Hash of the path alone.
    Column("place", String(64), nullable=False),
    Column("path", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("modified", UtcMicroseconds),
    Column("at", UtcMicroseconds, nullable=False),
    Column("state", String(16), nullable=False),
    Column("rows", BigInteger, nullable=False, server_default="0"),
    Column("bad", BigInteger, nullable=False, server_default="0"),
    Column("reason", Text),
    Column("commit_id", String(64)),
    Index("ix_nova_arrivals_channel_state_at", "channel", "state", "at"),
    Index("ix_nova_arrivals_channel_place", "channel", "place"),
)
Index(
    "ix_nova_arrivals_taking_order",
    arrivals.c.channel,
    arrivals.c.state,
    func.coalesce(arrivals.c.modified, arrivals.c.at),
    arrivals.c.at,
)


_KEYS_PER_QUERY = 500
"""Maximum number of keys in one query."""


class Arrivals(CatalogPart):
    """Files known to a channel.

    Announcements are durable. The outcome of a file becomes durable with the commit that takes it.
    """

    def announce(self, channel: str, files: Iterable[Arrival], announced_at: datetime | None = None) -> list[Arrival]:
        """Record files that have arrived.

        Args:
            announced_at: time from which the files are known to exist; now by default.

        Returns:
            The files that were unknown, or that had vanished and came back.
        """
        by_key = {a.key: a for a in files}
        new = [by_key[k] for k in sorted(set(by_key) - self._announced_keys(channel, list(by_key)))]
        timestamp = announced_at or self.database.clock()
        return (
            self.database.write(
                lambda c: [a for a in new if self._insert_or_revive_gone_arrival(c, channel, a, timestamp)]
            )
            if new
            else []
        )

    def _announced_keys(self, channel: str, keys: Sequence[str]) -> set[str]:
        announced_keys: set[str] = set()
        for start in range(0, len(keys), _KEYS_PER_QUERY):
            batch = keys[start : start + _KEYS_PER_QUERY]
            conditions = (arrivals.c.channel == channel, arrivals.c.key.in_(batch), arrivals.c.state != "gone")
            query = select(arrivals.c.key).where(*conditions)
            announced_keys |= set(self.database.read(lambda c, q=query: c.execute(q).scalars().all()))  # type: ignore[misc]
        return announced_keys

    def _insert_or_revive_gone_arrival(
        self, c: Connection, channel: str, arrival: Arrival, announced_at: datetime
    ) -> bool:
        """Whether this process recorded the arrival, and no other process did so first."""
        row = {
            "channel": channel,
            "key": arrival.key,
            "place": arrival.path_key,
            "path": arrival.path,
            "version": arrival.version,
            "bytes": arrival.size,
            "modified": arrival.modified,
            "at": announced_at,
            "state": "waiting",
        }
        reset_values = {"state": "waiting", "at": announced_at, "reason": None, "commit_id": None}
        insert_arrival = _insert_into_arrivals(is_sqlite=self.database.is_sqlite).values(**row)
        upsert = insert_arrival.on_conflict_do_update(
            index_elements=[arrivals.c.channel, arrivals.c.key], set_=reset_values, where=arrivals.c.state == "gone"
        )
        return c.execute(upsert.returning(arrivals.c.key)).first() is not None

    def waiting(self, channel: str, limit: int) -> list[ArrivalStatus]:
        """Announced files that were not taken yet, in the order in which they were last changed.

        So their order does not depend on when each of them was announced. The later file wins (R11).
        """
        query = select(arrivals).where(arrivals.c.channel == channel, arrivals.c.state == "waiting")
        changed_at = func.coalesce(arrivals.c.modified, arrivals.c.at)
        query = query.order_by(changed_at, arrivals.c.at, arrivals.c.path, arrivals.c.key).limit(limit)
        return [_arrival_status_from_row(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def find(self, channel: str, state: ArrivalState | None = None, limit: int = 100) -> list[ArrivalStatus]:
        """Announced files, latest first."""
        query = select(arrivals).where(arrivals.c.channel == channel)
        if state is not None:
            query = query.where(arrivals.c.state == state)
        query = query.order_by(arrivals.c.at.desc(), arrivals.c.key).limit(limit)
        return [_arrival_status_from_row(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def record_source_listing(self, channel: str, listing_started_at: datetime) -> None:
        """Record that all files that existed at a time have been announced.

        The latest call wins, since clocks may have been ahead.
        """
        is_channel = channels.c.name == channel
        self.database.write(
            lambda c: c.execute(update(channels).where(is_channel).values(looked_at=listing_started_at))
        )

    def by_path_key(self, channel: str, path_keys: Sequence[str]) -> dict[str, list[ArrivalStatus]]:
        """All arrivals at each path, by path key."""
        statuses_by_path_key: dict[str, list[ArrivalStatus]] = {}
        for start in range(0, len(path_keys), _KEYS_PER_QUERY):
            batch = list(path_keys[start : start + _KEYS_PER_QUERY])
            query = select(arrivals).where(arrivals.c.channel == channel, arrivals.c.place.in_(batch))
            rows = self.database.read(lambda c, q=query: c.execute(q).mappings().all())  # type: ignore[misc]
            for row in rows:
                statuses_by_path_key.setdefault(row["place"], []).append(_arrival_status_from_row(row))
        return statuses_by_path_key

    def counts(self, channel: str) -> ArrivalCounts:
        """Number of files in each state, with totals of rows and bytes."""
        a = arrivals.c
        query = select(
            a.state, func.count(), func.sum(a.bytes), func.sum(a.rows), func.sum(a.bad), func.min(a.at)
        ).where(a.channel == channel)
        rows = self.database.read(lambda c: c.execute(query.group_by(a.state)).all())
        by_state = {r[0]: r for r in rows}
        waiting_row = by_state.get("waiting")
        return ArrivalCounts(
            **{state: int(r[1]) for state, r in by_state.items()},
            waiting_bytes=0 if waiting_row is None else int(waiting_row[2]),
            rows=sum(int(r[3]) for r in rows),
            bad=sum(int(r[4]) for r in rows),
            oldest=None if waiting_row is None else waiting_row[5],
        )


def record_arrival_outcomes(c: Connection, outcomes: Sequence[tuple[str, ArrivalOutcome]], commit_id: str) -> None:
    """Part of a commit: record the outcomes of arrivals.

    Raises:
        CommitConflict: the state of an arrival has changed, since another process took it.
    """
    for channel, outcome in outcomes:
        values: dict[str, Any] = {
            "state": outcome.state,
            "rows": outcome.rows,
            "bad": outcome.bad,
            "reason": outcome.reason,
            "commit_id": commit_id,
        }
        key = outcome.arrival.key
        expected_state = "refused" if outcome.state == "waiting" else "waiting"
        conditions = (arrivals.c.channel == channel, arrivals.c.key == key, arrivals.c.state == expected_state)
        if not c.execute(update(arrivals).where(*conditions).values(**values)).rowcount:
            raise CommitConflict(
                f"{outcome.arrival.path!r} was taken by another commit meanwhile",
                expected=expected_state,
                next="it is planned again",
                reason="arrival",
                channel=channel,
            )


def _arrival_status_from_row(row: RowMapping) -> ArrivalStatus:
    arrival = Arrival(row["path"], row["version"], row["bytes"], row["modified"])
    return ArrivalStatus(arrival, row["state"], row["at"], row["rows"], row["bad"], row["reason"], row["commit_id"])


def _insert_into_arrivals(*, is_sqlite: bool) -> sqlite.Insert | postgresql.Insert:
    """Insert statement of the database's dialect, whose conflicts can be handled."""
    if is_sqlite:
        return sqlite.insert(arrivals)
    from sqlalchemy.dialects import postgresql  # takes long to load

    return postgresql.insert(arrivals)


class Seals(CatalogPart):
    """Reads the seals of channels."""

    def find(self, channel: str, limit: int = 1000) -> list[Seal]:
        """Seals of a channel, latest first."""
        query = select(seals).where(seals.c.channel == channel)
        query = query.order_by(seals.c.at.desc(), seals.c.grp.desc(), seals.c.version.desc()).limit(limit)
        return [_seal_from_row(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def latest(self, channel: str) -> dict[str, Seal]:
        """Latest seal of each group."""
        query = select(seals).where(seals.c.channel == channel).order_by(seals.c.version)
        return {r["grp"]: _seal_from_row(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())}

    def count(self, channel: str) -> int:
        """Number of seals ever made for a channel. Never decreases."""
        query = select(func.count()).select_from(seals).where(seals.c.channel == channel)
        return int(self.database.read(lambda c: c.execute(query).scalar()) or 0)

    def counts(self) -> dict[str, int]:
        """Number of seals ever made, for each channel that has one."""
        query = select(seals.c.channel, func.count()).group_by(seals.c.channel)
        return self.database.read(lambda c: query_as_dict(c, query))


def insert_seals(c: Connection, request: CommitRequest, now: Any) -> None:
    """Part of a commit: seal groups.

    Raises:
        CommitConflict: a group was sealed meanwhile.
    """
    for new_seal in request.seals:
        latest_row = _latest_seal_row(c, new_seal.channel, new_seal.group)
        if (0 if latest_row is None else latest_row["version"]) + 1 != new_seal.version or (
            latest_row and latest_row["state"] == "sealed"
        ):
            raise CommitConflict(
                f"{new_seal.group} of channel {new_seal.channel!r} was sealed meanwhile",
                found=None if latest_row is None else f"version {latest_row['version']}, {latest_row['state']}",
                expected=f"version {new_seal.version - 1}",
                reason="seal",
                channel=new_seal.channel,
            )
        c.execute(insert(seals).values(**_values_of_seal(new_seal), state="sealed", at=now, commit_id=request.id))


def reopen_or_reject_sealed_groups(c: Connection, request: CommitRequest, channel_rows: Mapping[str, Any]) -> None:
    """Part of a commit: data for a sealed group reopens the group or is rejected, depending on the channel's seal.

    Raises:
        GroupSealed: the data is rejected.
    """
    sealing_by_group: dict[tuple[str, str], Sealing] = {}
    for p in request.added_blocks:
        sealing = channel_rows[p.channel]["upkeep"].get("seal")
        group = None if sealing is None else partition_values(p.partition).get(sealing["by"])
        if group is not None and p.takes_sequence_number and p.origin != "drop":
            sealing_by_group[p.channel, group] = Sealing.from_json(sealing)
    for (channel, group), sealing in sealing_by_group.items():
        latest_row = _latest_seal_row(c, channel, group)
        if latest_row is None or latest_row["state"] != "sealed":
            continue
        if sealing.late == "quarantine":
            raise GroupSealed(
                f"{sealing.by}={group} of channel {channel!r} is sealed",
                found=f"rows that arrived after it was sealed at {latest_row['at']:%Y-%m-%d %H:%M:%S} UTC",
                expected="none: the channel's seal says late='quarantine'",
                next=f"declare it with nova.seal({sealing.by!r}, late='reopen'), or leave the rows out",
                channel=channel,
                group=group,
            )
        conditions = (seals.c.channel == channel, seals.c.grp == group, seals.c.version == latest_row["version"])
        c.execute(update(seals).where(*conditions).values(state="reopened"))


def _latest_seal_row(c: Connection, channel: str, group: str) -> RowMapping | None:
    query = select(seals).where(seals.c.channel == channel, seals.c.grp == group)
    return c.execute(query.order_by(seals.c.version.desc()).limit(1)).mappings().first()


def _values_of_seal(new_seal: AddSeal) -> dict[str, Any]:
    return {
        "channel": new_seal.channel,
        "grp": new_seal.group,
        "version": new_seal.version,
        "seq": new_seal.seq,
        "rows": new_seal.rows,
        "bytes": new_seal.bytes,
        "files": new_seal.files,
    }


def _seal_from_row(row: RowMapping) -> Seal:
    return Seal(
        row["channel"],
        row["grp"],
        row["version"],
        row["state"],
        row["seq"],
        row["at"],
        row["rows"],
        row["bytes"],
        row["files"],
    )
