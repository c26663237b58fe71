"""What a scheduler asks: which partitions there are and what they were made of, which are marked to be made again, what
runs and what fails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, case, delete, func, insert, select, update

from nova_assets.catalog.database import Database
from nova_assets.catalog.tables import blocks, commits, dirty, executions
from nova_assets.model.commit import CommitRequest
from nova_assets.model.mark import Failure, Made, Mark

_AT_ONCE = 300


class Marks:
    """What there is, and what is to be made again."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def made(self, channel: str) -> dict[str, Made]:
        """The partitions of a channel that are there: when each was given something last, and what was read then."""
        newest = (
            select(blocks.c.partition, func.max(blocks.c.hi).label("hi"))
            .where(blocks.c.channel == channel, blocks.c.origin != "compact")
            .group_by(blocks.c.partition)
            .subquery()
        )
        query = (
            select(blocks.c.partition, blocks.c.hi, blocks.c.origin, commits.c.consumed)
            .join(newest, and_(blocks.c.partition == newest.c.partition, blocks.c.hi == newest.c.hi))
            .join(commits, commits.c.id == blocks.c.commit_id)
            .where(blocks.c.channel == channel, blocks.c.origin != "compact")
        )
        rows = self.database.read(lambda c: c.execute(query).all())
        return {p: Made(hi, {n: v[1] for n, v in read.items()}) for p, hi, origin, read in rows if origin != "drop"}

    def mark(self, channel: str, partitions: Iterable[str], by: str = "", why: str = "") -> int:
        """Mark partitions to be made again. Gives how many were not marked before.

        Args:
            by: the backfill, or whoever it is that wants it.
        """
        now = self.database.clock()

        def work(c: Connection) -> int:
            known = set(c.execute(select(dirty.c.partition).where(dirty.c.channel == channel)).scalars())
            again = [p for p in wanted if p in known]
            for some in _some(again):
                where = (dirty.c.channel == channel, dirty.c.partition.in_(some))
                c.execute(update(dirty).where(*where).values(at=now, by=by, why=why))
            said = {"channel": channel, "at": now, "by": by, "why": why}
            rows = [{**said, "partition": p} for p in wanted if p not in known]
            if rows:
                c.execute(insert(dirty), rows)
            return len(rows)

        wanted = list(dict.fromkeys(partitions))
        return self.database.write(work)

    def unmark(self, channel: str | None = None, partitions: Sequence[str] | None = None, by: str | None = None) -> int:
        """Take marks back: of a channel, of some of its partitions, of a backfill. Gives how many."""
        where: list[Any] = [] if channel is None else [dirty.c.channel == channel]
        where += [] if by is None else [dirty.c.by == by]
        where += [] if partitions is None else [dirty.c.partition.in_(list(partitions))]
        return int(self.database.write(lambda c: c.execute(delete(dirty).where(*where)).rowcount))

    def marks(self) -> list[Mark]:
        """All marks, oldest first."""
        query = select(dirty).order_by(dirty.c.at, dirty.c.channel, dirty.c.partition)
        rows = self.database.read(lambda c: c.execute(query).mappings().all())
        return [Mark(r["channel"], r["partition"], r["at"], r["by"], r["why"]) for r in rows]

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


def forget_marks(c: Connection, request: CommitRequest, started: datetime | None) -> None:
    """Part of a commit: what is made anew is no longer marked, unless it was marked after the execution began."""
    if started is None:
        return
    found: dict[str, list[str]] = {}
    for p in request.publish:
        if p.takes_number and p.origin != "drop":
            found.setdefault(p.channel, []).append(p.partition)
    for channel, partitions in found.items():
        for some in _some(partitions):
            where = (dirty.c.channel == channel, dirty.c.partition.in_(some), dirty.c.at <= started)
            c.execute(delete(dirty).where(*where))


def _some(names: list[str]) -> Iterable[list[str]]:
    return (names[n : n + _AT_ONCE] for n in range(0, len(names), _AT_ONCE))
