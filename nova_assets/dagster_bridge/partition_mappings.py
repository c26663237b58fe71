"""Dagster partition mappings of SQL datasets, inferred from each dataset's query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from dagster import (
    AllPartitionMapping,
    DimensionPartitionMapping,
    IdentityPartitionMapping,
    MultiPartitionMapping,
    MultiToSingleDimensionPartitionMapping,
    PartitionMapping,
    SpecificPartitionsPartitionMapping,
    StaticPartitionMapping,
    TimeWindowPartitionMapping,
)

from nova_assets.dagster_bridge.partitions import build_partitions_definition, to_dagster_value_key
from nova_assets.masking import get_logger
from nova_assets.model.partition_rule import InputState
from nova_assets.model.partitions import Dimension
from nova_assets.nova_error import NovaError
from nova_assets.sql.datasets.dataset_query import DatasetQuery
from nova_assets.sql.pruning.partition_mapping import (
    AllValues,
    ColumnRelation,
    FixedValues,
    HoursOfDay,
    MappedValues,
    SameValue,
    ShiftedPeriods,
    infer_column_relations,
    newest_task_and_variants,
)

log = get_logger("nova_assets.datasets")


def infer_partition_mapping(
    query: DatasetQuery, upstream_dataset: str, upstream: Sequence[Dimension], downstream: Sequence[Dimension]
) -> PartitionMapping:
    """Partition mapping from an upstream dataset to a SQL dataset.

    Falls back to ``AllPartitionMapping`` if Dagster has no mapping type for the relation between the partitions.
    """
    relation_by_column = _infer_column_relations(query, upstream_dataset, upstream, downstream)
    partition_mapping = (
        None if relation_by_column is None else _relations_to_mapping(upstream, downstream, relation_by_column)
    )
    if partition_mapping is None:
        log.info(
            "Dagster cannot express which partitions %s reads of %s, so Dagster shows a dependency on all partitions",
            query.name,
            upstream_dataset,
        )
    return AllPartitionMapping() if partition_mapping is None else partition_mapping


def _infer_column_relations(
    query: DatasetQuery, upstream_dataset: str, upstream: Sequence[Dimension], downstream: Sequence[Dimension]
) -> Mapping[str, ColumnRelation] | None:
    if any(d.kind == "dynamic" for d in (*upstream, *downstream)):
        return None
    now = datetime.now(UTC)
    try:
        sample_partitions = newest_task_and_variants(downstream, query.graph.scopes_by_partition(query.name, now))
        upstream_by_sample = {
            task: list(
                dict.fromkeys(
                    p
                    for n in query.required_reads(task, now, InputState())
                    if n.dataset == upstream_dataset
                    for p in n.partitions
                )
            )
            for task in sample_partitions
        }
        return infer_column_relations(
            upstream, downstream, query.graph.expected_partitions(upstream_dataset, now).names, upstream_by_sample
        )
    except NovaError as error:  # the run raises the same error
        log.warning("%s: %s", query.name, error)
        return None


def _relations_to_mapping(
    upstream: Sequence[Dimension], downstream: Sequence[Dimension], relation_by_column: Mapping[str, ColumnRelation]
) -> PartitionMapping | None:
    sizes = (len(upstream), len(downstream))
    if all(isinstance(r, AllValues) for r in relation_by_column.values()):
        return AllPartitionMapping()
    if sizes == (1, 1):
        return _map_one_dimension(upstream[0], downstream[0], relation_by_column[upstream[0].column])
    if sizes == (2, 2):
        return _map_two_dimensions(upstream, downstream, relation_by_column)
    if sizes == (2, 1):
        return _map_two_to_one_dimension(upstream, downstream, relation_by_column)
    relation = relation_by_column[upstream[0].column]
    if sizes == (1, 2) and isinstance(relation, SameValue | ShiftedPeriods) and _is_identity_relation(relation):
        return _multi_to_single_mapping(upstream, downstream, relation.task_column)
    return None


def _is_identity_relation(column_relation: ColumnRelation) -> bool:
    return isinstance(column_relation, SameValue) or (
        isinstance(column_relation, ShiftedPeriods) and column_relation.first_offset == column_relation.last_offset == 0
    )


def _map_one_dimension(
    upstream: Dimension, downstream: Dimension, column_relation: ColumnRelation
) -> PartitionMapping | None:
    """Mapping between one upstream and one downstream dimension; None if Dagster has no type for the relation."""
    builder_by_relation: Mapping[type, Callable[[], PartitionMapping | None]] = {
        AllValues: AllPartitionMapping,
        SameValue: IdentityPartitionMapping,
        ShiftedPeriods: lambda: _time_window_mapping(column_relation.first_offset, column_relation.last_offset),  # type: ignore[union-attr]
        HoursOfDay: lambda: _time_window_mapping(0, 0),
        FixedValues: lambda: SpecificPartitionsPartitionMapping(
            [to_dagster_value_key(upstream, v) for v in column_relation.values]  # type: ignore[union-attr]
        ),
        MappedValues: lambda: _static_value_mapping(upstream, downstream, column_relation),  # type: ignore[arg-type]
    }
    return builder_by_relation[type(column_relation)]()


def _time_window_mapping(first_offset: int, last_offset: int) -> PartitionMapping:
    return TimeWindowPartitionMapping(
        start_offset=first_offset, end_offset=last_offset, allow_nonexistent_upstream_partitions=True
    )


def _static_value_mapping(upstream: Dimension, downstream: Dimension, value_relation: MappedValues) -> PartitionMapping:
    downstream_keys_by_upstream: dict[str, set[str]] = {}
    for value, read in value_relation.values_by_task_value.items():
        for one in read:
            downstream_keys_by_upstream.setdefault(to_dagster_value_key(upstream, one), set()).add(
                to_dagster_value_key(downstream, value)
            )
    return StaticPartitionMapping(downstream_keys_by_upstream)


def _map_two_dimensions(
    upstream: Sequence[Dimension], downstream: Sequence[Dimension], relation_by_column: Mapping[str, ColumnRelation]
) -> PartitionMapping | None:
    """Mapping between two upstream and two downstream dimensions; None if Dagster cannot express the relation.

    Each upstream column must follow from a different downstream column or have all values.
    """
    by_name = {d.column: d for d in downstream}
    mapping_by_dimension: dict[str, DimensionPartitionMapping] = {}
    for up in upstream:
        one = relation_by_column[up.column]
        if isinstance(one, AllValues):
            continue
        if isinstance(one, FixedValues) or any(
            f.dimension_name == one.task_column for f in mapping_by_dimension.values()
        ):
            return None
        mapping = _map_one_dimension(up, by_name[one.task_column], one)
        if mapping is None:
            return None
        mapping_by_dimension[up.column] = DimensionPartitionMapping(one.task_column, mapping)
    return MultiPartitionMapping(mapping_by_dimension)


def _map_two_to_one_dimension(
    upstream: Sequence[Dimension], downstream: Sequence[Dimension], relation_by_column: Mapping[str, ColumnRelation]
) -> PartitionMapping | None:
    """Mapping from two upstream dimensions to one, where one is shared and the other is read entirely; else None."""
    identity_dimensions = [d for d in upstream if _is_identity_relation(relation_by_column[d.column])]
    unconstrained_dimensions = [d for d in upstream if isinstance(relation_by_column[d.column], AllValues)]
    return (
        _multi_to_single_mapping(upstream, downstream, identity_dimensions[0].column)
        if len(identity_dimensions) == len(unconstrained_dimensions) == 1
        else None
    )


def _multi_to_single_mapping(
    upstream: Sequence[Dimension], downstream: Sequence[Dimension], shared_column: str
) -> PartitionMapping | None:
    candidate = MultiToSingleDimensionPartitionMapping(shared_column)
    upstream_definition = build_partitions_definition(upstream)
    downstream_definition = build_partitions_definition(downstream)
    assert upstream_definition is not None and downstream_definition is not None
    try:
        candidate.validate_partition_mapping(upstream_definition, downstream_definition)
    except Exception:  # Dagster confuses two dimensions with equal definitions
        return None
    return candidate
