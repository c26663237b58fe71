"""Publishing: a channel is shown in tables that other tools read, one whole edition after the other.

    begin ─► open an edition ─► show it ─► commit
    (pin)    (catalog)          (table)    (catalog)

An edition is opened in the catalog before the table shows it, and leaves the catalog after the table has let go of it:
whatever dies in between, no file is deleted that a table lists (R15).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from nova_assets.crash_points import crash_point
from nova_assets.errors import CommitConflict, ExecutionInProgress, NotSupported, NovaError
from nova_assets.execution.lease import heartbeat, is_dead
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.commit import CommitRequest
from nova_assets.model.compaction import Compacting
from nova_assets.model.execution import Execution
from nova_assets.model.period import seconds_of
from nova_assets.model.publish_table import Table
from nova_assets.model.published_version import Content, Edition, Publishable, ShowEdition
from nova_assets.model.timeline import History
from nova_assets.operations.insert import Inserts
from nova_assets.operations.maintenance import Asked, Upkeep
from nova_assets.plan.compaction import consists_of_compacted
from nova_assets.plan.published_versions import content, forgettable, shown, uncompacted
from nova_assets.publish.target import Outlet

log = get_logger("nova_assets.publishing")

_TRIES = 4
"""So often a channel is compacted to be published, while something comes to it."""


class Publishing:
    """Shows channels in tables.

    Args:
        upkeep: compacts what plain files cannot say otherwise.
        inserts: writes what there is under another schema, by a number of its own.
        outlet: of a table, for a channel.
        grace: seconds for which an edition stays readable when the next one is shown.
    """

    def __init__(
        self, runtime: Runtime, upkeep: Upkeep, inserts: Inserts, outlet: Callable[[Table, str], Outlet], grace: float
    ) -> None:
        self.runtime = runtime
        self.inserts = inserts
        self.catalog = runtime.catalog
        self.engine = runtime.engine
        self.upkeep = upkeep
        self.outlet = outlet
        self.grace = grace

    def publishable(self, channel: str, tables: Sequence[Table]) -> list[Publishable]:
        """What publishing would do to each table: its dry run."""
        head = self.catalog.channel(channel).head
        history = self.catalog.history(channel, head, back_to=head)
        compacts = uncompacted(history, head)
        found = self._content(channel, history, head)
        return [self._publishable(channel, t, found, compacts) for t in tables] if found is not None else []

    def publish(
        self, channel: str, tables: Sequence[Table], policy: Compacting, *, take_over: bool = False
    ) -> list[Edition]:
        """Show the channel as it is now, in every table that shows something else. Gives the new editions.

        Args:
            policy: how large the files get, where something is compacted first.
            take_over: see ``Outlet.check``.

        Raises:
            TableTaken, TableUnavailable: of the first table that cannot be published in; the others are, first.
            ExecutionInProgress: another process is just about it.
        """
        made: list[Edition] = []
        failed: NovaError | None = None
        for table in tables:
            try:
                edition = self._publish(channel, table, policy, take_over)
                made += [edition] if edition is not None else []
                self._tidy(channel, table)
            except NovaError as error:  # one table keeps no other from being shown
                log.warning("%s in %s: %s", channel, table.id, error)
                failed = failed or error
        if failed is not None:
            raise failed
        return made

    def due(self, channel: str, tables: Sequence[Table]) -> list[Table]:
        """The tables that show something else than the channel, as far as the catalog knows, for as long as each says
        that its readers put up with it."""
        waited = [t for t in tables if self._has_waited(channel, t)]
        if not waited:
            return []
        head = self.catalog.channel(channel).head
        found = self._content(channel, self.catalog.history(channel, head, back_to=head), head)
        return [t for t in waited if found is not None and self._is_behind(channel, t, found)]

    def _is_behind(self, channel: str, table: Table, found: Content) -> bool:
        """Whether there is something newer to show, or something older to let go of."""
        editions = self.catalog.editions(channel, table.id)
        return _showing(editions, table, found) is None or bool(forgettable(editions, self.catalog.now(), self.grace))

    def withdraw(self, channel: str, table: Table) -> None:
        """Show a channel in a table no more. Its files go as far as the channel itself does not need them.

        Raises:
            ExecutionInProgress: another process is just publishing it.
        """
        known = self.catalog.editions(channel, table.id)
        for edition in known:
            maker = self.catalog.execution(edition.execution_id) if edition.state == "opening" else None
            if maker is not None and maker.state == "running" and not is_dead(maker.owner):
                raise ExecutionInProgress(
                    f"channel {channel!r} is just being published in {table.id}",
                    found=f"edition {edition.number}, by {maker.owner}",
                    next="do it again when that is over",
                    owner=maker.owner,
                )
        self.outlet(table, channel).withdraw()
        self.catalog.forget_editions(channel, table.id, [e.number for e in known])

    def _publish(self, channel: str, table: Table, policy: Compacting, take_over: bool) -> Edition | None:
        outlet = self.outlet(table, channel)
        outlet.check(take_over=take_over)
        compacted = 0  # at this number
        for _ in range(_TRIES):
            execution = self.runtime.begin_insert(channel)
            with self._ending(execution), heartbeat(self.catalog, execution, self.runtime.lease):
                head = execution.pins[channel].head
                history = self.catalog.history(channel, head, back_to=compacted or head)
                # A channel that is written to all the time is shown as it was when it was compacted.
                numbers = (head, compacted) if compacted else (head,)
                at = next((n for n in numbers if not uncompacted(history, n)), None)
                if at is not None and at >= self._newest(channel, table):
                    found = self._content(channel, history, at)
                    if found is None or self._is_shown(channel, table, outlet, found):
                        self.runtime.staging.undo(execution, "there was nothing new to show")
                        return None
                    return self._show(execution, table, outlet, found, take_over)
                self.runtime.staging.undo(execution, "it has to be compacted first")
            wanted = uncompacted(history, head)
            done = self.upkeep.compact(channel, Asked(policy, force=True, anew=True, partitions=wanted))
            if done is None and self.catalog.channel(channel).head == head:
                compacted = self._write_anew(channel, head)
            else:
                compacted = max((b.hi for b in done.blocks), default=0) if done is not None else 0
        raise CommitConflict(f"channel {channel!r} is being written to", reason="compacted", channel=channel)

    def _show(self, execution: Execution, table: Table, outlet: Outlet, found: Content, take_over: bool) -> Edition:
        where = self.engine.where(found.files)
        edition = self._open(execution, table, found, outlet.shown() or 0)
        crash_point("edition.opened")
        outlet.show(edition.number, found, where, take_over=take_over)
        crash_point("edition.shown")
        self.runtime.commit_insert(
            CommitRequest(
                id=uuid.uuid4().hex,
                execution_id=execution.id,
                epoch=execution.epoch,
                binding=None,
                publish=(),
                editions=(ShowEdition(found.channel, table.id, edition.number),),
                details={"published": {"table": table.id, "edition": edition.number, "seq": found.seq}},
            )
        )
        crash_point("edition.known")
        log.info("%s shows %s at %d, edition %d", table.id, found.channel, found.seq, edition.number)
        return next(e for e in self.catalog.editions(found.channel, table.id) if e.number == edition.number)

    def _open(self, execution: Execution, table: Table, found: Content, after: int) -> Edition:
        """Open the next edition; one that was left by a process that is known to be dead is not waited for."""
        fingerprint = found.fingerprint(seals=table.shows_seals)
        try:
            return self.catalog.open_edition(execution.id, table.id, found, fingerprint, after)
        except ExecutionInProgress as busy:
            if not is_dead(busy.fields["owner"]):
                raise
            self.catalog.abort(busy.fields["execution_id"], "its process is gone")
            return self.catalog.open_edition(execution.id, table.id, found, fingerprint, after)

    def _is_shown(self, channel: str, table: Table, outlet: Outlet, found: Content) -> bool:
        newest = _showing(self.catalog.editions(channel, table.id), table, found)
        return newest is not None and outlet.shown() == newest.number and outlet.is_whole(newest.number)

    def _publishable(self, channel: str, table: Table, found: Content, compacts: Sequence[str]) -> Publishable:
        outlet = self.outlet(table, channel)
        newest = max((e.number for e in self.catalog.editions(channel, table.id)), default=0)
        is_new = bool(compacts) or not self._is_shown(channel, table, outlet, found)
        number = 1 + max(newest, outlet.shown() or 0) if is_new else None
        return Publishable(table.id, found.seq, number, compacts, found.rows, len(found.files))

    def _tidy(self, channel: str, table: Table) -> None:
        """Let go of editions that nobody reads any more: first the table, then the catalog."""
        gone = forgettable(self.catalog.editions(channel, table.id), self.catalog.now(), self.grace)
        if gone:
            numbers = [e.number for e in gone]
            self.outlet(table, channel).forget(numbers)
            self.catalog.forget_editions(channel, table.id, numbers)

    def _has_waited(self, channel: str, table: Table) -> bool:
        newest = shown(self.catalog.editions(channel, table.id))
        since = None if newest is None else newest.shown_at
        return since is None or self.catalog.now() - since >= timedelta(seconds=seconds_of(table.every) or 0)

    def _write_anew(self, channel: str, head: int) -> int:
        """Commit what is there under the channel's schema of now, where no compaction can give it that: a column was
        dropped or widened, and a compacted block keeps the schema of its number (R18). Gives the number of the commit;
        0 where another process has been faster.

        Raises:
            NotSupported: a base that was given is concerned, which stays as it is.
        """
        history = self.catalog.history(channel, head, back_to=head)
        outdated = uncompacted(history, head)
        if not outdated:
            return 0
        if not consists_of_compacted(history.only(outdated)):
            raise _outdated(channel, outdated, head)
        log.info("%s is written anew under its schema of now: a column was dropped or widened", channel)
        commit = self.inserts.restore(channel, head)
        return commit.seq or 0

    def _newest(self, channel: str, table: Table) -> int:
        """The number of the channel that a table shows, or will."""
        return max((e.seq for e in self.catalog.editions(channel, table.id)), default=0)

    def _content(self, channel: str, history: History, at: int) -> Content | None:
        state = self.catalog.channel(channel)
        seals = self.catalog.latest_seals(channel) if state.seal is not None else {}
        return content(state.channel, history, at, seals, state.seal.by if state.seal is not None else None)

    @contextmanager
    def _ending(self, execution: Execution) -> Iterator[None]:
        """A block that ends the execution, if it fails."""
        try:
            yield
        except BaseException as error:
            self.runtime.staging.undo(execution, error)
            raise


def _showing(editions: Sequence[Edition], table: Table, found: Content) -> Edition | None:
    """The edition by which a table shows just this, as far as the catalog knows."""
    newest = shown(editions)
    same = newest is not None and newest.fingerprint == found.fingerprint(seals=table.shows_seals)
    return newest if same else None


def _outdated(channel: str, partitions: Sequence[str], head: int) -> NotSupported:
    return NotSupported(
        f"channel {channel!r} cannot be published as it is: columns were renamed, dropped or widened",
        found=", ".join(partitions[:3]) or "files of another schema",
        expected="files of the schema that it has now",
        next=f"nova restore {channel} --at {head}, which writes them anew, under a number of its own",
        channel=channel,
    )
