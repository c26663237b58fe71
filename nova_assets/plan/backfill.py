"""Which partitions a backfill makes again: those that are asked for, and what was made of them, as far as that is to
follow (BigDataFlow, part 2). Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nova_assets.errors import DefinitionError, PartitionError
from nova_assets.model.partitions import partition_name, partition_values
from nova_assets.plan.staleness import Needs

Key: TypeAlias = tuple[str, str]
"""A dataset and one of its partitions."""


@dataclass(frozen=True)
class Affected:
    """What a backfill comes to.

    Args:
        parts: what is made again, each after what it is made of.
        followed: the datasets among them that only follow.
        left: datasets that read something of it, and are not to follow -> how many of their partitions do.
    """

    parts: tuple[Key, ...]
    followed: tuple[str, ...] = ()
    left: Mapping[str, int] | None = None


def affected(
    tasks: Mapping[str, Collection[str]],
    needs: Needs,
    dataset: str,
    partitions: Collection[str],
    downstream: Collection[str] | None = None,
    repeatable: Callable[[str], bool] = lambda name: True,
) -> Affected:
    """What is to be made again, so that a dataset's partitions and what was made of them are right.

    Args:
        tasks: dataset -> the partitions that its tasks write; each dataset after those that it reads.
        needs: what a task reads.
        partitions: those that are asked for.
        downstream: the datasets that follow; None for all.
        repeatable: whether a dataset's partitions may be made again; others are left.

    Raises:
        DefinitionError: one of these reads nothing of what is made again.
    """
    again: dict[Key, None] = {(dataset, p): None for p in partitions}
    left: dict[str, int] = {}
    order = list(tasks)
    for name in order[order.index(dataset) + 1 :]:
        reading = [p for p in tasks[name] if _reads(needs(name, p), again)]
        if not reading:
            continue
        if repeatable(name) and (downstream is None or name in downstream):
            again.update(((name, p), None) for p in reading)
        else:
            left[name] = len(reading)
    followed = tuple(dict.fromkeys(name for name, _ in again if name != dataset))
    idle = [n for n in downstream or () if n not in followed]
    if idle:
        raise DefinitionError(
            f"{', '.join(map(repr, idle))}: reads nothing of what is made again",
            expected=f"some of: {', '.join([*followed, *left]) or '(nothing reads it)'}",
            next="name what lies between, too; or --downstream all",
        )
    return Affected(tuple(again), followed, left)


def _reads(needs: Sequence[tuple[str, Collection[str]]], again: Collection[Key]) -> bool:
    return any((read, p) in again for read, partitions in needs for p in partitions)


def chosen(dataset: str, partitions: Sequence[str], columns: Sequence[str], terms: Sequence[str]) -> list[str]:
    """The partitions that some terms pick, such as ``day=2022-03-01..2022-03-31`` and ``store=Paris``.

    Args:
        partitions: those that there are, in their order: a range runs from its first value to its last.
        columns: that they are made of.

    Raises:
        PartitionError: a term names no column, or picks nothing.
    """
    found = list(partitions)
    for term in terms:
        column, _, wanted = term.partition("=")
        if column not in columns or not wanted:
            raise PartitionError(
                f"{term!r} picks no partitions of {dataset!r}",
                expected=" or ".join(f"{c}=VALUE, {c}=FROM..TO" for c in columns) or "nothing: it has no partitions",
            )
        values = _between(list(dict.fromkeys(str(partition_values(p)[column]) for p in partitions)), wanted)
        some = [p for p in found if partition_values(p)[column] in values]
        if not some:
            known = partitions if len(partitions) < 4 else [*partitions[:1], "…", *partitions[-1:]]
            raise PartitionError(
                f"{term!r} picks no partitions of {dataset!r}",
                found=partition_name([column], {column: wanted}),
                expected=", ".join(known) or "(no task writes any)",
                next=f"nova show {dataset}",
            )
        found = some
    return found


def _between(values: Sequence[str], wanted: str) -> Collection[str]:
    """One value; or those from one to another, which need not be there themselves where values are in order."""
    first, dots, last = wanted.partition("..")
    if not dots:
        return {wanted}
    if first in values and last in values:
        return set(values[values.index(first) : values.index(last) + 1])
    ends = [e for e in (first, last) if e]
    if all(_is_whole(v) for v in (*values, *ends)):
        return {v for v in values if (not first or int(v) >= int(first)) and (not last or int(v) <= int(last))}
    if list(values) != sorted(values) and not set(ends) <= set(values):
        return set()
    at = [values.index(e) if e in values else None for e in (first, last)]
    return {
        v
        for n, v in enumerate(values)
        if (not first or (v >= first if at[0] is None else n >= at[0]))
        and (not last or (v <= last if at[1] is None else n <= at[1]))
    }


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
