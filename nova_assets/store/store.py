"""The store that ``nova.open()`` returns: all operations on the channels, bindings and data of one deployment."""

from __future__ import annotations

from nova_assets.execution.runtime import Runtime
from nova_assets.execution.task_context import FileViewsFactory
from nova_assets.masking import mask_address
from nova_assets.model.catalog import Catalog
from nova_assets.model.channel import Channel
from nova_assets.model.engine import Engine
from nova_assets.model.method_argument_checks import check_public_method_arguments
from nova_assets.model.project import Project
from nova_assets.renamed import DeploymentHandle
from nova_assets.settings import Settings
from nova_assets.store.arrivals import StoreArrivals
from nova_assets.store.backups import StoreBackups
from nova_assets.store.binding_executions import BindingExecutions
from nova_assets.store.channel_data import ChannelData
from nova_assets.store.channel_maintenance import ChannelMaintenance
from nova_assets.store.channel_registry import ChannelRegistry
from nova_assets.store.datasets import StoreDatasets
from nova_assets.store.definitions import StoreDefinitions
from nova_assets.store.forwarding import forwarded
from nova_assets.store.insert import DataInserter
from nova_assets.store.maintenance import StoreMaintenance
from nova_assets.store.notifications import StoreNotifications
from nova_assets.store.provenance import StoreProvenance
from nova_assets.store.published_tables import StorePublishing
from nova_assets.store.read import ChannelReader
from nova_assets.store.seal import GroupSealer
from nova_assets.store.seals import StoreSeals


