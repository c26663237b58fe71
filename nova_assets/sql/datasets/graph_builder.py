"""How a graph of datasets is made: statements are read, put in order, and understood one after the other."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from nova_assets.errors import DefinitionError, SqlError
from nova_assets.model.channel import Channel
from nova_assets.model.schema import Field, Schema, parse_type
from nova_assets.sql.cache.analysis_cache import Recall, Understood
from nova_assets.sql.cache.disk_cache import Shelf
from nova_assets.sql.datasets.graph import Dataset, Graph
from nova_assets.sql.parse.dialect import parsed
from nova_assets.sql.pruning.prune import needed
from nova_assets.sql.pruning.sources import Partition
from nova_assets.sql.query.query import Query, understood
from nova_assets.sql.query.table_function_calls import tables_of
from nova_assets.sql.statement.external_table import View, is_view, viewed
from nova_assets.sql.statement.header import dimensions
from nova_assets.sql.statement.statement import Written, written
from nova_assets.sql.text import Text
from nova_assets.sql.types.types import is_unnamed, schema_of_query


def graph(
    texts: Sequence[Text],
    channels: Sequence[Channel] = (),
    functions: Mapping[str, str] | None = None,
    shelf: Shelf | None = None,
) -> Graph:
    """Understand datasets together.

    Args:
        texts: a statement each.
        channels: that they may read; or, under the name of a dataset, how it is to be kept.
        functions: user-defined functions, by name, with the types that they give.
        shelf: where it is looked up what was found out of them before.

    Raises:
        SqlError: the one thing that is wrong.
        DefinitionError: everything that is wrong, where it is several things.
    """
    with _collecting_what_is_new(), _recall(shelf, functions or {}) as recall:
        return _graph(texts, channels, functions or {}, recall)


@contextmanager
def _recall(shelf: Shelf | None, functions: Mapping[str, str]) -> Iterator[Recall | None]:
    if shelf is None or shelf.file is None:
        yield None
        return
    with shelf.opened() as opened:
        yield Recall(opened, functions)


@contextmanager
def _collecting_what_is_new() -> Iterator[None]:
    """Without looking through all that was made of thousands of queries for garbage, again and again: most garbage is
    found among what was made last."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 50_000) if before[0] else 0, before[1], 1_000_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _graph(
    texts: Sequence[Text], channels: Sequence[Channel], functions: Mapping[str, str], recall: Recall | None
) -> Graph:
    problems: list[SqlError] = []
    read, views = _all_read(texts, problems, recall)
    _refuse_two_meanings([*read, *views, *(c.name for c in channels)], functions)
    unread = {Path(p.file).stem for p in problems}
    given = {c.name: c for c in channels}
    _refuse_both(views, given)
    others = {n: c for n, c in given.items() if n not in read} | {n: v.channel for n, v in views.items()}
    schemas = {n: c.schema for n, c in others.items() if c.schema is not None}
    columns = {n: [c.lower() for c in x.partition_columns] for n, x in others.items()}
    made: dict[str, Dataset] = {}
    for name in _in_order(read, problems):
        if any((r in read and r not in made) or r in unread for r in read[name].reads):
            continue  # what it reads is not understood: that is said already
        try:
            _refuse_changes_of_external(read[name], others)
            made[name] = understood_dataset(read[name], schemas, given.get(name), functions, columns, recall)
        except SqlError as error:
            problems.append(error)
        else:
            schemas[name] = made[name].schema
            columns[name] = [c.lower() for c in made[name].channel.partition_columns]
    _refuse(problems)
    reads = {r for d in made.values() for r in d.reads}
    kept = {n: c for n, c in others.items() if n in reads or n in views}
    return Graph(made, kept, dict(functions), views, recall.hits if recall else 0)


def _refuse_two_meanings(names: Sequence[str], functions: Mapping[str, str]) -> None:
    both = sorted(set(names) & set(tables_of(functions)))
    if both:
        raise DefinitionError(f"{', '.join(both)}: a function and a dataset", expected="a name for each")


def _refuse_both(views: Mapping[str, View], given: Mapping[str, Channel]) -> None:
    for name, view in views.items():
        if name in given and given[name] != view.channel:
            raise DefinitionError(
                f"{name!r} is a channel, and a view in {view.text.name}", expected="the one or the other"
            )


def _refuse_changes_of_external(one: Written, others: Mapping[str, Channel]) -> None:
    for scan in one.scans:
        if scan.mode in ("new", "old") and scan.dataset in others and others[scan.dataset].external is not None:
            raise one.text.error(
                f"{scan.dataset!r} is external: of what others write only the newest state is known",
                scan.place,
                expected=f"FROM {scan.dataset}",
            )


def in_order(texts: Sequence[Text], shelf: Shelf | None = None) -> list[Written]:
    """The datasets among some statements by themselves, each after those that it reads.

    Args:
        shelf: where it is looked up what was found out of them before.

    Raises:
        SqlError: the one thing that is wrong.
        DefinitionError: everything that is wrong, where it is several things.
    """
    problems: list[SqlError] = []
    with _recall(shelf, {}) as recall:
        read, _ = _all_read(texts, problems, recall)
    names = _in_order(read, problems)
    _refuse(problems)
    return [read[n] for n in names]


