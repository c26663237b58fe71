"""Prometheus metrics of the file views."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.file_views.view_updater import FollowerCounts
from nova_assets.service.http.metrics import ServiceMetrics


class ViewMetrics:
    """Copies the counts of a timeline follower to metrics of the service.

    Args:
        metrics: metrics of the service. They copy the counts before they are read.
    """

    def __init__(self, follower: TimelineFollower, metrics: ServiceMetrics) -> None:
        self._follower = follower
        self._counters = {
            name: Counter(f"nova_views_{name}", description, registry=metrics.registry)
            for name, description in _COUNTER_DESCRIPTIONS.items()
        }
        self._copied = dict.fromkeys(_COUNTER_DESCRIPTIONS, 0)
        size = Gauge(
            "nova_views_bytes", "Size of the file views.", registry=metrics.registry, multiprocess_mode="livesum"
        )
        metrics.before_each_read(lambda: size.set(follower.size()))
        metrics.before_each_read_by_any_instance(self.copy_counts)

    def copy_counts(self) -> None:
        """Add what was counted since the last call."""
        for name, counter in self._counters.items():
            count = getattr(self._follower.counts, name)
            counter.inc(count - self._copied[name])
            self._copied[name] = count


_COUNTER_DESCRIPTIONS = {
    "asked": "Queries of file views.",
    "met": "Queries that a file view answered without an update.",
    "applied": "Instants that were applied to file views.",
    "loaded": "Partitions that were loaded from the catalog.",
    "rebuilt": "Partitions that were loaded again because an instant could not be applied.",
    "restarted": "File views that were dropped because the timeline differed or was too far ahead.",
    "failed": "Failures of the storage of file views.",
}
assert set(_COUNTER_DESCRIPTIONS) == set(FollowerCounts.__dataclass_fields__)