@check_public_method_arguments
class Store(DeploymentHandle):
    """All operations on the channels, bindings and data of one deployment.

    ``nova.open`` makes a store. Several processes may share a catalog and a warehouse. Each process opens its own
    store.
    """

    _public_name = "nova.Store"

    def __init__(
        self,
        settings: Settings,
        project: Project | None,
        catalog: Catalog,
        engine: Engine,
        viewing: FileViewsFactory | None = None,
    ) -> None:
        self.settings = settings
        self.runtime = Runtime(
            catalog, engine, project, lease=settings.lease, sweep_delay=settings.grace, views_factory=viewing
        )
        self._reader = ChannelReader(self.runtime)
        self._inserter = DataInserter(self.runtime)
        self._maintenance = ChannelMaintenance(self.runtime, settings.gc_grace)
        self._registry = ChannelRegistry(self.runtime)
        self._definitions = StoreDefinitions(self.runtime)
        self._provenance = StoreProvenance(self.runtime, self._registry)
        self._data = ChannelData(self.runtime, self._registry, self._reader, self._inserter)
        self._executions = BindingExecutions(self.runtime, self._reader, self._registry)
        self._upkeep = StoreMaintenance(self.runtime, self._registry, self._maintenance)
        self._arrivals = StoreArrivals(self.runtime, self._registry, settings.root)
        self._seals = StoreSeals(self.runtime, self._registry, GroupSealer(self.runtime, self._maintenance))
        self._publishing = StorePublishing(self.runtime, self._registry, self._data, self._maintenance, settings)
        self._backups = StoreBackups(self.runtime)
        self._notifications = StoreNotifications(self.runtime, settings)
        self._datasets = StoreDatasets(self.runtime, self._maintenance, settings.root)

    @property
    def catalog(self) -> Catalog:
        return self.runtime.catalog

    @property
    def engine(self) -> Engine:
        return self.runtime.engine

    @property
    def project(self) -> Project:
        return self.runtime.project

    def __repr__(self) -> str:
        count = f"{len(self.project.channels)} channels, {len(self.project.bindings)} bindings"
        return f"<Store of {mask_address(self.settings.catalog)[:80]}: {count}>"

    def close(self) -> None:
        """Close the catalog. If this process started a Spark session, the session stays open for the next store."""
        if self.runtime.views_factory is not None:
            self.runtime.views_factory.close()
        self.engine.close()
        self.catalog.close()

    # definitions

    register = forwarded("_registry", ChannelRegistry.register)
    channels = forwarded("_registry", ChannelRegistry.channels)
    partitions = forwarded("_registry", ChannelRegistry.partitions)
    timeline = forwarded("_registry", ChannelRegistry.timeline)
    provenance = forwarded("_provenance", StoreProvenance.provenance)

    registered_bindings = forwarded("_definitions", StoreDefinitions.registered_bindings)
    workflowettes = forwarded("_definitions", StoreDefinitions.workflowettes)
    triggers = forwarded("_definitions", StoreDefinitions.triggers)
    describe = forwarded("_definitions", StoreDefinitions.describe)
    pause = forwarded("_definitions", StoreDefinitions.pause)
    resume = forwarded("_definitions", StoreDefinitions.resume)
    plan_removal = forwarded("_definitions", StoreDefinitions.plan_removal)
    remove = forwarded("_definitions", StoreDefinitions.remove)
    undo_removal = forwarded("_definitions", StoreDefinitions.undo_removal)
    removed_with = forwarded("_definitions", StoreDefinitions.removed_with)

    def known(self, channel: Channel | str) -> str:
        """Name of a registered channel.

        A channel of the project, or a ``Channel`` object, is registered on its first use.

        Raises:
            ChannelNotFound: neither the catalog nor the project has the channel.
        """
        return self._registry.registered_name(channel)

    # data

    insert = forwarded("_data", ChannelData.insert)
    check_insert = forwarded("_data", ChannelData.check_insert)
    read = forwarded("_data", ChannelData.read)
    pin = forwarded("_data", ChannelData.pin)
    views = forwarded("_data", ChannelData.views)
    restore = forwarded("_data", ChannelData.restore)

    # executions

    bindings = forwarded("_executions", BindingExecutions.bindings)
    run = forwarded("_executions", BindingExecutions.run)
    run_due = forwarded("_executions", BindingExecutions.run_due)
    plan_due = forwarded("_executions", BindingExecutions.plan_due)
    plan = forwarded("_executions", BindingExecutions.plan)
    forecast = forwarded("_executions", BindingExecutions.forecast)
    unread = forwarded("_executions", BindingExecutions.unread)
    switch = forwarded("_executions", BindingExecutions.switch)
    plan_switch = forwarded("_executions", BindingExecutions.plan_switch)
    open_executions = forwarded("_executions", BindingExecutions.open_executions)
    release = forwarded("_executions", BindingExecutions.release)
    failing_rows = forwarded("_executions", BindingExecutions.failing_rows)
    check_rows = forwarded("_executions", BindingExecutions.check_rows)
    executions = forwarded("_executions", BindingExecutions.executions)
    cursors = forwarded("_executions", BindingExecutions.cursors)

    # maintenance

    compact = forwarded("_upkeep", StoreMaintenance.compact)
    compactable = forwarded("_upkeep", StoreMaintenance.compactable)
    collect_garbage = forwarded("_upkeep", StoreMaintenance.collect_garbage)
    collect_removals = forwarded("_upkeep", StoreMaintenance.collect_removals)
    held = forwarded("_upkeep", StoreMaintenance.held)
    drop = forwarded("_upkeep", StoreMaintenance.drop)
    expired = forwarded("_upkeep", StoreMaintenance.expired)
    drop_expired = forwarded("_upkeep", StoreMaintenance.drop_expired)
    delete_collected = forwarded("_upkeep", StoreMaintenance.delete_collected)

    # backups

    backup = forwarded("_backups", StoreBackups.backup)
    backups = forwarded("_backups", StoreBackups.backups)
    release_backup = forwarded("_backups", StoreBackups.release_backup)

    # arriving files

    receive = forwarded("_arrivals", StoreArrivals.receive)
    follow = forwarded("_arrivals", StoreArrivals.follow)
    arriving = forwarded("_arrivals", StoreArrivals.arriving)
    replayable = forwarded("_arrivals", StoreArrivals.replayable)
    replay = forwarded("_arrivals", StoreArrivals.replay)
    arrivals = forwarded("_arrivals", StoreArrivals.arrivals)

    # seals

    seal = forwarded("_seals", StoreSeals.seal)
    sealable = forwarded("_seals", StoreSeals.sealable)
    seals = forwarded("_seals", StoreSeals.seals)

    # published tables

    publish = forwarded("_publishing", StorePublishing.publish)
    publishable = forwarded("_publishing", StorePublishing.publishable)
    to_publish = forwarded("_publishing", StorePublishing.to_publish)
    published = forwarded("_publishing", StorePublishing.published)
    unpublish = forwarded("_publishing", StorePublishing.unpublish)

    # notifications

    notify = forwarded("_notifications", StoreNotifications.notify)
    follow_notifications = forwarded("_notifications", StoreNotifications.follow_notifications)
    test_notifiers = forwarded("_notifications", StoreNotifications.test_notifiers)
    notifications = forwarded("_notifications", StoreNotifications.notifications)
    retry_notifications = forwarded("_notifications", StoreNotifications.retry_notifications)
    forget_notifier = forwarded("_notifications", StoreNotifications.forget_notifier)

    # datasets in SQL

    refresh = forwarded("_datasets", StoreDatasets.refresh)
    preview_refresh = forwarded("_datasets", StoreDatasets.preview_refresh)
    refresh_all = forwarded("_datasets", StoreDatasets.refresh_all)
    next_tick = forwarded("_datasets", StoreDatasets.next_tick)
    tick = forwarded("_datasets", StoreDatasets.tick)
    backfill = forwarded("_datasets", StoreDatasets.backfill)
    preview_backfill = forwarded("_datasets", StoreDatasets.preview_backfill)
    backfills = forwarded("_datasets", StoreDatasets.backfills)
    cancel_backfill = forwarded("_datasets", StoreDatasets.cancel_backfill)
