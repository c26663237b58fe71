"""State of a service that all routes share: store, file views, configuration and caches."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from fastapi.responses import Response

from nova_assets.errors import ServiceUnavailable
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.model.channel import Channel
from nova_assets.model.partitions import WHOLE, parse_partition
from nova_assets.model.timeline import TimelinePosition
from nova_assets.service.http.asgi import JSON
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.metrics import ServiceMetrics
from nova_assets.service.http.request_limits import ActiveRequests
from nova_assets.service.uploads import BodyDecoders, UploadSpool
from nova_assets.store.lost_numbers import check_number_not_lost
from nova_assets.store.store import Store

_DEFINITION_CACHE_SECONDS = 5.0
"""Seconds for which a channel's definition is cached."""

_CATCH_UP_SECONDS = 2.0
"""Seconds for which a readiness check applies newer instants to the file views."""


@dataclass
class ServiceState:
    """State of one served deployment.

    Args:
        identity: identity of the catalog, by which clients recognize the deployment.
        metrics: metrics of the service.
        active_requests: requests in progress, for an orderly shutdown.
        spool: temporary storage of request bodies.
        decoders: worker processes that decode request bodies.
    """

    store: Store
    query_handler: ViewQueryHandler
    config: ServiceConfig
    identity: str
    metrics: ServiceMetrics | None = None
    active_requests: ActiveRequests | None = None
    spool: UploadSpool = field(default_factory=UploadSpool)
    decoders: BodyDecoders = field(default_factory=BodyDecoders)
    _cached_definitions: dict[str, tuple[float, Channel]] = field(default_factory=dict)
    _health_check_lock: threading.Lock = field(default_factory=threading.Lock)
    _last_health_check: float = float("-inf")

    def channel_definition(self, channel: str) -> Channel:
        """Definition of a channel, cached for a few seconds.

        Raises:
            ChannelNotFound: no such channel.
        """
        definition = self.cached_definition(channel)
        if definition is None:
            now = time.monotonic()
            definition = self.store.catalog.definitions.channel(channel).channel
            self._cached_definitions[channel] = now, definition
        return definition

    def cached_definition(self, channel: str) -> Channel | None:
        """Definition of a channel that was cached in the last few seconds, else None. Never reads the catalog."""
        cached_at, definition = self._cached_definitions.get(channel, (float("-inf"), None))
        return None if cached_at < time.monotonic() - _DEFINITION_CACHE_SECONDS else definition

    def parse_scope(self, channel: str, partition: str | None) -> str:
        """Scope of a partition parameter.

        Raises:
            ChannelNotFound: no such channel.
            PartitionError: the channel has no such partition.
        """
        definition = self.channel_definition(channel)
        if not partition:
            return WHOLE
        return parse_partition(definition.partitions, partition, allow_scope=True, schema=definition.schema)

    def check_not_lost(self, channel: str, known_position: TimelinePosition | None, *numbers: int | None) -> None:
        """Check that no requested number belongs to a commit that a restored catalog has lost. An asker that knows its
        position needs no check, because its position then belongs to another timeline.

        Raises:
            VersionNotFound.
        """
        if known_position is None:
            check_number_not_lost(self.store.catalog, channel, *numbers)

    def check_ready(self) -> None:
        """Check that the catalog is healthy, and that the file views are current. Concurrent calls share one check per
        second.

        Raises:
            CatalogUnavailable: the catalog does not answer.
            CatalogVersion: another version of this package has migrated the catalog.
            ServiceUnavailable: the file of the catalog was moved or replaced. Or the catalog is damaged: a table is
                missing or unreadable. Or the file views have many instants to apply, for example after a restart.
        """
        with self._health_check_lock:
            if time.monotonic() > self._last_health_check + 1.0:
                file_problem = self.store.catalog.identity.file_problem()
                if file_problem is not None:
                    raise ServiceUnavailable(
                        "the file of the catalog is not in place",
                        found=file_problem,
                        expected="the file and the log that this process has opened, under one name",
                        next="stop the processes of the catalog, put the file and its log in place, start them again",
                        reason="catalog_file",
                    )
                damage = self.store.catalog.identity.damage()
                if damage is not None:
                    raise ServiceUnavailable(
                        "the catalog is damaged",
                        found=damage,
                        expected="a catalog with all its tables",
                        next="restore a backup of the catalog; then: nova doctor --repair",
                        reason="catalog_damaged",
                    )
                outdated = self.query_handler.follower.catch_up(_CATCH_UP_SECONDS)
                if outdated:
                    raise ServiceUnavailable(
                        "the file views are not current yet",
                        found=f"channels with newer instants: {outdated}",
                        next="retry in a moment",
                        reason="catching_up",
                    )
                self._last_health_check = time.monotonic()

    def json_response(self, body: bytes) -> Response:
        return Response(body, media_type=JSON, headers={"nova-catalog": self.identity})
