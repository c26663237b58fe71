"""Checks whether a channel can hold the result of a maintained query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from nova_assets.errors import DefinitionError, NotSupported
from nova_assets.model.channel import Channel
from nova_assets.model.merge import Append, MergeModel, Multiset, Upsert
from nova_assets.model.partition_values import can_be_key
from nova_assets.model.partitions import partition_values
from nova_assets.model.schema import DataType, Schema
from nova_assets.sql.incremental.accumulation import Accumulation, StoredAccumulation, hidden_fields
from nova_assets.sql.incremental.operators import Operator
from nova_assets.sql.incremental.unique_keys import exact_unique_key


@dataclass(frozen=True)
class MaintenancePlan:
    """How the result of a query is maintained.

    Args:
        operators: the operators of the query; None if the whole query is computed, and compared with the stored rows.
        reason: why there are no operators; empty if there are.
        accumulation: the operators as an accumulation; None if they are none.
        hidden_types: number of a hidden accumulator -> its type, as Spark derives it.
    """

    operators: Operator | None
    reason: str = ""
    accumulation: Accumulation | None = None
    hidden_types: Mapping[int, DataType] = field(default_factory=dict)

    def accumulation_in(self, target: Channel) -> Accumulation | None:
        """The accumulation; None if a channel does not store groups with their accumulators.

        Others read the files of a published channel, so these have no hidden columns.
        """
        if self.accumulation is None or (target.publish and self.accumulation.needs_hidden):
            return None
        key = {k.lower() for k in target.merge.key}
        is_grouped = isinstance(target.merge, Multiset) or key == set(self.accumulation.key_columns)
        return self.accumulation if is_grouped else None

    def stored_accumulation(self, target: Channel, schema: Schema, token: str) -> StoredAccumulation | None:
        """The accumulation as a channel stores it; None if the channel does not store groups with their accumulators.

        Args:
            target: channel of the result.
            schema: columns of the result.
            token: part of the names of hidden columns.
        """
        accumulation = self.accumulation_in(target)
        if accumulation is None or self.operators is None:
            return None
        fields = dict(zip(self.operators.columns, schema.fields, strict=True))
        hidden = {} if target.publish else hidden_fields(token, self.hidden_types)
        return StoredAccumulation(accumulation, fields, hidden)


def check_channel(
    target: Channel,
    schema: Schema,
    query_name: str,
    input_models: Iterable[MergeModel],
    partition: str,
    load_plan: Callable[[], MaintenancePlan],
) -> None:
    """Check that a channel can hold the result.

    Args:
        schema: columns of the result.
        query_name: name of the query, for errors.
        input_models: merge models of the inputs.
        partition: partition of the execution.
        load_plan: loads the plan of the query. A ``Multiset`` does not need it.

    Raises:
        NotSupported, DefinitionError.
    """
    for column in schema.fields:
        if not can_be_key(column.type):
            raise NotSupported(
                f"{query_name}: column {column.name!r} of the result is a map, which Spark cannot compare",
                expected="map_entries(...) of the map",
            )
    merge = target.merge
    if isinstance(merge, Multiset):
        return _check_partition(target, query_name, partition)
    plan = load_plan()
    inputs_only_grow = all(isinstance(model, Append) for model in input_models)
    if isinstance(merge, Append) and inputs_only_grow and plan.operators is not None and plan.operators.is_monotone:
        return
    if not isinstance(merge, Upsert) or merge.order_by:
        raise DefinitionError(
            f"channel {target.name!r} cannot hold the result of {query_name}: rows of the result change",
            found=f"merge={merge!r}",
            expected=f"nova.Multiset(), or nova.Upsert(key=[...]) without order_by{_key_suggestions(plan)}",
        )
    _check_partition(target, query_name, partition)
    if plan.operators is not None:
        _check_upsert_key(target, plan, query_name)


def _check_upsert_key(target: Channel, plan: MaintenancePlan, query_name: str) -> None:
    assert plan.operators is not None
    lower = {k.lower() for k in target.merge.key}
    if rounded := sorted(plan.operators.rounded & lower):
        raise DefinitionError(
            f"key column {rounded[0]!r} of channel {target.name!r} is a rounded number, which can differ each time",
            expected=f"a key of exact values{_key_suggestions(plan)}",
        )
    if not any(key <= lower for key in plan.operators.unique_keys):
        raise key_error(query_name, target, plan)


def _check_partition(target: Channel, query_name: str, partition: str) -> None:
    """Check that an execution of a partition compares its result with rows of this partition only."""
    missing = sorted(partition_values(partition).keys() - set(target.partition_columns))
    if missing:
        raise NotSupported(
            f"{query_name} runs per partition, and channel {target.name!r} is not partitioned by {missing[0]}",
            expected=f"a channel partitioned by {', '.join(partition_values(partition))}, or a binding without "
            "partitions",
        )


def key_error(query_name: str, target: Channel, plan: MaintenancePlan) -> DefinitionError:
    """The error that the key of a channel does not identify the rows of a query."""
    return DefinitionError(
        f"the key of channel {target.name!r} does not identify the rows of {query_name}",
        found=f"key {', '.join(target.merge.key)}",
        expected=f"a key that follows from the query{_key_suggestions(plan)}",
        next="GROUP BY the key, SELECT DISTINCT, or select the keys of all joined channels",
    )


def reason_without_operators(plan: MaintenancePlan) -> str | None:
    """Why the operators do not give the change of a result; None if they do."""
    return plan.reason if plan.operators is None else reason_without_exact_key(plan.operators)


def reason_without_exact_key(operators: Operator) -> str | None:
    """Why the stored rows cannot be removed by a key; None if they can, or if all values are exact."""
    is_by_key = operators.rounded and operators.unstable is None
    if is_by_key and exact_unique_key(operators) is None:
        return f"{min(operators.rounded)} is rounded, and no key without rounded numbers follows from the query"
    return None


def _key_suggestions(plan: MaintenancePlan) -> str:
    keys = sorted(", ".join(sorted(k)) for k in plan.operators.unique_keys if k) if plan.operators is not None else []
    return f": {' or '.join(keys)}" if keys else ""
