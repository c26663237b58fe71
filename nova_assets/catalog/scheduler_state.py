"""What a scheduler asks: which partitions there are and what they were made of, which are marked to be made again, what
runs and what fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, case, delete, func, insert, select, update

from nova_assets.catalog.database import Database, batched, pairs
from nova_assets.catalog.tables import backfill_parts, blocks, channels, commits, dirty, executions
from nova_assets.model.backfill import State
from nova_assets.model.commit import CommitRequest
from nova_assets.model.partition_state import Failure, Made, Mark

_AT_ONCE = 300


class Marks:
    """What there is, and what is to be made again."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def heads(self) -> dict[str, int]:
        """Of all channels, the highest number committed."""
        return self.database.read(lambda c: pairs(c, select(channels.c.name, channels.c.head)))

    def given_since(self, channel: str, number: int) -> list[str]:
        """The partitions of a channel that were given something after a number, or dropped."""
        given = {"channel": channel, "number": number}
        return sorted(self.database.read(lambda c: c.execute(_GIVEN_SINCE, given).scalars().all()))

    def made(self, channel: str, partitions: Iterable[str] | None = None) -> dict[str, Made]:
        """The partitions of a channel that are there: when each was given something last, and what was read then.

        Args:
            partitions: only these.
        """

        def look(c: Connection) -> dict[str, Made]:
            if partitions is None:
                return _made(c, channel)
            found: dict[str, Made] = {}
            for some in batched(sorted(partitions), _AT_ONCE):
                found |= _made(c, channel, some)
            return found

        return self.database.read(look)

    def mark(self, channel: str, partitions: Iterable[str], by: str = "", why: str = "", priority: int = 0) -> int:
        """Mark partitions to be made again. Gives how many were not marked before.

        Args:
            by: the backfill, or whoever it is that wants it.
            priority: the higher is run first; what is missing has 0.
        """
        now, wanted = self.database.clock(), list(dict.fromkeys(partitions))
        return self.database.write(lambda c: marked(c, channel, wanted, by, why, priority, now))

    def unmark(self, channel: str | None = None, partitions: Sequence[str] | None = None) -> int:
        """Take marks back: of a channel, or of some of its partitions. Gives how many."""
        return self.database.write(lambda c: unmarked(c, self.database.clock(), channel, partitions))

    def marks(self) -> list[Mark]:
        """All marks, oldest first."""
        query = select(dirty).order_by(dirty.c.at, dirty.c.channel, dirty.c.partition)
        rows = self.database.read(lambda c: c.execute(query).mappings().all())
        return [Mark(r["channel"], r["partition"], r["at"], r["by"], r["why"], r["priority"]) for r in rows]

    def running(self) -> list[tuple[str, str]]:
        """(binding, partition) of the executions whose leases hold."""
        held = (executions.c.state == "running", executions.c.lease_until > self.database.clock())
        query = select(executions.c.binding, executions.c.partition).where(executions.c.binding.is_not(None), *held)
        return [(b, p) for b, p in self.database.read(lambda c: c.execute(query).all())]

    def failing(self) -> dict[tuple[str, str], Failure]:
        """(binding, partition) -> how often its executions have failed since one succeeded."""
        done = executions.alias("done")
        since = select(done.c.id).where(
            done.c.binding == executions.c.binding,
            done.c.partition == executions.c.partition,
            done.c.state == "committed",
            done.c.started_at >= executions.c.started_at,
        )
        ended = case((executions.c.finished_at.is_not(None), executions.c.finished_at), else_=executions.c.started_at)
        query = (
            select(executions.c.binding, executions.c.partition, func.sum(executions.c.failures), func.max(ended))
            .where(executions.c.binding.is_not(None), executions.c.failures > 0, ~since.exists())
            .group_by(executions.c.binding, executions.c.partition)
        )
        rows = self.database.read(lambda c: c.execute(query).all())
        return {(b, p): Failure(int(n), at) for b, p, n, at in rows}


