"""The frozen rows of a query now, from the query and the record of its last execution."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nova_assets.model.task import LastExecution
from nova_assets.sql.incremental.frozen_condition import FrozenCondition
from nova_assets.sql.incremental.maintained_query import MaintainedQuery
from nova_assets.sql.incremental.maintenance_choice import MaintenanceChoice
from nova_assets.sql.incremental.result_record import find_frozen_until

FROZEN_PARTITION = MaintenanceChoice("no change", "FROZEN WHERE is true for all rows of the partition")
"""Choice for a partition with rows, all of which are frozen."""


def find_frozen_condition(
    query: MaintainedQuery, values: Mapping[str, Any], now: datetime, last: LastExecution, channel: str
) -> FrozenCondition | None:
    """Which rows of a query are frozen at a moment; None if there are no frozen rows.

    Args:
        values: values of the query's variables and partition columns.
        last: the last execution, whose time counts if the clock went back since.
        channel: channel of the result.
    """
    if query.frozen is None:
        return None
    types = {} if query.scope is None else query.scope.partition_column_types
    until = find_frozen_until(last.reports, channel)
    parameters = {f"partition_{c}": values[f"partition_{c}"] for c in types}
    return FrozenCondition(query.frozen, now if until is None else max(now, until), types, parameters)
