"""The store that ``nova.open()`` returns: all operations on the channels, bindings and data of one deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nova_assets.errors import ChannelNotFound, DefinitionError, PartitionError
from nova_assets.execution.runtime import Runtime
from nova_assets.execution.task_run import ViewsFactory
from nova_assets.execution.trigger_state import BindingState, binding_state, plan_binding_switch, unread_partitions
from nova_assets.masking import mask_address
from nova_assets.model.block import Kind
from nova_assets.model.catalog import Catalog
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState, Cursor, PartitionState
from nova_assets.model.commit import Commit
from nova_assets.model.compaction import Compaction
from nova_assets.model.cursor_switch import CursorSwitch
from nova_assets.model.cursor_switch import SwitchTarget as SwitchTo
from nova_assets.model.engine import Engine
from nova_assets.model.execution import Execution
from nova_assets.model.method_argument_checks import check_public_method_arguments
from nova_assets.model.partitions import WHOLE, parse_partition
from nova_assets.model.project import Project
from nova_assets.model.retention import CollectedGarbage, RetentionVerdict
from nova_assets.model.timeline import Instant
from nova_assets.operations.arrivals.seal import GroupSealer
from nova_assets.operations.insert import DataInserter, InsertCheck
from nova_assets.operations.maintenance import ChannelMaintenance, CompactionOptions, channel_retention_seconds
from nova_assets.operations.publish import TablePublisher
from nova_assets.operations.read import ChannelReader, Pinned
from nova_assets.operations.release import OpenExecution, open_executions, release
from nova_assets.operations.selection import Selection
from nova_assets.plan.compaction import PlannedCompaction
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
    """All operations on the channels, bindings and data of one deployment.

    ``nova.open`` makes a store. Several processes may share a catalog and a warehouse. Each process opens its own
    store.
    """

    def __init__(
        self,
        settings: Settings,
        project: Project | None,
        catalog: Catalog,
        engine: Engine,
        viewing: ViewsFactory | None = None,
    ) -> None:
        self.settings = settings
        self.project = project or Project()
        self.catalog = catalog
        self.engine = engine
        self.runtime = Runtime(
            catalog, engine, self.project, lease=settings.lease, sweep_delay=settings.grace, views_factory=viewing
        )
        self._reader = ChannelReader(self.runtime)
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
        """Close the catalog. A Spark session that this process started stays warm for the next store."""
        if self.runtime.views_factory is not None:
            self.runtime.views_factory.close()
        self.engine.close()
        self.catalog.close()

    # definitions

    def register(self, what: Channel | Project | Sequence[Channel], *, replace: bool = False) -> None:
        """Register channels, or a project with its bindings, in the catalog.

        Registering the same definition again changes nothing.

        Args:
            what: a channel, several channels, or a project with its bindings.
            replace: accept a different definition of a registered channel. A changed merge model takes effect with the
                next base (R18).

        Raises:
            DefinitionConflict: the channel is registered with a different definition, and ``replace`` is false.
        """
        if isinstance(what, Project):
            self.catalog.register(what.channels, what.bindings, replace)
        else:
            self.catalog.register([what] if isinstance(what, Channel) else list(what), (), replace)

    def channels(self) -> list[ChannelState]:
        """Every registered channel with its head, rows and bytes."""
        return self.catalog.channels()

    def bindings(self) -> list[BindingState]:
        """Every binding of the project with its cursors, its last execution and its due partitions."""
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
        """Insert one block into a channel, in every partition that the data belongs to. The insert is atomic.

        Args:
            channel: name of the channel. A channel that the project defines is registered on its first use.
            data: an Arrow table, a pandas or Spark DataFrame, a list of dicts, or the paths of Parquet, ORC, Avro, CSV
                or JSON-lines files. CSV and JSON-lines files may be compressed (``.gz``, ``.zst``). On keyed channels,
                a row with ``_deleted`` true is a deletion.
            kind: ``delta`` adds to the channel, ``base`` replaces its rows. A base empties every partition that it does
                not contain, unless ``partition`` limits it to some partitions (R13).
            idempotency_key: a second insert of the same rows with the same key changes nothing and returns the first
                commit. Rows count as the same in any order, in any files, and as any kind of input.
            partition: the partition of all rows, such as ``"dt=2024-01-01"``. The data then need not contain the
                partition columns. By default, the partition columns of the data decide.

        Returns:
            The commit. Its ``seq`` is the block's sequence number. An empty delta takes no number (R1).

        Raises:
            ChannelNotFound: no such channel.
            SchemaMismatch: the columns or types differ from the channel's.
            BadKey: a key is null, or one block holds several live rows of one key.
            BadRecord: a file is damaged, or its content does not fit its file name.
            EmptyInput: the input is empty.
            PartitionError: a row belongs to no partition, or to another partition than ``partition``.
            UnrepresentableChange: the base drops rows that consumers of an Append channel have read (R10).
            ModelChanged: a delta after a change of the merge model (R18).
            IdempotencyConflict: the key was used for different rows.
        """
        return self._inserter.insert(self.known(channel), data, kind, idempotency_key, partition)

    def check_insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        partition: str | Mapping[str, object] | None = None,
    ) -> InsertCheck:
        """Validate an insert without changing anything: the dry run of ``insert``."""
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
            channel: name of the channel.
            at: the version to read. By default, the head.
            since: read the changes after this version, up to ``at``, instead of a snapshot. On keyed channels, the rows
                carry ``_deleted``.
            partition: one partition, ``"dt=2024-01-01/action=login"``, or every partition with these values,
                ``"action=login"``.
            columns: names of the columns to read. By default, all.
            keys: a frame or table with the channel's key columns. Only rows with these keys are read.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: the channel has no such sequence number.
            BlockCollected: the blocks of the version were collected (R15).
            PartitionError: the channel has no such partition.
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
        """Pin a consistent version of several channels for the duration of a ``with`` block (R15).

        All reads from the pin see the channels at the same moment. Later commits and garbage collection do not affect
        them.

            with store.pin("orders", "customers") as then:
                join(then.read("orders").to_spark(), then.read("customers").to_spark())

        The pin is a renewed lease. It ends when this process dies or sleeps for longer than the lease. A read of a
        block that was collected after that raises ``BlockCollected``. A lazy frame has to be evaluated within the
        ``with`` block.

        Args:
            channels: names of the channels.
            at: the version to pin. By default, the head. Only for a single channel.
            since: pin the changes after this version, too. Only for a single channel.
            partition: the partition that will be read. ``pin`` checks only this partition for the blocks that ``at``
                and ``since`` need.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: the channel has no such sequence number.
            BlockCollected: the blocks of the version were collected already.
            DefinitionError: ``at`` or ``since`` is combined with several channels.
        """
        if (at is not None or since is not None) and len(channels) != 1:
            raise DefinitionError("at= and since= are of one channel", found=f"{len(channels)} channels")
        with self._reader.pin([self.known(c) for c in channels], at, since, partition) as pinned:
            yield pinned

    def views(self, *channels: Channel | str) -> Any:
        """File views of channels at their current heads, for code that opens the files itself.

        The result (``Views``) can be sent to other processes, such as Spark's workers. It pins nothing. See ``pin``.

        Raises:
            ChannelNotFound: no such channel.
            DefinitionError: this store was not made by ``nova.open()`` with views configured.
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
            binding: name of the binding.
            partition: partition of a partitioned binding, such as ``"dt=2024-01-01"``, or its single value.
            whole: execute all partitions together, although the binding is triggered per partition. The binding then
                keeps one cursor per channel for all partitions, until ``switch`` changes it back.
            resume: id of a failed execution. The run continues with the pins and staged blocks of that execution (R4).
            observer: called with ("begin", Execution), ("task", TaskReport) and ("commit", Commit) as they happen.

        Raises:
            BindingNotFound: the project has no such binding.
            PartitionError: the binding has no such partition, or it is triggered per partition and ``partition`` is
                missing.
            InputsMissing: a query would read partitions that do not exist yet.
            ExecutionInProgress: another execution of the binding is alive.
            TaskFailed, CheckFailed: nothing was committed. The execution can be resumed.
        """
        if resume is not None:
            return self.runtime.resume(resume, observer)
        return self.runtime.run(
            binding, self.project.binding(binding).partition(partition), whole=whole, observer=observer
        )

    def plan(
        self, binding: str, partition: str | Mapping[str, object] | None = None, *, whole: bool = False
    ) -> RunPlan:
        """Plan of the execution that ``run`` would carry out now: its dry run.

        Opens nothing and pins nothing. Raises the errors that ``run`` raises before its first task.
        """
        return self.runtime.plan(binding, self.project.binding(binding).partition(partition), whole=whole)

    def unread(self, binding: str) -> list[str]:
        """Partitions of a binding with unread data. One ``run`` per partition reads all of it.

        For a binding without cursors, a partition counts as unread if an input has it and no output does.
        """
        return unread_partitions(self.project.binding(binding), self.catalog)

    def switch(self, binding: str, to: SwitchTo) -> CursorSwitch:
        """Switch a binding between unpartitioned executions and executions per partition (R13).

        The switch keeps the set of rows that were read. No row is lost and none is read again.

        Args:
            to: ``partitions``: each partition gets the position of the unpartitioned cursor. ``whole``: requires that
                no partition has unread data, since one cursor cannot hold a different position for each partition.

        Raises:
            PartitionError: the binding has no partitions, or ``to`` is ``whole`` and some partitions have unread data.
            ExecutionInProgress: an execution of the binding is alive.
        """
        planned = self.plan_switch(binding, to)
        self.catalog.switch_cursors(planned)
        return planned

    def plan_switch(self, binding: str, to: SwitchTo) -> CursorSwitch:
        """Cursors that ``switch`` would set: its dry run."""
        return plan_binding_switch(self.project.binding(binding), self.catalog, to)

    def partitions(
        self, channel: Channel | str, partition: str | Mapping[str, object] | None = None
    ) -> list[PartitionState]:
        """Partitions of a channel, sorted by name. Dropped partitions are included (``dropped``).

        Args:
            partition: only partitions with these values of some dimensions.
        """
        name = self.known(channel)
        dimensions = self.catalog.channel(name).channel.partitions
        return self.catalog.partitions(
            name, parse_partition(dimensions, partition, allow_scope=True) if partition else WHOLE
        )

    def open_executions(self) -> list[OpenExecution]:
        """Executions that have not ended, with the liveness of their owners. Readers and inserts are included."""
        return open_executions(self.catalog)

    def release(self, execution_id: str, *, force: bool = False, dry_run: bool = False) -> OpenExecution:
        """End an execution of a dead process without a commit (R6). Its cursors do not move.

        Args:
            execution_id: id of the execution, or a unique prefix.
            force: end the execution although its owner is alive or may be alive.
            dry_run: change nothing.

        Raises:
            ExecutionNotLive: no live execution has this id or prefix, or several do.
            ExecutionInProgress: the owner is not known to be dead.
        """
        return release(self.catalog, execution_id, force=force, dry_run=dry_run)

    def executions(self, binding: str | None = None, limit: int = 100) -> list[Execution]:
        """Executions, latest first."""
        return self.catalog.executions(binding, limit)

    def restore(self, channel: Channel | str, at: int) -> Commit:
        """Restore the content that a channel had at a sequence number. History is not rewritten (R19).

        The restored content is committed as a new base. Consumers see the differences as changes, as with every base.

        Raises:
            ChannelNotFound: no such channel.
            VersionNotFound: the channel has no such sequence number.
            BlockCollected: the blocks of the version were collected (R15).
            UnrepresentableChange: an Append channel with consumers would lose rows (R10).
        """
        return self._inserter.restore(self.known(channel), at)

    # maintenance

    def compact(
        self,
        channel: Channel | str,
        *,
        force: bool = True,
        chained: bool = False,
        policy: Compaction | None = None,
        partitions: Sequence[str] | None = None,
    ) -> Commit | None:
        """Add a base at the newest number of each partition that has deltas, so that readers need not merge them (R14).

        The head does not move, no trigger fires, and no answer changes.

        Args:
            channel: name of the channel.
            force: compact even where the policy considers it not worth the cost.
            chained: chain deltas into fewer deltas instead of adding a base.
            policy: when compaction is worth the cost. By default, the policy in the project's definition of the
                channel.
            partitions: names of the partitions to compact. By default, all.

        Returns:
            The commit, or None if there was nothing to compact.
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
    ) -> tuple[PlannedCompaction, ...]:
        """Blocks that ``compact`` would add, with the reasons: its dry run."""
        name = self.known(channel)
        return self._maintenance.plan_compaction(
            name, self._compaction_options(name, force, chained, policy, partitions)
        )

    def collect_garbage(self, channel: Channel | str, *, retain: str | None = None) -> CollectedGarbage:
        """Collect the blocks of a channel that no retained answer needs (R15).

        The files are deleted after ``gc_grace``.

        Args:
            retain: how long old versions stay readable (time travel), such as ``"30d"``. By default, the retention in
                the project's definition of the channel. Without a definition, old versions are not retained.
        """
        name = self.known(channel)
        return self._maintenance.collect(name, channel_retention_seconds(self.runtime, name, retain))

    def held(self, channel: Channel | str, *, retain: str | None = None) -> tuple[RetentionVerdict, ...]:
        """Retention verdict of every block of a channel: which reader needs it, and why. Dry run of ``collect``."""
        name = self.known(channel)
        return self._maintenance.collection_verdicts(name, channel_retention_seconds(self.runtime, name, retain))

    def drop(self, channel: Channel | str, partition: str | Mapping[str, object]) -> Commit | None:
        """Drop a partition, or every partition with given values of some dimensions.

        The partition is empty from the next number on. Dropping does not rewrite history (R19): earlier versions stay
        readable for as long as they are retained. No data trigger fires, and consumers do not see the drop as a change.
        They keep the results that they derived from the partition. To propagate the removal to consumers, insert an
        empty base instead.

        Args:
            partition: ``"dt=2024-01-01"``, or ``"dt=2024-01-01/action=login"``.

        Returns:
            The commit, or None if there was nothing to drop.

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
        """Partitions of a channel that are past the retention of its dimensions."""
        name = self.known(channel)
        state = self.catalog.channel(name)
        keep = next((c.upkeep.get("keep", {}) for c in self.project.channels if c.name == name), state.keep)
        held = [p.partition for p in self.catalog.partitions(name) if not p.dropped] if keep else []
        return expired_partitions(state.channel.partitions, keep, held, self.catalog.now())

    def drop_expired(self, channel: Channel | str) -> Commit | None:
        """Drop the partitions that ``expired`` lists. Returns None if there are none."""
        gone = self.expired(channel)
        return self._maintenance.drop_partitions(self.known(channel), gone) if gone else None

    def delete_collected(self) -> int:
        """Delete the files of blocks that were collected longer than ``gc_grace`` ago. Returns their number."""
        return self._maintenance.delete_collected_files()

    def _compaction_options(
        self, channel: str, force: bool, chained: bool, policy: Compaction | None, partitions: Sequence[str] | None
    ) -> CompactionOptions:
        only = None if partitions is None else tuple(partitions)
        return CompactionOptions(policy or self._compaction_policy(channel), force, chained, only)

    def _compaction_policy(self, channel: str) -> Compaction:
        """Compaction policy of a channel in the project's definition."""
        defined = next((c.compaction for c in self.project.channels if c.name == channel), None)
        return defined or Compaction()

    # inspection

    def timeline(self, channel: Channel | str, limit: int | None = None) -> list[Instant]:
        """Instants of a channel, oldest first.

        Args:
            limit: return only the latest ``limit`` instants. By default, all.
        """
        return self.catalog.timeline(self.known(channel), limit)

    def cursors(self, binding: str | None = None) -> list[Cursor]:
        """Cursors: how far each binding has read each channel and partition.

        Raises:
            BindingNotFound: the binding has no cursors, and the project does not define it.
        """
        cursors = self.catalog.cursors(binding)
        if binding is not None and not cursors:
            self.project.binding(binding)
        return cursors

    def known(self, channel: Channel | str) -> str:
        """Name of a registered channel.

        A channel of the project, or a ``Channel`` object, is registered on its first use.

        Raises:
            ChannelNotFound: neither the catalog nor the project has the channel.
        """
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
