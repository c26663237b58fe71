"""Conditions of declarative automation for plain assets that read channels.

    @dg.asset(automation_condition=nova.condition.has_unread(min_rows=1000, older_than="10 minutes"), ...)

Dagster evaluates such a condition in the process of the definitions, by the sensor ``nova_automation``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dagster import AssetKey, AutomationCondition, AutomationResult
from dagster._core.definitions.partitions.context import partition_loading_context

from nova_assets.dagster_bridge.partitions import find_multi_partition_columns, to_dagster_key
from nova_assets.dagster_bridge.resources import NovaResource
from nova_assets.errors import DefinitionError
from nova_assets.execution.trigger_state import unread_by_partition
from nova_assets.model.binding import Binding
from nova_assets.model.channel_state import UnreadData
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds

_readers: dict[AssetKey, tuple[NovaResource, Binding]] = {}


def has_unread(*, min_rows: int | None = None, older_than: str | None = None) -> AutomationCondition[AssetKey]:
    """Condition that is true while an asset has unread data in a channel that it reads by cursor, and no run of the
    asset is in progress.

    Without arguments, one unread block is enough. With arguments, one of them has to be reached. Compaction and
    collection add no data, so they make nothing unread. An asset in several partitions is judged for each partition.

    Args:
        min_rows: number of unread rows of one channel.
        older_than: how long the oldest unread data has waited, such as ``"10 minutes"``.

    Raises:
        DefinitionError: an argument is invalid.
    """
    if min_rows is not None and min_rows < 1:
        raise DefinitionError("has_unread needs min_rows of 1 or more", found=repr(min_rows))
    if older_than is not None and period_seconds(older_than) is None:
        raise DefinitionError("has_unread has an invalid older_than", found=repr(older_than), expected=EXPECTED_PERIOD)
    return HasUnread(min_rows, older_than) & ~AutomationCondition.in_progress()


@dataclass(frozen=True, eq=False)
class HasUnread(AutomationCondition[AssetKey]):
    """The part of ``has_unread`` that looks at the catalog."""

    min_rows: int | None = None
    older_than: str | None = None

    @property
    def name(self) -> str:
        given = {"min_rows": self.min_rows, "older_than": self.older_than}
        return f"has_unread({', '.join(f'{k}={v}' for k, v in given.items() if v is not None)})"

    def evaluate(self, context: Any) -> AutomationResult[AssetKey]:
        """Partitions of the asset with enough unread data."""
        if context.key not in _readers:
            raise DefinitionError(
                f"has_unread is a condition of asset {context.key.to_user_string()!r}, which nova does not know",
                next="hand the asset to build_definitions(project, assets=[...])",
            )
        nova, binding = _readers[context.key]
        catalog = nova.store().catalog
        now = catalog.now()
        unread = unread_by_partition(binding, catalog, now)
        due = [p for p, by_channel in unread.items() if any(self._is_enough(u, now) for u in by_channel.values())]
        if context.partitions_def is None:
            return AutomationResult(context, context.candidate_subset if due else context.get_empty_subset())
        columns = find_multi_partition_columns(nova.store().project)
        keys = {to_dagster_key(binding.dimensions, p, columns) for p in due}
        view = context.asset_graph_view
        with partition_loading_context(dynamic_partitions_store=view.instance):
            known = {k for k in keys if context.partitions_def.has_partition_key(k)}
        subset = view.get_subset_from_partition_keys(context.key, context.partitions_def, known)
        return AutomationResult(context, context.candidate_subset.compute_intersection(subset))

    def _is_enough(self, unread: UnreadData, now: datetime) -> bool:
        if self.min_rows is None and self.older_than is None:
            return unread.blocks > 0
        if self.min_rows is not None and unread.rows >= self.min_rows:
            return True
        seconds = period_seconds(self.older_than)
        return seconds is not None and unread.oldest is not None and now - unread.oldest >= timedelta(seconds=seconds)


def register_reader(asset_key: AssetKey, nova: NovaResource, binding: Binding) -> None:
    """Tell conditions in this process by which store, and as which consumer, an asset reads channels."""
    _readers[asset_key] = (nova, binding)


def has_own_condition(condition: AutomationCondition[Any] | None) -> bool:
    """Whether ``has_unread`` is a part of a condition. Only the process of the definitions can evaluate it then."""
    return condition is not None and any(isinstance(c, HasUnread) for c in _walk(condition))


def _walk(condition: AutomationCondition[Any]) -> Iterator[AutomationCondition[Any]]:
    yield condition
    for child in condition.children:
        yield from _walk(child)
