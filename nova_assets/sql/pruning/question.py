"""A question about a query, on its way through: what is asked of the whole, and of each part by what is around it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property
from typing import Any, TypeVar

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from nova_assets.model.schema import DataType, parse_type
from nova_assets.sql.evaluation.operand import NotUnderstood
from nova_assets.sql.evaluation.values import NAMED_TYPES, Key
from nova_assets.sql.pruning.partition_lookup import Listing, Row
from nova_assets.sql.pruning.sources import Among
from nova_assets.sql.query.query import Query, scan_number

T = TypeVar("T")


class Memory:
    """What was made of parts of one query before, and hangs on nothing but the query.

    Parts are known by who they are: the memory keeps whatever it was given, so that no other takes their place.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}

    def kept(self, of: Hashable, make: Callable[[], T]) -> T:
        if of not in self._kept:
            self._kept.setdefault(of, make())  # of two that make it at once, both take the first
        found: T = self._kept[of]
        return found


@dataclass(frozen=True)
class Call:
    """How a query is looked at by whatever it is a part of.

    Args:
        record: whether what it reads is wanted; otherwise only what its output can be.
        scopes: for which it is asked.
        asked: conditions on its output that whoever reads it puts. Their columns are those of the output, under the
            name of ``source``, and others whose values are in ``beside``.
        source: what it is called there.
        beside: the values that columns of its surroundings can have.
        gives: whether the values of its output are wanted.
    """

    record: bool
    scopes: Mapping[int, Row]
    asked: Sequence[exp.Expr] = ()
    source: str = ""
    beside: Mapping[Key, Among] = field(default_factory=dict)
    gives: bool = True


@dataclass
class Question:
    """Which partitions its scans read, in some scopes; or in which scopes one of its scans reads some partitions.

    Args:
        query: with every column told.
        partitions: dataset -> all that it should have.
        scopes: the values of the variables, one row for each scope.
        zone: in which moments are told apart by day.
        target: the scan whose readers are wanted.
        wanted: of that scan, the partitions that matter. They stand for it only where rows are recorded: what a
            subquery gives hangs on all, by a LIMIT or a window.
        found: scan -> the partitions that it reads.
        readers: the scopes in which the target reads some of those that matter.
        is_met: whether the target was come by.
        not_understood: parts of conditions on partitions that prune none, by where they are.
    """

    query: Query
    partitions: Mapping[str, Listing]
    scopes: Listing
    zone: tzinfo
    memory: Memory
    target: int | None = None
    wanted: Mapping[int, Row] = field(default_factory=dict)
    found: dict[int, set[int]] = field(default_factory=dict)
    readers: set[int] = field(default_factory=set)
    is_met: bool = False
    not_understood: dict[int, NotUnderstood] = field(default_factory=dict)

    def listing(self, dataset: str) -> Listing:
        return self.partitions.get(dataset) or _NOTHING

    @cached_property
    def variable_types(self) -> dict[str, DataType]:
        """Spark type of each variable."""
        return {name: parse_type(type_) for name, type_ in self.query.variables.items()}

    def column_types(self, dataset: str) -> Mapping[str, DataType]:
        """Small name -> Spark type, of the columns of a dataset whose values the names of partitions tell."""
        schema = self.query.schemas.get(dataset)
        if schema is None:
            return {}
        return self.memory.kept(
            ("types", dataset),
            lambda: {f.name.lower(): f.type for f in schema.fields if f.type.name in NAMED_TYPES},
        )

    def bears(self, scope: Scope) -> bool:
        """Whether a part of the query has the target within it."""
        target = self.target
        return target is not None and target in self._scans_within(scope)

    def record(self, number: int, rows: Mapping[int, Row], scopes: Mapping[int, Row], *, whole: bool) -> None:
        """A scan was come by, in a place where these of its partitions are read, in these scopes."""
        if self.target is None:
            everything = range(len(self.listing(self.query.scans[number].dataset)))
            self.found.setdefault(number, set()).update(everything if whole else rows)
        elif number == self.target:
            self.is_met = True
            if whole or rows:
                self.readers |= (self.scopes.rows if whole else scopes).keys()

    def record_nothing(self, scope: Scope) -> None:
        """The scans within a part of the query were come by, in a place where none of their partitions is read."""
        for number in self._scans_within(scope):
            self.record(number, {}, {}, whole=self.query.scans[number].mode == "whole")

    def _scans_within(self, scope: Scope) -> frozenset[int]:
        return self.memory.kept(("scans", id(scope)), lambda: frozenset(_scans(scope, set())))


_NOTHING = Listing([])


def _scans(scope: Scope, seen: set[int]) -> Iterator[int]:
    """The scans within a part of the query."""
    if id(scope) in seen:
        return
    seen.add(id(scope))
    for source in scope.sources.values():
        number = None if isinstance(source, Scope) else scan_number(source)
        if number is not None:
            yield number
    for inner in _inner(scope):
        yield from _scans(inner, seen)


def _inner(scope: Scope) -> list[Scope]:
    sources = [s for s in scope.sources.values() if isinstance(s, Scope)]
    return [*scope.subquery_scopes, *scope.derived_table_scopes, *(scope.set_operation_scopes or ()), *sources]