def marked(
    c: Connection, channel: str, partitions: Sequence[str], by: str, why: str, priority: int, now: datetime
) -> int:
    """Mark partitions; one that is marked already is this one's from now on, and made as soon as the more urgent of the
    two wants it. Gives how many were not."""
    _lock(c, [channel])
    known = {p: n for p, n in c.execute(select(dirty.c.partition, dirty.c.priority).where(dirty.c.channel == channel))}
    said = {"at": now, "by": by, "why": why}
    for some in batched([p for p in partitions if p in known], _AT_ONCE):
        where = (dirty.c.channel == channel, dirty.c.partition.in_(some))
        urgent = case((dirty.c.priority > priority, dirty.c.priority), else_=priority)
        c.execute(update(dirty).where(*where).values(**said, priority=urgent))
    rows = [{**said, "priority": priority, "channel": channel, "partition": p} for p in partitions if p not in known]
    if rows:
        c.execute(insert(dirty), rows)
    return len(rows)


def unmarked(
    c: Connection,
    now: datetime,
    channel: str | None = None,
    partitions: Sequence[str] | None = None,
) -> int:
    """Take marks back, whoever wants them. Gives how many."""
    where: list[Any] = [] if channel is None else [dirty.c.channel == channel]
    where += [] if partitions is None else [dirty.c.partition.in_(list(partitions))]
    found = _grouped(c.execute(select(dirty.c.channel, dirty.c.partition).where(*where)))
    _lock(c, found)
    for name, some in found.items():
        for few in batched(some, _AT_ONCE):
            c.execute(delete(dirty).where(dirty.c.channel == name, dirty.c.partition.in_(few)))
            _end_parts(c, name, few, "cancelled", now)
    return sum(map(len, found.values()))


def withdrawn(c: Connection, backfill: str, now: datetime) -> int:
    """Take back what a backfill still wants; what another one wants, too, is that one's. Gives how many partitions are
    not made for it any more."""
    mine = (backfill_parts.c.backfill == backfill, backfill_parts.c.state == "waiting")
    found = _grouped(c.execute(select(backfill_parts.c.channel, backfill_parts.c.partition).where(*mine)))
    _lock(c, found)
    c.execute(update(backfill_parts).where(*mine).values(state="cancelled", ended_at=now))
    for channel, some in found.items():
        for few in batched(some, _AT_ONCE):
            others = select(backfill_parts.c.partition, func.max(backfill_parts.c.backfill)).where(
                backfill_parts.c.channel == channel,
                backfill_parts.c.partition.in_(few),
                backfill_parts.c.state == "waiting",
            )
            wanted = {p: by for p, by in c.execute(others.group_by(backfill_parts.c.partition))}
            gone = [p for p in few if p not in wanted]
            at = (dirty.c.channel == channel, dirty.c.by == backfill)
            c.execute(delete(dirty).where(*at, dirty.c.partition.in_(gone)))
            for partition, by in wanted.items():
                c.execute(update(dirty).where(*at, dirty.c.partition == partition).values(by=by))
    return sum(map(len, found.values()))


def forget_marks(
    c: Connection, request: CommitRequest, taken: Mapping[str, int], started: datetime | None, now: datetime
) -> None:
    """Part of a commit, which holds the channels' locks: what is made anew is no longer marked, unless it was marked
    after the execution began; and its backfills know when, and by whom, it was made.

    Args:
        taken: channel -> the number that it takes.
    """
    found: dict[tuple[str, bool], list[str]] = {}
    for p in request.publish:
        if p.takes_number:
            found.setdefault((p.channel, p.origin == "drop"), []).append(p.partition)
    for (channel, gone), partitions in found.items():
        if not gone and (started is None or request.keeps_marks):
            continue
        for some in batched(partitions, _AT_ONCE):
            where = [dirty.c.channel == channel, dirty.c.partition.in_(some)]
            where += [] if gone else [dirty.c.at <= started]
            known = list(c.execute(select(dirty.c.partition).where(*where)).scalars())
            if known:
                c.execute(delete(dirty).where(*where))
            how = {} if gone else {"seq": taken[channel], "execution_id": request.execution_id}
            _end_parts(c, channel, known, "dropped" if gone else "made", now, **how)
            if not gone:  # for one that was cancelled while it ran, it is made all the same
                late = (backfill_parts.c.state == "cancelled", backfill_parts.c.ended_at >= started)
                of = (backfill_parts.c.channel == channel, backfill_parts.c.partition.in_(some))
                c.execute(update(backfill_parts).where(*of, *late).values(state="made", ended_at=now, **how))


