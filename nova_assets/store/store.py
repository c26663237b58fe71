"""What ``nova.open()`` gives: everything that can be done with the channels, bindings and data of one deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nova_assets.errors import ChannelNotFound, DefinitionError, PartitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.execution.task_run import Viewing
from nova_assets.execution.trigger_state import BindingState, binding_state, plan_binding_switch, unread_partitions
from nova_assets.masking import mask_address
from nova_assets.model.argument_checks import check_public_method_arguments
from nova_assets.model.block import Kind
from nova_assets.model.catalog import Catalog
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState, Cursor, PartitionState
from nova_assets.model.commit import Commit
from nova_assets.model.compaction import Compaction
from nova_assets.model.cursor_switch import Switch
from nova_assets.model.cursor_switch import SwitchTarget as SwitchTo
from nova_assets.model.engine import Engine
from nova_assets.model.execution import Execution
from nova_assets.model.maintenance import Collection, Verdict
from nova_assets.model.partitions import WHOLE, parse_partition
from nova_assets.model.project import Project
from nova_assets.model.timeline import Instant
from nova_assets.operations.arrivals.seal import GroupSealer
from nova_assets.operations.insert import DataInserter, InsertCheck
from nova_assets.operations.maintenance import ChannelMaintenance, CompactionOptions, channel_retention_seconds
from nova_assets.operations.publish import TablePublisher
from nova_assets.operations.read import Pinned, Reading
from nova_assets.operations.release import OpenExecution, open_executions, release
from nova_assets.operations.selection import Selection
from nova_assets.plan.compaction import Compact
from nova_assets.plan.retention import expired_partitions
from nova_assets.plan.run_plan import RunPlan
from nova_assets.renamed import missing_attribute
from nova_assets.settings import Settings
from nova_assets.store.arrivals import ArrivalMethods
from nova_assets.store.datasets import DatasetMethods
from nova_assets.store.published_tables import PublishMethods

Observer = Callable[[str, Any], None]


@check_public_method_arguments
class Store(ArrivalMethods, PublishMethods, DatasetMethods):
    """Channels, bindings and data of one deployment.

    Make one with ``nova.open``. Several processes may share a catalog and warehouse; each opens its own store.
    """

    def __init__(
        self,
        settings: Settings,
        project: Project | None,
        catalog: Catalog,
        engine: Engine,
        viewing: Viewing | None = None,
    ) -> None:
        self.settings = settings
        self.project = project or Project()
        self.catalog = catalog
        self.engine = engine
        self.runtime = Runtime(
            catalog, engine, self.project, lease=settings.lease, sweep_delay=settings.grace, views_factory=viewing
        )
        self._reader = Reading(self.runtime)
        self._inserter = DataInserter(self.runtime)
        self._maintenance = ChannelMaintenance(self.runtime, settings.gc_grace)
        self._sealer = GroupSealer(self.runtime, self._maintenance)
        self._publisher = TablePublisher(
            self.runtime, self._maintenance, self._inserter, self._open_outlet, settings.gc_grace
        )

    def __repr__(self) -> str:
        count = f"{len(self.project.channels)} channels, {len(self.project.bindings)} bindings"
        return f"<Store of {mask_address(self.settings.catalog)[:80]}: {count}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("nova.Store", name)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the catalog. A Spark session that this process made stays warm for the next store."""
        if self.runtime.views_factory is not None:
            self.runtime.views_factory.close()
        self.engine.close()
        self.catalog.close()

    # definitions

    def register(self, what: Channel | Project | Sequence[Channel], *, replace: bool = False) -> None:
        """Make channels known to the catalog.

        The same definition again is silent.

        Args:
            what: a channel, several, or a project with its bindings.
            replace: accept another definition of a known channel. A changed merge model takes effect by a base (R18).

        Raises:
            DefinitionConflict: the channel is registered with another definition, and ``replace`` is not given.
        """
        if isinstance(what, Project):
            self.catalog.register(what.channels, what.bindings, replace)
        else:
            self.catalog.register([what] if isinstance(what, Channel) else list(what), (), replace)

    def channels(self) -> list[ChannelState]:
        """Every registered channel with its head, rows and bytes."""
        return self.catalog.channels()

    def bindings(self) -> list[BindingState]:
        """Every binding of the project: its cursors, its last execution, and what is due."""
        return [binding_state(b, self.catalog) for b in self.project.bindings]

    # data

    def insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        idempotency_key: str | None = None,
        partition: str | Mapping[str, object] | None = None,
    ) -> Commit:
        """Put one block onto a channel, in each of its partitions that the data is for: all of it, or nothing.

        Args:
            channel: its name; one that the project defines is registered by its first use.
            data: an Arrow table, a pandas or Spark DataFrame, a list of dicts, or one or several paths of Parquet, ORC,
                Avro, CSV or JSON-lines files, the latter two also with ``.gz`` or ``.zst``. Deletions on keyed channels
                are rows with ``_deleted`` true.
            kind: ``delta`` adds, ``base`` replaces: the partitions that it leaves out are emptied, unless ``partition``
                says which are concerned (R13).
            idempotency_key: a second insert of the same rows with the same key changes nothing and gives back the first
                commit. Rows are the same in any order, in any files, and as any kind of input.
            partition: where all rows belong, such as ``"dt=2024-01-01"``; the columns need not be in the data then. By
                default the data says.

        Returns:
            The commit; its ``seq`` is the number that the block took. An empty delta takes none (R1).

        Raises:
            ChannelNotFound: no such channel.
            SchemaMismatch: other columns or types than the channel's.
            BadKey: a key is null, or one block has several live rows of it.
            BadRecord: a file is damaged, or not what its name says.
            EmptyInput: nothing was given.
            PartitionError: a row that is in no partition, or in another than the one named.
            UnrepresentableChange: a base that drops rows which consumers of an Append channel have seen (R10).
            ModelChanged: a delta after a change of merge model (R18).
            IdempotencyConflict: the key was used for other rows.
        """
        return self._inserter.insert(self.known(channel), data, kind, idempotency_key, partition)

    def check_insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        partition: str | Mapping[str, object] | None = None,
    ) -> InsertCheck:
        """What an insert would check, without changing anything: the dry run of ``insert``."""
        return self._inserter.check_insert(self.known(channel), data, kind, partition)

    def read(
        self,
        channel: Channel | str,
        at: int | None = None,
        *,
        since: int | None = None,
        partition: str | Mapping[str, object] | None = None,
        columns: Sequence[str] | None = None,
        keys: Any = None,
    ) -> Selection:
        """Select data of a channel.

        Args:
            channel: its name.
            at: the version; the head by default.
            since: the changes after that version, up to ``at``, instead of a snapshot; on keyed channels with
                ``_deleted``.
            partition: one partition only, ``"dt=2024-01-01/action=login"``; or all that agree with some dimensions,
                ``"action=login"``.
            columns: these columns only.
            keys: a frame or table with the channel's key columns: these keys only.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: it has no such number.
            BlockCollected: that version is gone (R15).
            PartitionError: it has no such partition.
        """
        return self._reader.read(self.known(channel), at, since, partition, columns, keys)

    @contextmanager
    def pin(
        self,
        *channels: Channel | str,
        at: int | None = None,
        since: int | None = None,
        partition: str | Mapping[str, object] | None = None,
    ) -> Iterator[Pinned]:
        """Hold channels as they are at this one moment, for as long as the block lasts (R15): whatever is committed or
        collected meanwhile, what is read from the pin is there, and all of it goes together.

            with store.pin("orders", "customers") as then:
                join(then.read("orders").to_spark(), then.read("customers").to_spark())

        The pin is a lease that is renewed; when this process dies, or sleeps for longer, it is over, and what has been
        collected since is a ``BlockCollected``. A lazy frame has to be evaluated within the block.

        Args:
            channels: their names.
            at: the version, instead of the newest; of a single channel.
            since: hold the changes after that version, too; of a single channel.
            partition: that will be read; whether all is there that ``at`` and ``since`` need is seen of this only.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: it has no such number.
            BlockCollected: that version is gone already.
        """
        if (at is not None or since is not None) and len(channels) != 1:
            raise DefinitionError("at= and since= are of one channel", found=f"{len(channels)} channels")
        with self._reader.pin([self.known(c) for c in channels], at, since, partition) as pinned:
            yield pinned

    def views(self, *channels: Channel | str) -> Any:
        """What tells which files these channels have, as they are now: for code that opens them itself. It can be sent
        along to other processes, such as Spark's workers (``Views``). It pins nothing: see ``pin``.

        Raises:
            ChannelNotFound: no such channel.
        """
        if self.runtime.views_factory is None:
            raise DefinitionError("this store has no views", expected="one that nova.open() has given")
        return self.runtime.views_factory({name: self.catalog.channel(name).head for name in map(self.known, channels)})

    # executions

    def run(
        self,
        binding: str,
        partition: str | Mapping[str, object] | None = None,
        *,
        whole: bool = False,
        resume: str | None = None,
        observer: Observer | None = None,
    ) -> Execution:
        """Execute a binding and commit.

        Args:
            binding: its name.
            partition: where the binding is partitioned, such as ``"dt=2024-01-01"``, or its one value.
            whole: execute all partitions as one, although the binding is triggered per partition. Its cursors are then
                those of the whole, until ``switch`` changes them back.
            resume: the id of a failed execution, to go on with the pins and staged blocks that it kept (R4).
            observer: told ("begin", Execution), ("task", TaskReport) and ("commit", Commit), as they happen.

        Raises:
            BindingNotFound: the project has no such binding.
            PartitionError: the binding has no such partition; or is triggered per partition, and none is named.
            InputsMissing: a query would read partitions that do not exist yet.
            ExecutionInProgress: another execution of it is alive.
            TaskFailed, CheckFailed: nothing was committed; the execution can be resumed.
        """
        if resume is not None:
            return self.runtime.resume(resume, observer)
        return self.runtime.run(
            binding, self.project.binding(binding).partition(partition), whole=whole, observer=observer
        )

    def plan(
        self, binding: str, partition: str | Mapping[str, object] | None = None, *, whole: bool = False
    ) -> RunPlan:
        """What ``run`` would do now. Opens nothing and pins nothing, and raises what ``run`` would raise before its
        first task."""
        return self.runtime.plan(binding, self.project.binding(binding).partition(partition), whole=whole)

    def unread(self, binding: str) -> list[str]:
        """The partitions of a binding that have data which it has not read yet: one ``run`` for each reads it all.

        A binding that keeps no cursor has not read a partition that its inputs have and none of its outputs has.
        """
        return unread_partitions(self.project.binding(binding), self.catalog)

    def switch(self, binding: str, to: SwitchTo) -> Switch:
        """Switch a binding between executions of the whole and executions per partition (R13).

        Exactly the same rows have been read afterwards: none is lost, and none is read again.

        Args:
            to: ``partitions``: each partition stands where the whole stood. ``whole``: nothing may be unread in any
                partition, since one cursor cannot say that partitions were read to different numbers.

        Raises:
            PartitionError: the binding has no partitions; or, on the way to the whole, some have unread data.
            ExecutionInProgress: an execution of the binding is alive.
        """
        planned = self.plan_switch(binding, to)
        self.catalog.switch_cursors(planned)
        return planned

    def plan_switch(self, binding: str, to: SwitchTo) -> Switch:
        """The cursors that ``switch`` would set: its dry run."""
        return plan_binding_switch(self.project.binding(binding), self.catalog, to)

    def partitions(
        self, channel: Channel | str, partition: str | Mapping[str, object] | None = None
    ) -> list[PartitionState]:
        """The partitions of a channel that hold anything, by name.

        Args:
            partition: those alone that agree with some dimensions.
        """
        name = self.known(channel)
        dimensions = self.catalog.channel(name).channel.partitions
        return self.catalog.partitions(
            name, parse_partition(dimensions, partition, allow_scope=True) if partition else WHOLE
        )

    def open_executions(self) -> list[OpenExecution]:
        """Executions that have not ended, and what is known of who holds each; readers and inserts among them."""
        return open_executions(self.catalog)

    def release(self, execution_id: str, *, force: bool = False, dry_run: bool = False) -> OpenExecution:
        """End an execution without a commit, whose process is gone (R6). Its cursors stay where they are.

        Args:
            execution_id: or the beginning of one.
            force: also if its holder is alive, or not known to be gone.

        Raises:
            ExecutionNotLive: no such execution, or several.
            ExecutionInProgress: its holder is not known to be gone.
        """
        return release(self.catalog, execution_id, force=force, dry_run=dry_run)

    def executions(self, binding: str | None = None, limit: int = 100) -> list[Execution]:
        """Executions, latest first."""
        return self.catalog.executions(binding, limit)

    def restore(self, channel: Channel | str, at: int) -> Commit:
        """Make a channel what it was at a number: a base on top of what is there, since history is not rewritten (R19).

        Consumers are told what it changes, as with every base.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: it has no such number.
            BlockCollected: that version is gone (R15).
            UnrepresentableChange: an Append channel with consumers would lose rows (R10).
        """
        return self._inserter.restore(self.known(channel), at)

    # upkeep

    def compact(
        self,
        channel: Channel | str,
        *,
        force: bool = True,
        chained: bool = False,
        policy: Compaction | None = None,
        partitions: Sequence[str] | None = None,
    ) -> Commit | None:
        """Add a base at the newest number of each partition that has deltas, so that they need not be merged by every
        reader (R14). The head does not move, no trigger fires, and no answer changes.

        Args:
            channel: its name.
            force: also where it is not worth it.
            chained: chain deltas into fewer, instead.
            policy: when it is worth it; what the project's definition of the channel says by default.
            partitions: only these, by their names.

        Returns:
            The commit; None where there was nothing to compact.
        """
        name = self.known(channel)
        return self._maintenance.compact(name, self._compaction_options(name, force, chained, policy, partitions))

    def compactable(
        self,
        channel: Channel | str,
        *,
        force: bool = True,
        chained: bool = False,
        policy: Compaction | None = None,
        partitions: Sequence[str] | None = None,
    ) -> tuple[Compact, ...]:
        """What ``compact`` would add, and why: its dry run."""
        name = self.known(channel)
        return self._maintenance.plan_compaction(
            name, self._compaction_options(name, force, chained, policy, partitions)
        )

    def collect_garbage(self, channel: Channel | str, *, retain: str | None = None) -> Collection:
        """Take the blocks of a channel that nobody needs any more (R15). Their files are deleted after a grace.

        Args:
            retain: ``"30d"``: how long old versions are kept for time travel; what the project's definition says by
                default, and if it says nothing, not at all.
        """
        name = self.known(channel)
        return self._maintenance.collect(name, channel_retention_seconds(self.runtime, name, retain))

    def held(self, channel: Channel | str, *, retain: str | None = None) -> tuple[Verdict, ...]:
        """Of every block of a channel, who needs it and for what: the dry run of ``collect``."""
        name = self.known(channel)
        return self._maintenance.collection_verdicts(name, channel_retention_seconds(self.runtime, name, retain))

    def drop(self, channel: Channel | str, partition: str | Mapping[str, object]) -> Commit | None:
        """Drop a partition, or all that agree with some dimensions: from the next number on there is nothing in it.

        It is not history rewritten (R19): versions before are read as they were, for as long as they are kept. No data
        trigger fires, and consumers are not told of it: they keep what they made of it. To have them told, insert an
        empty base instead.

        Args:
            partition: ``"dt=2024-01-01"``, or ``"dt=2024-01-01/action=login"``.

        Returns:
            The commit; None where there was nothing to drop.

        Raises:
            PartitionError: the channel has no such partition.
        """
        name = self.known(channel)
        dimensions = self.catalog.channel(name).channel.partitions
        scope = parse_partition(dimensions, partition, allow_scope=True)
        if not scope:
            raise PartitionError(
                f"channel {name!r} has no partition to drop",
                found=repr(partition),
                expected="a partition of a channel that has some",
                next="to empty the channel, insert a base without rows",
            )
        return self._maintenance.drop_partitions(
            name, [p.partition for p in self.catalog.partitions(name, scope) if not p.dropped]
        )

    def expired(self, channel: Channel | str) -> tuple[str, ...]:
        """The partitions of a channel that are over for longer than its dimensions say they are kept."""
        name = self.known(channel)
        state = self.catalog.channel(name)
        keep = next((c.upkeep.get("keep", {}) for c in self.project.channels if c.name == name), state.keep)
        held = [p.partition for p in self.catalog.partitions(name) if not p.dropped] if keep else []
        return expired_partitions(state.channel.partitions, keep, held, self.catalog.now())

    def drop_expired(self, channel: Channel | str) -> Commit | None:
        """Drop what is ``expired``. None where nothing is."""
        gone = self.expired(channel)
        return self._maintenance.drop_partitions(self.known(channel), gone) if gone else None

    def delete_collected(self) -> int:
        """Delete the files of blocks that were collected longer than ``gc_grace`` ago. Gives how many."""
        return self._maintenance.delete_collected_files()

    def _compaction_options(
        self, channel: str, force: bool, chained: bool, policy: Compaction | None, partitions: Sequence[str] | None
    ) -> CompactionOptions:
        only = None if partitions is None else tuple(partitions)
        return CompactionOptions(policy or self._compaction_policy(channel), force, chained, only)

    def _compaction_policy(self, channel: str) -> Compaction:
        """When a channel is compacted, and into what, as the project says."""
        defined = next((c.compaction for c in self.project.channels if c.name == channel), None)
        return defined or Compaction()

    # looking

    def timeline(self, channel: Channel | str, limit: int | None = None) -> list[Instant]:
        """What happened to a channel, oldest first.

        Args:
            limit: the latest of it, no more instants than these; all by default.
        """
        return self.catalog.timeline(self.known(channel), limit)

    def cursors(self, binding: str | None = None) -> list[Cursor]:
        """How far each binding has read.

        Raises:
            BindingNotFound: that binding has not run, and the project has none of that name.
        """
        cursors = self.catalog.cursors(binding)
        if binding is not None and not cursors:
            self.project.binding(binding)
        return cursors

    def known(self, channel: Channel | str) -> str:
        """The name of a registered channel; one of the project, or one given whole, is registered by its first use."""
        if isinstance(channel, Channel):
            self.register(channel)
            return channel.name
        try:
            self.catalog.channel(channel)
        except ChannelNotFound:
            defined = [c for c in self.project.channels if c.name == channel]
            if not defined:
                raise
            self.register(defined[0])
        return channel
