"""The commit transaction: check what was relied on, give numbers, publish, move cursors (R1, R2, R5, R6, R7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from nova_assets.catalog.arrivals import take
from nova_assets.catalog.block_rows import read_blocks
from nova_assets.catalog.database import Database, pairs
from nova_assets.catalog.executions import abort, cursor_of_other_kind, forget_skipped, lock_execution, printable
from nova_assets.catalog.history import consumers
from nova_assets.catalog.published_versions import show_editions
from nova_assets.catalog.scheduler_state import forget_marks
from nova_assets.catalog.seals import put_seals, reopen_or_refuse
from nova_assets.catalog.tables import (
    blocks,
    channels,
    commits,
    cursors,
    executions,
    files,
    firings,
    keys,
    numbers,
    seals,
    staged,
)
from nova_assets.catalog.timeline_steps import put_steps
from nova_assets.errors import ChannelNotFound, CommitConflict, NovaError, ValueRefused
from nova_assets.model.block import DataFile
from nova_assets.model.commit import Commit, CommitRequest, HeadAt, KeyedCommit, MoveCursor, Publish
from nova_assets.model.partitions import within
from nova_assets.model.schema import Schema
from nova_assets.model.sum_bounds import SumRoom, bound
from nova_assets.model.timeline import Action, action_of

KEY_LENGTH: int = keys.c.key.type.length  # type: ignore[attr-defined]
"""Characters of an idempotency key at most."""

_AT_ONCE = 300
"""Blocks asked for by one query."""


class Commits:
    """Publishes executions.

    Args:
        on_before_commit: called inside the transaction, when all is done but COMMIT: a place for tests to die at.
    """

    def __init__(self, database: Database, on_before_commit: Callable[[], None] | None = None) -> None:
        self.database = database
        self.on_before_commit = on_before_commit

    def commit(self, request: CommitRequest) -> Commit:
        """Publish, or refuse whole.

        Raises:
            CommitConflict: something has moved; nothing was changed.
            CommitOutcomeUnknown: ask ``settle`` (R7).
        """
        return self.database.write(lambda c: self._commit(c, request), self.on_before_commit, settled_by_caller=True)

    def settle(self, execution_id: str) -> Commit | None:
        """The commit of an execution, if there is one; otherwise it is aborted, so that a late COMMIT fails (R7).

        Waits for a transaction that still holds the execution's row.
        """

        def work(c: Connection) -> Commit | None:
            row = lock_execution(c, execution_id)
            if row is None:
                return None
            if row["state"] == "committed":
                return _read(c, commits.c.execution_id == execution_id)
            if row["state"] != "aborted":
                abort(c, execution_id, "its COMMIT was lost", self.database, failed=False)
            return None

        return self.database.write(work)

    def commit_of_key(self, channel: str, key: str) -> KeyedCommit | None:
        """The commit that an idempotency key stands for. Raises ValueRefused for a key that cannot be kept."""
        _check_key(channel, key)
        return self.database.read(lambda c: _keyed(c, channel, key))

    def commit_by_id(self, commit_id: str) -> Commit:
        """A commit. Raises NovaError when there is none."""
        found = self.database.read(lambda c: _read(c, commits.c.id == commit_id))
        if found is None:
            raise NovaError(f"there is no commit {commit_id!r}", commit_id=commit_id)
        return found

    def unpublished(self, limit: int = 100, channels: Iterable[str] | None = None) -> list[Commit]:
        """Commits that took a number, or sealed something, and that Dagster has not heard of, oldest first (R17).

        Args:
            channels: only commits on one of these.
        """
        numbered, sealed = select(numbers.c.commit_id), select(seals.c.commit_id)
        if channels is not None:
            names = sorted(channels)
            numbered, sealed = numbered.where(numbers.c.channel.in_(names)), sealed.where(seals.c.channel.in_(names))
        told = numbered.union_all(sealed)
        query = select(commits.c.id).where(commits.c.published_at.is_(None), commits.c.id.in_(told))
        query = query.order_by(commits.c.at, commits.c.id).limit(limit)

        def work(c: Connection) -> list[Commit]:
            found = [_read(c, commits.c.id == i) for i in c.execute(query).scalars().all()]
            return [f for f in found if f is not None]

        return self.database.read(work)

    def mark_published(self, commit_id: str) -> None:
        """Dagster has it."""
        change = update(commits).where(commits.c.id == commit_id, commits.c.published_at.is_(None))
        self.database.write(lambda c: c.execute(change.values(published_at=self.database.clock())))

    # the transaction

    def _commit(self, c: Connection, request: CommitRequest) -> Commit:
        execution = lock_execution(c, request.execution_id)
        state = lock_channels(c, request)
        repeated = self._repeated(c, request)
        if repeated is not None:
            return repeated
        self._require(c, request, execution, state)
        reopen_or_refuse(c, request, state)
        taken = self._number(c, request, state)
        self._publish(c, request, taken)
        put_steps(c, request.id, _actions(request), state, self.database.clock())
        self._move(c, request, taken)
        take(c, request.takes, request.id)
        put_seals(c, request, self.database.clock())
        show_editions(c, request, self.database.clock())
        started = None if execution is None else execution["started_at"]
        forget_marks(c, request, taken, started, self.database.clock())
        self._finish(c, request, execution or {})
        found = _read(c, commits.c.id == request.id)
        assert found is not None
        return found

    def _repeated(self, c: Connection, request: CommitRequest) -> Commit | None:
        if request.idempotency is None:
            return None
        channel, key = request.idempotency
        first = _keyed(c, channel, key)
        if first is None:
            return None
        repeated = first.repeat(channel, request.digest)
        abort(c, request.execution_id, f"repeats commit {repeated.id}", self.database)
        return repeated

    def _require(
        self, c: Connection, request: CommitRequest, execution: RowMapping | None, state: Mapping[str, Any]
    ) -> None:
        """Everything that the execution relied on is as it was (R6)."""
        if execution is None or execution["state"] != "running" or execution["epoch"] != request.epoch:
            found = "gone" if execution is None else f"{execution['state']}, epoch {execution['epoch']}"
            raise _conflict("the execution is no longer live", "execution", found, f"running, epoch {request.epoch}")
        for head in request.heads:
            self._require_head(c, head, state)
        for cursor in request.cursors:
            at = c.execute(select(cursors.c.seq).where(*_cursor(cursor))).scalar() or 0
            if at != cursor.expected:
                what = f"the cursor of {cursor.binding!r} on channel {cursor.channel!r} has moved"
                raise _conflict(what, "cursor", at, cursor.expected, cursor.channel)
        if request.binding is not None and request.cursors:
            other = cursor_of_other_kind(c, request.binding, execution["partition"])
            if other is not None:
                what = f"binding {request.binding!r} was meanwhile executed {f'for {other}' if other else 'whole'}"
                raise _conflict(what, "cursor", other or "(whole)", execution["partition"] or "(whole)")
        for schema in request.schemas:
            now = state[schema.channel]["schema"]
            if now != (None if schema.was is None else schema.was.as_json()):
                shown = None if now is None else str(Schema.from_json(now))
                raise _conflict(
                    f"the schema of channel {schema.channel!r} has changed",
                    "schema",
                    shown,
                    str(schema.was),
                    schema.channel,
                )
        for part in _there_already(c, [p for p in request.publish if p.span is not None and not p.anew]):
            what = f"channel {part.channel!r} was compacted at {_place(part)[1]} meanwhile"
            raise _conflict(what, "compacted", "a base", "none", part.channel)
        for unread in request.no_consumers:
            if consumers(c, unread.channel, request.execution_id):
                what = f"channel {unread.channel!r} has a consumer now: the base must be compared with what it replaces"
                raise _conflict(what, "consumers", "a consumer", "none", unread.channel)
        for room in request.rooms:
            if state[room.channel]["head"] != room.seq:
                _require_room(c, room)

    def _require_head(self, c: Connection, wanted: HeadAt, state: Mapping[str, Any]) -> None:
        head, where = state[wanted.channel]["head"], ""
        if wanted.scope and head != wanted.seq:
            later = select(blocks.c.partition, blocks.c.hi).where(
                blocks.c.channel == wanted.channel, blocks.c.hi > wanted.seq, blocks.c.origin != "compact"
            )
            moved = [hi for partition, hi in c.execute(later).all() if within(partition, wanted.scope)]
            head, where = max(moved, default=wanted.seq), f" in {wanted.scope}"
        if head != wanted.seq:
            what = f"channel {wanted.channel!r} has moved{where} since the execution began"
            raise _conflict(what, "head", head, wanted.seq, wanted.channel)

    def _number(self, c: Connection, request: CommitRequest, state: Mapping[str, Any]) -> dict[str, int]:
        """The next number of each channel that gets a block; schemas are set here, too, under the same lock (R1)."""
        taken = {p.channel: state[p.channel]["head"] + 1 for p in request.publish if p.takes_number}
        given = {p.channel for p in request.publish if p.kind == "base" and p.span is None and p.origin != "drop"}
        news = {p.channel for p in request.publish if p.takes_number and p.origin != "drop"}
        c.execute(update(channels).where(channels.c.name.in_(given), channels.c.bases.is_(False)).values(bases=True))
        becomes = {s.channel: s.becomes.as_json() for s in request.schemas if s.channel in taken}
        for name, seq in taken.items():
            values: dict[str, Any] = {"head": seq, **({"news": seq} if name in news else {})}
            values |= {"schema": becomes[name]} if name in becomes else {}
            c.execute(update(channels).where(channels.c.name == name).values(**values))
        involved = {p.channel for p in request.publish} | {m.channel for m in request.cursors}
        heads = {n: taken.get(n, state[n]["head"]) for n in sorted(involved)}
        c.execute(
            insert(commits).values(
                id=request.id,
                execution_id=request.execution_id,
                binding=request.binding,
                at=self.database.clock(),
                heads=heads,
                consumed={n: list(v) for n, v in request.consumed.items()},
                details=dict(request.details),
            )
        )
        if taken:
            c.execute(insert(numbers), [{"commit_id": request.id, "channel": n, "seq": s} for n, s in taken.items()])
        return taken

    def _publish(self, c: Connection, request: CommitRequest, taken: Mapping[str, int]) -> None:
        added = [p for p in request.publish if p.is_added]
        for p in added:
            if p.anew:
                self._replace(c, p, request.id)
        if added:
            c.execute(insert(blocks), [_block_row(p, request.id, taken.get(p.channel, 0)) for p in added])
        rows = [
            {
                "block_id": p.block_id,
                "ordinal": n,
                "path": f.path,
                "rows": f.rows,
                "bytes": f.bytes,
                "ranges": {k: list(v) for k, v in f.ranges.items()},
                "place": None if f.place is None else f.place.as_json(),
                "digest": f.digest or None,
                "footer_digest": f.footer_digest or None,
                "unpacked": f.unpacked or None,
            }
            for p in added
            for n, f in enumerate(p.manifest.files)
        ]
        if rows:
            c.execute(insert(files), rows)
        if added:
            c.execute(delete(staged).where(staged.c.id.in_([p.block_id for p in added])))

    def _replace(self, c: Connection, p: Publish, commit_id: str) -> None:
        """Collect the base that upkeep has added there before: it answers the same (R9).

        Raises:
            CommitConflict: there is none any more.
        """
        gone = {"collected_at": self.database.clock(), "collected_by": commit_id}
        where = (*_same_place(p), blocks.c.origin == "compact", blocks.c.collected_at.is_(None))
        if not c.execute(update(blocks).where(*where).values(**gone)).rowcount:
            raise _conflict(f"channel {p.channel!r} was compacted meanwhile", "compacted", "no base", "one", p.channel)

    def _move(self, c: Connection, request: CommitRequest, taken: Mapping[str, int]) -> None:
        for cursor in request.cursors:
            to = taken.get(cursor.channel, cursor.to) if cursor.own else cursor.to
            values = {"seq": to, "commit_id": request.id, "moved_at": self.database.clock()}
            if not c.execute(update(cursors).where(*_cursor(cursor)).values(**values)).rowcount:
                who = {"binding": cursor.binding, "partition": cursor.partition, "channel": cursor.channel}
                c.execute(insert(cursors).values(channel_partition=cursor.channel_partition, **who, **values))

    def _finish(self, c: Connection, request: CommitRequest, execution: RowMapping | dict[str, Any]) -> None:
        if request.idempotency is not None:
            channel, key = request.idempotency
            c.execute(insert(keys).values(channel=channel, key=key, commit_id=request.id, digest=request.digest))
        done = {"state": "committed", "finished_at": self.database.clock(), "commit_id": request.id}
        c.execute(update(executions).where(executions.c.id == request.execution_id).values(**done))
        forget_skipped(c, request.execution_id)
        if execution.get("firing_id"):
            answered = (firings.c.id == execution["firing_id"], firings.c.state == "requested")
            c.execute(update(firings).where(*answered).values(state="committed"))


def lock_channels(c: Connection, request: CommitRequest) -> dict[str, RowMapping]:
    """All channels concerned, locked in the order of their names, so that no two commits wait for each other."""
    names = {p.channel for p in request.publish} | {m.channel for m in request.cursors}
    names |= {h.channel for h in request.heads} | {n.channel for n in request.no_consumers}
    names |= {s.channel for s in request.schemas} | {s.channel for s in request.seals}
    names |= {r.channel for r in request.rooms} | {e.channel for e in request.editions}
    query = select(channels).where(channels.c.name.in_(sorted(names))).order_by(channels.c.name).with_for_update()
    found = {r["name"]: r for r in c.execute(query).mappings()}
    for name in sorted(names - set(found)):
        raise ChannelNotFound(f"no channel is called {name!r}", next="nova channels", channel=name)
    return found


def _require_room(c: Connection, room: SumRoom) -> None:
    """What others have added to a sum meanwhile leaves it within its type, whatever this commit adds to it."""
    later = select(files.c.rows, files.c.ranges).join(blocks, blocks.c.id == files.c.block_id)
    later = later.where(blocks.c.channel == room.channel, blocks.c.partition == room.partition)
    later = later.where(blocks.c.hi > room.seq, blocks.c.origin != "compact")
    there = [DataFile("", n, 0, {k: (v[0], v[1]) for k, v in ranges.items()}) for n, ranges in c.execute(later)]
    bounds = [bound([file], room.column) for file in there]
    known = [b for b in bounds if b is not None]
    if len(known) < len(bounds) or (bounds and (room.room is None or sum(known) > room.room)):
        what = f"others have added to column {room.column!r} of channel {room.channel!r} since the execution began"
        raise _conflict(what, "sums", "later deltas", f"a sum as at {room.seq}", room.channel)


def _actions(request: CommitRequest) -> dict[str, Action]:
    """Channel -> what the commit does to it; those that get no block are left out."""
    origins: dict[str, set[str]] = {}
    for p in request.publish:
        if p.is_added:
            origins.setdefault(p.channel, set()).add(p.origin)
    return {channel: action_of(found) for channel, found in sorted(origins.items())}


def _cursor(cursor: MoveCursor) -> tuple[Any, ...]:
    return (
        cursors.c.binding == cursor.binding,
        cursors.c.partition == cursor.partition,
        cursors.c.channel == cursor.channel,
        cursors.c.channel_partition == cursor.channel_partition,
    )


def _there_already(c: Connection, added: Sequence[Publish]) -> Iterator[Publish]:
    """Those of some blocks that another process has added meanwhile: upkeep of one channel may be done by several."""
    for n in range(0, len(added), _AT_ONCE):
        some = {(p.channel, p.partition, p.kind, *_place(p)): p for p in added[n : n + _AT_ONCE]}
        same = (blocks.c.channel, blocks.c.partition, blocks.c.kind, blocks.c.lo, blocks.c.hi)
        near = [column.in_(sorted(set(values))) for column, values in zip(same, zip(*some, strict=True), strict=True)]
        for row in c.execute(select(*same).where(*near, blocks.c.collected_at.is_(None))):
            if tuple(row) in some:
                yield some[tuple(row)]


def _same_place(p: Publish) -> tuple[Any, ...]:
    lo, hi = _place(p)
    same = (blocks.c.channel == p.channel, blocks.c.partition == p.partition, blocks.c.kind == p.kind)
    return (*same, blocks.c.hi == hi, blocks.c.lo == lo)


def _place(p: Publish) -> tuple[int, int]:
    """Where a block that upkeep adds lies: a base is at one number."""
    assert p.span is not None
    return (p.span[1], p.span[1]) if p.kind == "base" else p.span


def _block_row(p: Publish, commit_id: str, seq: int) -> dict[str, Any]:
    lo, hi = p.span or (seq - 1, seq)
    return {
        "id": p.block_id,
        "channel": p.channel,
        "partition": p.partition,
        "kind": p.kind,
        "lo": hi if p.kind == "base" else lo,
        "hi": hi,
        "rows": p.manifest.rows,
        "bytes": p.manifest.bytes,
        "deletes": p.manifest.deletes,
        "schema": p.manifest.schema.as_json(),
        "format": p.manifest.format,
        "keeps_all": p.manifest.keeps_all,
        "layout": None if p.manifest.layout is None else p.manifest.layout.as_json(),
        "outside": None if p.manifest.outside is None else p.manifest.outside.as_json(),
        "merge": p.merge.as_json(),
        "origin": p.origin,
        "commit_id": commit_id,
    }


def _read(c: Connection, where: Any) -> Commit | None:
    row = c.execute(select(commits).where(where)).mappings().first()
    if row is None:
        return None
    taken = pairs(c, select(numbers.c.channel, numbers.c.seq).where(numbers.c.commit_id == row["id"]))
    return Commit(
        row["id"],
        row["execution_id"],
        row["binding"],
        row["at"],
        taken,
        tuple(read_blocks(c, select(blocks).where(blocks.c.commit_id == row["id"]))),
        row["heads"],
        {n: (v[0], v[1]) for n, v in row["consumed"].items()},
        details=row["details"],
    )


def _keyed(c: Connection, channel: str, key: str) -> KeyedCommit | None:
    query = select(keys.c.commit_id, keys.c.digest).where(keys.c.channel == channel, keys.c.key == key)
    row = c.execute(query).first()
    commit = None if row is None else _read(c, commits.c.id == row.commit_id)
    return None if row is None or commit is None else KeyedCommit(key, commit, row.digest)


def _check_key(channel: str, key: str) -> None:
    """A key is refused by every catalog alike, and before anything is staged."""
    if len(key) > KEY_LENGTH or "\x00" in key or (not key.isascii() and printable(key) != key):
        raise ValueRefused(
            f"an idempotency key for channel {channel!r} cannot be kept",
            found=f"{len(key)} characters: {printable(key)[:40]!r}",
            expected=f"at most {KEY_LENGTH} characters, without null characters and lone surrogates",
            channel=channel,
        )


def _conflict(what: str, reason: str, found: object, expected: object, channel: str | None = None) -> CommitConflict:
    return CommitConflict(
        what, found=found, expected=expected, next="it is planned again", reason=reason, channel=channel
    )