def _end_parts(c: Connection, channel: str, partitions: Sequence[str], state: State, now: datetime, **how: Any) -> None:
    if partitions:
        waiting = (backfill_parts.c.channel == channel, backfill_parts.c.partition.in_(partitions))
        change = update(backfill_parts).where(*waiting, backfill_parts.c.state == "waiting")
        c.execute(change.values(state=state, ended_at=now, **how))


def _lock(c: Connection, names: Iterable[str]) -> None:
    """Hold channels, in the order in which commits do: marks come and go under their locks."""
    query = select(channels.c.name).where(channels.c.name.in_(sorted(names))).order_by(channels.c.name)
    c.execute(query.with_for_update()).all()


def _grouped(rows: Iterable[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for channel, partition in rows:
        found.setdefault(channel, []).append(partition)
    return found


def _made(c: Connection, channel: str, among: Sequence[str] | None = None) -> dict[str, Made]:
    """The same within a transaction.

    Args:
        among: which partitions are asked for; None for all.
    """
    given: dict[str, Any] = {"channel": channel, **({} if among is None else {"among": among})}
    arrived = _arrived(c, given)
    return {
        p: Made(hi, {n: v[1] for n, v in read.items()}, arrived.get(p))
        for p, hi, origin, read in c.execute(_newest(among is not None), given)
        if origin != "drop"
    }


def _arrived(c: Connection, given: dict[str, Any]) -> dict[str, int]:
    """Of what backfills have made: partition -> the last number at which it was given something that was not theirs."""
    # The first that there was of a partition has arrived with it, whoever made it.
    found = {p: seq for p, seq in c.execute(_FIRST_BACKFILLED, {"channel": given["channel"]})}
    if found:
        found |= {p: hi for p, hi in c.execute(_not_backfilled("among" in given), given) if p in found}
    return found


# Statements that are asked at every tick, for many channels: put together once.


def _of_channel(narrowed: bool) -> list[ColumnElement[bool]]:
    """What of the blocks of a channel is looked at."""
    of: list[ColumnElement[bool]] = [blocks.c.channel == bindparam("channel"), blocks.c.origin != "compact"]
    return [*of, blocks.c.partition.in_(bindparam("among", expanding=True))] if narrowed else of


@cache
def _newest(narrowed: bool) -> Select[Any]:
    """Of partitions, what they were given last, and what was read then."""
    newest = select(blocks.c.partition, func.max(blocks.c.hi).label("hi")).where(*_of_channel(narrowed))
    newest_ = newest.group_by(blocks.c.partition).subquery()
    return (
        select(blocks.c.partition, blocks.c.hi, blocks.c.origin, commits.c.consumed)
        .join(newest_, and_(blocks.c.partition == newest_.c.partition, blocks.c.hi == newest_.c.hi))
        .join(commits, commits.c.id == blocks.c.commit_id)
        .where(*_of_channel(narrowed))
    )


@cache
def _not_backfilled(narrowed: bool) -> Select[Any]:
    """Of partitions, the last number at which no backfill gave them something."""
    of_backfill = and_(
        backfill_parts.c.channel == blocks.c.channel,
        backfill_parts.c.partition == blocks.c.partition,
        backfill_parts.c.seq == blocks.c.hi,
    )
    query = select(blocks.c.partition, func.max(blocks.c.hi))
    query = query.where(*_of_channel(narrowed), ~select(backfill_parts.c.n).where(of_backfill).exists())
    return query.group_by(blocks.c.partition)


_FIRST_BACKFILLED = (
    select(backfill_parts.c.partition, func.min(backfill_parts.c.seq))
    .where(backfill_parts.c.channel == bindparam("channel"), backfill_parts.c.state == "made")
    .group_by(backfill_parts.c.partition)
)

_GIVEN_SINCE = select(blocks.c.partition).where(*_of_channel(False), blocks.c.hi > bindparam("number")).distinct()
