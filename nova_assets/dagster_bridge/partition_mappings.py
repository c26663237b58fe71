"""Which partitions a dataset's partition reads, in the words that Dagster has for it; they follow from its query."""

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

from nova_assets.dagster_bridge.partitions import partitions_def, value_key
from nova_assets.errors import NovaError
from nova_assets.masking import get_logger
from nova_assets.model.partitions import Dimension
from nova_assets.sql.datasets.task import InScope
from nova_assets.sql.pruning.partition_mapping import (
    ByValue,
    Equal,
    Every,
    Relation,
    Shifted,
    These,
    Within,
    relation,
    samples,
)

log = get_logger("nova_assets.datasets")


def told_mapping(
    query: InScope, read: str, upstream: Sequence[Dimension], downstream: Sequence[Dimension]
) -> PartitionMapping:
    """Which partitions of something a dataset's need. All of them, where Dagster has no words for which."""
    told = _told(query, read, upstream, downstream)
    found = None if told is None else _mapping(upstream, downstream, told)
    if found is None:
        log.info("%s reads partitions of %s by a rule that Dagster cannot be told: it is shown all", query.name, read)
    return AllPartitionMapping() if found is None else found


def _told(
    query: InScope, read: str, upstream: Sequence[Dimension], downstream: Sequence[Dimension]
) -> Mapping[str, Relation] | None:
    if any(d.kind == "dynamic" for d in (*upstream, *downstream)):
        return None
    now = datetime.now(UTC)
    try:
        some = samples(downstream, query.graph.tasks(query.name, now))
        seen = {
            task: list(
                dict.fromkeys(
                    p for n in query.needs(task, now, lambda channel: ()) if n.dataset == read for p in n.partitions
                )
            )
            for task in some
        }
        return relation(upstream, downstream, query.graph.partitions(read, now).names, seen)
    except NovaError as error:  # said when it is run
        log.warning("%s: %s", query.name, error)
        return None


def _mapping(
    upstream: Sequence[Dimension], downstream: Sequence[Dimension], told: Mapping[str, Relation]
) -> PartitionMapping | None:
    sizes = (len(upstream), len(downstream))
    if all(isinstance(r, Every) for r in told.values()):
        return AllPartitionMapping()
    if sizes == (1, 1):
        return _of_one(upstream[0], downstream[0], told[upstream[0].column])
    if sizes == (2, 2):
        return _of_two(upstream, downstream, told)
    if sizes == (2, 1):
        return _of_two_by_one(upstream, downstream, told)
    if sizes == (1, 2) and isinstance(told[upstream[0].column], Equal | Shifted):
        found = told[upstream[0].column]
        return _single(upstream, downstream, found.of) if _is_same(found) else None  # type: ignore[union-attr]
    return None


def _is_same(told: Relation) -> bool:
    return isinstance(told, Equal) or (isinstance(told, Shifted) and told.first == told.last == 0)


def _of_one(up: Dimension, down: Dimension, told: Relation) -> PartitionMapping | None:
    """One column from one column."""
    makers: Mapping[type, Callable[[], PartitionMapping | None]] = {
        Every: AllPartitionMapping,
        Equal: IdentityPartitionMapping,
        Shifted: lambda: _window(told.first, told.last),  # type: ignore[union-attr]
        Within: lambda: _window(0, 0),
        These: lambda: SpecificPartitionsPartitionMapping([value_key(up, v) for v in told.values]),  # type: ignore[union-attr]
        ByValue: lambda: _by_value(up, down, told),  # type: ignore[arg-type]
    }
    return makers[type(told)]()


def _window(first: int, last: int) -> PartitionMapping:
    return TimeWindowPartitionMapping(start_offset=first, end_offset=last, allow_nonexistent_upstream_partitions=True)


def _by_value(up: Dimension, down: Dimension, told: ByValue) -> PartitionMapping:
    found: dict[str, set[str]] = {}
    for value, read in told.values.items():
        for one in read:
            found.setdefault(value_key(up, one), set()).add(value_key(down, value))
    return StaticPartitionMapping(found)


def _of_two(
    upstream: Sequence[Dimension], downstream: Sequence[Dimension], told: Mapping[str, Relation]
) -> PartitionMapping | None:
    """Two columns, each of which follows from another one, or has all values."""
    by_name = {d.column: d for d in downstream}
    found: dict[str, DimensionPartitionMapping] = {}
    for up in upstream:
        one = told[up.column]
        if isinstance(one, Every):
            continue
        if isinstance(one, These) or any(f.dimension_name == one.of for f in found.values()):
            return None
        mapping = _of_one(up, by_name[one.of], one)
        if mapping is None:
            return None
        found[up.column] = DimensionPartitionMapping(one.of, mapping)
    return MultiPartitionMapping(found)


def _of_two_by_one(
    upstream: Sequence[Dimension], downstream: Sequence[Dimension], told: Mapping[str, Relation]
) -> PartitionMapping | None:
    """Of two columns one is the task's, and of the other all is read."""
    same = [d for d in upstream if _is_same(told[d.column])]
    others = [d for d in upstream if isinstance(told[d.column], Every)]
    return _single(upstream, downstream, same[0].column) if len(same) == len(others) == 1 else None


def _single(upstream: Sequence[Dimension], downstream: Sequence[Dimension], column: str) -> PartitionMapping | None:
    found = MultiToSingleDimensionPartitionMapping(column)
    above, below = partitions_def(upstream), partitions_def(downstream)
    assert above is not None and below is not None
    try:
        found.validate_partition_mapping(above, below)
    except Exception:  # it takes two that are alike for each other
        return None
    return found
