"""Receiving: files that have arrived for a channel go onto it, each exactly once.

    announced ─► known to the catalog ─► read ─► staged ─► committed, with what became of each ─► acknowledged

What an inbox tells of is remembered first, under a key made of path and version, so that it may be told late, twice or
by several. The commit that publishes the rows also says which files they are of, and is refused if one of them is not
waiting any more. Only then is the inbox told that it need not come again. So wherever a process dies, the next one
finds the file either waiting or taken.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from nova_assets.crash_points import crash_point
from nova_assets.errors import (
    CatalogUnavailable,
    CommitConflict,
    GroupSealed,
    SourceUnavailable,
    TooManyBadRecords,
)
from nova_assets.execution.lease import heartbeat
from nova_assets.execution.runtime import Runtime
from nova_assets.execution.staging import publications, requirements
from nova_assets.masking import get_logger
from nova_assets.model.arrival import Arrival, Taken
from nova_assets.model.arrival_outcome import Received
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit, CommitRequest, HeadAt, Publish
from nova_assets.model.execution import Execution
from nova_assets.model.quarantine import quarantine_of
from nova_assets.sources.batch import Batch, infer
from nova_assets.sources.inbox import Inbox, Notice

if TYPE_CHECKING:
    import pyarrow as pa

log = get_logger("nova_assets.receiving")

_LONGEST_PAUSE = 60.0
"""Seconds between two attempts to reach a source that does not answer."""

_ALL = 1_000_000

_AT_ONCE = 1000
"""So many files that are found by looking are made known at once."""


class Receiving:
    """Receives the files of one channel.

    Args:
        channel: with a source.
        inbox: over that source.
    """

    def __init__(self, runtime: Runtime, channel: Channel, inbox: Inbox) -> None:
        assert channel.source is not None
        self.runtime = runtime
        self.channel = channel
        self.source = channel.source
        self.inbox = inbox

    def receive(self, *, look: bool = True) -> Received:
        """Take everything that has arrived, as few blocks as the source's limits allow.

        Args:
            look: also for what was never announced.

        Raises:
            TooManyBadRecords: more of a batch is bad than the source allows; nothing of that batch was taken.
            SourceUnavailable: it does not answer.
        """
        catalog, name = self.runtime.catalog, self.channel.name
        notices = self.inbox.poll(self.source.batch_files)
        announced = len(catalog.announce(name, [a for n in notices for a in n.arrivals]))
        if look:
            began = catalog.now()
            found = self.inbox.look(began, catalog.channel(name).looked)
            # A seal waits for what was there when the look began, so it is known since then.
            announced += sum(len(catalog.announce(name, some, began)) for some in _some(found))
            catalog.looked(name, began)
        crash_point("receive.announced")
        received = Received(announced)
        while (taken := self._take_some()) is not None:
            batch, commit = taken
            received += Received(0, len(batch.takes), batch.rows, batch.bad, (commit,), why=batch.why)
        self._acknowledge(notices)
        return replace(received, waiting=catalog.arrival_counts(name).waiting)

    def arriving(self) -> list[Arrival]:
        """What ``receive`` would take, as far as that can be seen without taking note of it: files that wait, and those
        that are found by looking. What only a queue knows of is not among them. Changes nothing."""
        catalog, name = self.runtime.catalog, self.channel.name
        found = [s.arrival for s in catalog.waiting(name, _ALL)]
        for some in _some(self.inbox.look(catalog.now(), catalog.channel(name).looked)):
            known = catalog.versions(name, [a.place for a in some])
            keys = {s.arrival.key for versions in known.values() for s in versions}
            found += [a for a in some if a.key not in keys]
        return found

    def follow(self, every: float, look_every: float) -> Iterator[Received]:
        """Take what arrives, for as long as somebody asks for more. A source that does not answer is tried again.

        Args:
            every: seconds between two looks at what was announced.
            look_every: seconds between two looks for what was not.
        """
        looked, pause = -look_every, every
        while True:
            look = time.monotonic() - looked >= look_every
            try:
                found = self.receive(look=look)
            except (SourceUnavailable, CatalogUnavailable, CommitConflict) as error:
                pause = min(max(2 * pause, every), _LONGEST_PAUSE)
                log.warning("%s; tried again in %.0f s", error.what, pause)
            else:
                looked, pause = (time.monotonic() if look else looked), every
                if found.files:
                    yield found
            time.sleep(pause)

    def _take_some(self) -> tuple[Batch, Commit] | None:
        """One batch, and the commit that took it; None where nothing waits."""
        for attempt in range(1, self.runtime.attempts + 1):
            waiting = self._next()
            if not waiting:
                return None
            batch = self._read(waiting)
            try:
                return batch, self._commit(batch)
            except (CommitConflict, GroupSealed) as conflict:
                log.info("what has arrived for %s is planned again: %s", self.channel.name, conflict.what)
                if attempt == self.runtime.attempts:
                    raise
        raise AssertionError("unreachable")

    def _next(self) -> list[Arrival]:
        """What is to be taken by one commit, at most."""
        return [s.arrival for s in self.runtime.catalog.waiting(self.channel.name, self.source.batch_files)]

    def _read(self, waiting: Sequence[Arrival]) -> Batch:
        catalog = self.runtime.catalog
        schema = catalog.channel(self.channel.name).schema or infer(self.inbox, self.channel, self.source, waiting)
        batch = Batch(self.channel, self.source, schema, catalog.now(), self.sealed())
        before = catalog.versions(self.channel.name, [a.place for a in waiting])
        for arrival in waiting:
            if batch.takes and batch.bytes > self.source.batch_bytes:
                break  # what is left waits for the next
            others = [b for b in before.get(arrival.place, []) if b.arrival.key != arrival.key]
            batch.read(self.inbox, arrival, others)
        if self.source.is_too_bad(batch.bad, batch.rows + batch.bad):
            first = batch.aside[0]
            raise TooManyBadRecords(
                f"{batch.bad} of {batch.rows + batch.bad} records that arrived for {self.channel.name!r} are bad",
                found=f"{first['file']}, line {first['line']}: {first['reason']}",
                expected=f"most_bad={self.source.most_bad}",
                next="mend the files or the schema, or allow more: they are waiting, and nothing of them was taken",
                channel=self.channel.name,
                bad=batch.bad,
                records=batch.rows + batch.bad,
            )
        return batch

    def sealed(self) -> dict[str, datetime]:
        """Groups to which nothing more comes, and since when."""
        if self.channel.seal is None or self.channel.seal.late != "quarantine":
            return {}
        known = self.runtime.catalog.latest_seals(self.channel.name)
        return {group: s.at for group, s in known.items() if s.state == "sealed"}

    def _commit(self, batch: Batch) -> Commit:
        counts = {"files": len(batch.takes), "rows": batch.rows, "bad": batch.bad}
        return self.publish(batch.good, batch.set_aside, batch.takes, {"received": counts})

    def publish(
        self,
        good: pa.Table,
        aside: pa.Table,
        takes: Sequence[Taken],
        details: Mapping[str, Any],
        quarantine_at: int | None = None,
    ) -> Commit:
        """Put rows onto the channel and into its quarantine, and say what became of files, at once.

        Args:
            quarantine_at: refuse it, unless the quarantine is still at this number.

        Raises:
            CommitConflict: somebody else was quicker; nothing was changed.
        """
        quarantine = quarantine_of(self.channel)
        execution = self.runtime.begin_insert(self.channel.name, quarantine.name)
        try:
            with heartbeat(self.runtime.catalog, execution, self.runtime.lease):
                given = ((self.channel, good), (quarantine, aside))
                parts = [self._stage(execution, channel, table) for channel, table in given if table.num_rows]
                heads = () if quarantine_at is None else (HeadAt(quarantine.name, quarantine_at),)
                request = CommitRequest(
                    id=uuid.uuid4().hex,
                    execution_id=execution.id,
                    epoch=execution.epoch,
                    binding=None,
                    publish=tuple(p for published, _ in parts for p in published),
                    heads=heads,
                    schemas=tuple(s for _, needs in parts for s in needs["schemas"]),
                    no_consumers=tuple(n for _, needs in parts for n in needs["no_consumers"]),
                    rooms=tuple(r for _, needs in parts for r in needs["rooms"]),
                    takes=tuple((self.channel.name, t) for t in takes),
                    details=details,
                )
                commit = self.runtime.commit_insert(request)
        except BaseException as error:
            self.runtime.staging.undo(execution, error)
            raise
        return commit

    def _stage(self, execution: Execution, channel: Channel, table: Any) -> tuple[list[Publish], dict[str, Any]]:
        """What one of the two channels is given, and what that requires."""
        staging, head = self.runtime.staging, execution.pins[channel.name].head
        history = self.runtime.catalog.history(channel.name, head, since=head, back_to=head)
        frame = self.runtime.engine.take(table, history.schema, evolves=channel.on_schema_change == "evolve")
        staging.write(execution, channel.name, "delta", channel, history, frame)
        published = publications(staging.complete(execution)[channel.name], history, "insert")
        histories = {channel.name: history}
        return published, {**requirements(published, histories), "rooms": staging.rooms(published, histories)}

    def _acknowledge(self, notices: Sequence[Notice]) -> None:
        """Tell the inbox of those whose files are not waiting any more."""
        crash_point("receive.acknowledging")
        places = [a.place for n in notices for a in n.arrivals]
        known = self.runtime.catalog.versions(self.channel.name, places)
        waits = {s.arrival.key for found in known.values() for s in found if s.state == "waiting"}
        done = [n for n in notices if not any(a.key in waits for a in n.arrivals)]
        if done:
            self.inbox.acknowledge(done)
        crash_point("receive.acknowledged")


def _some(found: Iterable[Arrival]) -> Iterable[list[Arrival]]:
    rest = iter(found)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