def views_of(texts: Sequence[Text], shelf: Shelf | None = None) -> list[View]:
    """The views of external tables among some statements; of those that can be read."""
    with _recall(shelf, {}) as recall:
        return list(_all_read(texts, [], recall)[1].values())


def _all_read(
    texts: Sequence[Text], problems: list[SqlError], recall: Recall | None = None
) -> tuple[dict[str, Written], dict[str, View]]:
    datasets: dict[str, Written] = {}
    views: dict[str, View] = {}
    for text in texts:
        try:
            one = _read(text, recall)
        except SqlError as error:
            problems.append(error)
            continue
        known = datasets.get(one.name) or views.get(one.name)
        if known is not None:
            where = known.text.name
            problems.append(text.error(f"dataset {one.name!r} is in {where} already", None, expected="one statement"))
        elif isinstance(one, View):
            views[one.name] = one
        else:
            datasets[one.name] = one
    return datasets, views


def _read(text: Text, recall: Recall | None) -> Written | View:
    known = None if recall is None else recall.written(text)
    if known is not None:
        return known
    statement = parsed(text)
    if is_view(statement):
        return viewed(text, statement)
    one = written(text, statement)
    if recall is not None:
        recall.keep(one)
    return one


def _in_order(read: Mapping[str, Written], problems: list[SqlError]) -> list[str]:
    """The datasets, each after those that it reads."""
    order = {n: [r for r in w.reads if r in read] for n, w in read.items()}
    try:
        return list(TopologicalSorter(order).static_order())
    except CycleError as error:
        cycle = list(reversed(error.args[1]))
        first = read[cycle[0]]
        scan = next(s for s in first.scans if s.dataset in cycle)
        what = "a dataset reads itself" if len(set(cycle)) == 1 else "datasets read each other"
        problems.append(
            first.text.error(
                f"{what}: {' → '.join(cycle)}",
                scan.place,
                expected="each dataset to follow from others",
                next="take what both need into a dataset of its own",
            )
        )
        return []


def understood_dataset(
    one: Written,
    schemas: Mapping[str, Schema],
    given: Channel | None,
    functions: Mapping[str, str],
    partitions: Mapping[str, Sequence[str]] | None = None,
    recall: Recall | None = None,
) -> Dataset:
    """What a dataset comes to, given the schemas of what it reads.

    Args:
        given: how it is to be kept, if its author says.
        partitions: of what it reads, the partition columns, in small letters.
        recall: knows it, perhaps.

    Raises:
        SqlError: it cannot be understood.
    """
    columns = partitions or {}
    known = None if recall is None else recall.understood(one, schemas, columns)
    if known is None:
        known = _understood(one, schemas, functions, columns)
        if recall is not None:
            recall.keep_understood(one, schemas, columns, known)
    return Dataset(one, known.schema, _channel(one, known, given), known.query)


def _understood(
    one: Written,
    schemas: Mapping[str, Schema],
    functions: Mapping[str, str],
    partitions: Mapping[str, Sequence[str]],
) -> Understood:
    tables = tables_of(functions)
    query = understood(one.text, one.query, schemas, one.head.variable_types, tables)
    for n, select in enumerate(query.tree.selects, start=1):
        if is_unnamed(select):
            raise one.text.error(f"column {n} of what it gives has no name", select, next="give it one: ... AS name")
    gives = schema_of_query(query, {**tables, **{r: schemas[r] for r in query.reads}}, functions)
    types = one.head.column_types
    for column in types:
        if column.lower() in (n.lower() for n in gives.names):
            raise one.text.error(
                f"column {column!r} is given by PARTITION and by the query",
                None,
                next=f"leave {column} out of SELECT: every row of a scope has the same",
            )
    schema = Schema((*gives.fields, *(Field(c, parse_type(t)) for c, t in types.items())))
    _refuse_what_cannot_be_told(query, one, partitions)
    return Understood(schema, dimensions(one.head), lambda: query)


def _refuse_what_cannot_be_told(query: Query, one: Written, partitions: Mapping[str, Sequence[str]]) -> None:
    """Conditions on partitions are tried on one of each before anything is run."""
    some: dict[str, list[Partition]] = {n: [dict.fromkeys(partitions.get(n, ()))] for n in query.reads}
    try:
        needed(query, some, one.head.some_scope)
    except SqlError as error:
        if not error.of_values:
            raise


def _channel(one: Written, known: Understood, given: Channel | None) -> Channel:
    if given is not None:
        return given.redefined(known.schema, known.dimensions)
    return Channel(
        one.name,
        schema=known.schema,
        partitions=known.dimensions,
        description=one.description or None,
        owners=[one.owner] if one.owner else (),
    )


def _refuse(problems: Sequence[SqlError]) -> None:
    if len(problems) == 1:
        raise problems[0]
    if problems:
        said = [p.render().split("] ", 1)[1] for p in problems]
        raise DefinitionError.of(said, "the datasets are not sound")
