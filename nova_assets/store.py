"""What ``nova.open()`` gives: catalog, engine and runtime of one deployment, wired. Spark is loaded when data is
touched."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from nova_assets.errors import BlockCollected, ChannelNotFound, DefinitionError, SettingsError
from nova_assets.insert import InsertCheck, Inserts
from nova_assets.model.block import Kind
from nova_assets.model.channel import Channel
from nova_assets.model.commit import Commit
from nova_assets.model.compacting import Compacting
from nova_assets.model.execution import Execution
from nova_assets.model.partitions import WHOLE, parse_partition
from nova_assets.model.period import EXPECTED, seconds_of
from nova_assets.model.ports import Catalog, ChannelState, Cursor, Engine, PartitionState
from nova_assets.model.project import Project
from nova_assets.model.reads import Read
from nova_assets.model.timeline import Instant
from nova_assets.model.upkeep import Collection, Verdict
from nova_assets.plan import modes
from nova_assets.plan.compact import Compact
from nova_assets.plan.run import RunPlan
from nova_assets.runtime import Runtime
from nova_assets.selection import Selection
from nova_assets.settings import Settings, load_settings
from nova_assets.upkeep import Upkeep

Observer = Callable[[str, Any], None]


class Store:
    """Channels, bindings and data of one deployment.

    Make one with ``nova.open``. Several processes may share a catalog and warehouse; each opens its own store.
    """

    def __init__(self, settings: Settings, project: Project | None, catalog: Catalog, engine: Engine) -> None:
        self.settings = settings
        self.project = project or Project()
        self.catalog = catalog
        self.engine = engine
        self.runtime = Runtime(catalog, engine, self.project, lease=settings.lease, grace=settings.grace)
        self._inserts = Inserts(self.runtime)
        self._upkeep = Upkeep(self.runtime, settings.collect_grace)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the catalog. A Spark session that this process made stays warm for the next store."""
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
            data: an Arrow table, a pandas or Spark DataFrame, a list of dicts, or one or several paths of Parquet, CSV
                or JSON-lines files. Deletions on keyed channels are rows with ``_deleted`` true.
            kind: ``delta`` adds, ``base`` replaces: the partitions that it leaves out are emptied, unless ``partition``
                says which are concerned (R13).
            idempotency_key: a second insert with the same key changes nothing and gives back the first commit.
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
        """
        return self._inserts.insert(self._known(channel), data, kind, idempotency_key, partition)

    def check_insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        partition: str | Mapping[str, object] | None = None,
    ) -> InsertCheck:
        """What an insert would check, without changing anything: the dry run of ``insert``."""
        return self._inserts.check(self._known(channel), data, kind, partition)

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
        name = self._known(channel)
        dimensions = self.catalog.channel(name).channel.partitions
        scope = parse_partition(dimensions, partition, partly=True) if partition else WHOLE
        history = self.catalog.history(name, at, scope, since)
        try:
            read: Read = modes.snapshot(history, at) if since is None else modes.changes(history, since, at)
        except BlockCollected:
            whole = self.catalog.history(name, None, scope)
            raise modes.gone(
                name, at if since is None and at is not None else since or 0, modes.oldest(whole)
            ) from None
        return Selection(self.engine, read, columns, keys, history.merge.key)

    # executions

    def run(
        self,
        binding: str,
        partition: str | Mapping[str, object] | None = None,
        *,
        resume: str | None = None,
        observer: Observer | None = None,
    ) -> Execution:
        """Execute a binding and commit.

        Args:
            binding: its name.
            partition: where the binding is partitioned, such as ``"dt=2024-01-01"``, or its one value.
            resume: the id of a failed execution, to go on with the pins and staged blocks that it kept (R4).
            observer: told ("begin", Execution), ("task", TaskReport) and ("commit", Commit), as they happen.
        """
        if resume is not None:
            return self.runtime.resume(resume, observer)
        return self.runtime.run(binding, self.project.binding(binding).partition(partition), observer=observer)

    def plan(self, binding: str, partition: str | Mapping[str, object] | None = None) -> RunPlan:
        """What ``run`` would do now. Opens nothing and pins nothing."""
        return self.runtime.plan(binding, self.project.binding(binding).partition(partition))

    def partitions(
        self, channel: Channel | str, partition: str | Mapping[str, object] | None = None
    ) -> list[PartitionState]:
        """The partitions of a channel that hold anything, by name.

        Args:
            partition: those alone that agree with some dimensions.
        """
        name = self._known(channel)
        dimensions = self.catalog.channel(name).channel.partitions
        return self.catalog.partitions(
            name, parse_partition(dimensions, partition, partly=True) if partition else WHOLE
        )

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
        return self._inserts.restore(self._known(channel), at)

    # upkeep

    def compact(
        self,
        channel: Channel | str,
        *,
        force: bool = True,
        policy: Compacting | None = None,
        partitions: Sequence[str] | None = None,
    ) -> Commit | None:
        """Add a base at the newest number of each partition that has deltas, so that they need not be merged by every
        reader (R14). The head does not move, no trigger fires, and no answer changes.

        Args:
            channel: its name.
            force: also where it is not worth it.
            policy: when it is worth it; what the project's definition of the channel says by default.
            partitions: only these, by their names.

        Returns:
            The commit; None where there was nothing to compact.
        """
        name = self._known(channel)
        return self._upkeep.compact(name, policy or self._compacting(name), force, partitions)

    def compactable(
        self,
        channel: Channel | str,
        *,
        force: bool = True,
        policy: Compacting | None = None,
        partitions: Sequence[str] | None = None,
    ) -> tuple[Compact, ...]:
        """The partitions that ``compact`` would compact, and why: its dry run."""
        name = self._known(channel)
        return self._upkeep.compactable(name, policy or self._compacting(name), force, partitions)

    def collect(self, channel: Channel | str, *, retain: str | None = None) -> Collection:
        """Take the blocks of a channel that nobody needs any more (R15). Their files are deleted after a grace.

        Args:
            retain: ``"30d"``: how long old versions are kept for time travel; what the project's definition says by
                default, and if it says nothing, not at all.
        """
        name = self._known(channel)
        return self._upkeep.collect(name, self._retained(name, retain))

    def held(self, channel: Channel | str, *, retain: str | None = None) -> tuple[Verdict, ...]:
        """Of every block of a channel, who needs it and for what: the dry run of ``collect``."""
        name = self._known(channel)
        return self._upkeep.verdicts(name, self._retained(name, retain))

    def delete_collected(self) -> int:
        """Delete the files of blocks that were collected longer than ``collect_grace`` ago. Gives how many."""
        return self._upkeep.delete_files()

    def _compacting(self, channel: str) -> Compacting:
        return next((c.compacting for c in self.project.channels if c.name == channel), None) or Compacting()

    def _retained(self, channel: str, given: str | None) -> float:
        defined = next((c.retain for c in self.project.channels if c.name == channel), None)
        wanted = defined if given is None else given
        if wanted is None:
            return 0.0
        seconds = seconds_of(wanted)
        if seconds is None:  # taken for nothing, it would let everything go
            raise DefinitionError("retain is an unreadable period", found=repr(wanted), expected=EXPECTED)
        return float(seconds)

    # looking

    def timeline(self, channel: Channel | str) -> list[Instant]:
        """What happened to a channel, oldest first."""
        return self.catalog.timeline(self._known(channel))

    def cursors(self, binding: str | None = None) -> list[Cursor]:
        """How far each binding has read."""
        return self.catalog.cursors(binding)

    def _known(self, channel: Channel | str) -> str:
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


def open(
    project: Project | str | None = None,
    catalog: str | None = None,
    warehouse: str | Path | None = None,
    spark: Any = None,
    *,
    lease: float | None = None,
    grace: float | None = None,
    settings: Settings | None = None,
) -> Store:
    """Open a deployment. Everything is optional: arguments, then ``NOVA_*``, then ``[tool.nova]`` in pyproject.toml.

    Args:
        project: a ``nova.Project`` or where it is: ``package.module:attribute``.
        catalog: a SQLAlchemy URL; SQLite under ``.nova/`` by default.
        warehouse: the folder for all blocks; under ``.nova/`` by default.
        spark: a session, or a function that gives one when it is needed; or where one is had from, as in
            ``Settings.spark``: ``local`` (the default), ``server`` or ``sc://host:port``.
        lease, grace: seconds; see ``Settings``.

    Raises:
        SettingsError: a setting is wrong, or the project cannot be loaded.
        DefinitionError: the project is not sound.
        CatalogUnavailable: the catalog does not answer.
        CatalogVersion: it is of a newer version, or something else.
    """
    from nova_assets.catalog.catalog import open_catalog
    from nova_assets.engine.engine import SparkEngine
    from nova_assets.engine.session import build
    from nova_assets.runtime import crash_point

    named = project if isinstance(project, str) else None
    where = spark if isinstance(spark, str) else None
    settings = settings or load_settings(
        catalog=catalog, warehouse=warehouse, project=named, lease=lease, grace=grace, spark=where
    )
    loaded = project if isinstance(project, Project) else load_project(settings)
    made = open_catalog(settings.catalog, on_before_commit=lambda: crash_point("commit.inside"))
    session = (
        spark
        if spark is not None and where is None
        else partial(build, settings.spark, settings.home, settings.spark_config)
    )
    return Store(settings, loaded, made, SparkEngine(settings.warehouse, session))


def load_project(settings: Settings) -> Project | None:
    """The project that the settings name, imported. Raises SettingsError when it cannot be, or is none."""
    if settings.project is None:
        return None
    module, _, attribute = settings.project.partition(":")
    if not module or not attribute:
        raise SettingsError(
            "the project is not named rightly", found=settings.project, expected="package.module:attribute"
        )
    root = str(settings.root)
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise SettingsError(
            f"the project {settings.project} cannot be loaded",
            found=str(error),
            expected="package.module:attribute, importable from " + root,
            next="nova doctor",
        ) from error
    if not isinstance(found, Project):
        raise SettingsError(f"{settings.project} is no nova.Project", found=type(found).__name__)
    return found
