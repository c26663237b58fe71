"""What datasets are made of, before it is known whether they can be understood: texts, channels and functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from nova_assets.model.channel import Channel
from nova_assets.nova_error import NovaError
from nova_assets.sql.cache.disk_cache import DiskCache
from nova_assets.sql.datasets.graph import Graph
from nova_assets.sql.datasets.graph_builder import build_graph, external_views_in, statements_in_order
from nova_assets.sql.statement.statement import DatasetStatement
from nova_assets.sql.text import SqlText

CACHE_MIN_STATEMENTS = 100
"""Statements of which it is kept what was found out; of fewer it is found out sooner than looked up."""


@dataclass(frozen=True)
class DatasetDeclarations:
    """Statements, and what they count on.

    Args:
        texts: a statement each.
        channels: that they read; or, under the name of a dataset, how it is kept.
        function_types: user-defined functions, by name, with the types that they give.
    """

    texts: tuple[SqlText, ...] = ()
    channels: tuple[Channel, ...] = ()
    function_types: Mapping[str, str] = field(default_factory=dict)

    def to_graph(self) -> Graph:
        """Them all, understood. Raises SqlError, DefinitionError."""
        return build_graph(self.texts, self.channels, self.function_types, self._disk_cache)

    @property
    def _disk_cache(self) -> DiskCache | None:
        return DiskCache.default() if len(self.texts) >= CACHE_MIN_STATEMENTS else None

    @property
    def channels_with_views(self) -> tuple[Channel, ...]:
        """The channels, and those that are views of external tables."""
        named = {c.name for c in self.channels}
        return (
            *self.channels,
            *(v.channel for v in external_views_in(self.texts, self._disk_cache) if v.name not in named),
        )

    def ordered_statements(self) -> list[DatasetStatement]:
        """The statements, each after those that it reads. Raises SqlError, DefinitionError."""
        return statements_in_order(self.texts, self._disk_cache)

    def as_json(self) -> dict[str, Any]:
        return {
            "texts": [{"file": t.name, "sql": t.sql} for t in self.texts],
            "channels": [c.as_json() for c in self.channels],
            "functions": dict(self.function_types),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> DatasetDeclarations:
        texts = tuple(SqlText(t["file"], t["sql"]) for t in data["texts"])
        return DatasetDeclarations(texts, tuple(map(Channel.from_json, data["channels"])), data["functions"])

    @staticmethod
    def from_graph(graph: Graph) -> DatasetDeclarations:
        """What a graph was made of."""
        kept = (d.channel for d in graph.datasets.values())
        others = (c for n, c in graph.channels.items() if n not in graph.views)
        texts = (*(d.statement.text for d in graph.datasets.values()), *(v.text for v in graph.views.values()))
        return DatasetDeclarations(texts, (*others, *kept), graph.function_types)

    @staticmethod
    def merge(declarations: Iterable[DatasetDeclarations]) -> DatasetDeclarations:
        """Several as one. A dataset of one that another reads as a channel is a dataset."""
        found = list(declarations)
        channels = {c.name: c for d in found for c in d.channels}
        functions = {n: t for d in found for n, t in d.function_types.items()}
        return DatasetDeclarations(tuple(t for d in found for t in d.texts), tuple(channels.values()), functions)


@dataclass
class DeclarationRecorder:
    """What was declared in a block, and the first thing that was wrong with it."""

    declarations: list[DatasetDeclarations] = field(default_factory=list)
    first_error: NovaError | None = None


_RECORDER: ContextVar[DeclarationRecorder | None] = ContextVar("nova_declared", default=None)


@contextmanager
def record_declarations() -> Iterator[DeclarationRecorder]:
    """Hear of everything that is declared in a block. What cannot be understood is kept, and does not stop it: a change
    that breaks something is compared with what it breaks."""
    recorder = DeclarationRecorder()
    token = _RECORDER.set(recorder)
    try:
        yield recorder
    finally:
        _RECORDER.reset(token)


def build_declared_graph(declarations: DatasetDeclarations) -> Graph:
    """The graph of what is declared; an empty one where somebody listens and it cannot be understood.

    Raises:
        SqlError, DefinitionError: it cannot, and nobody listens.
    """
    recorder = _RECORDER.get()
    if recorder is None:
        return declarations.to_graph()
    recorder.declarations.append(declarations)
    try:
        return declarations.to_graph()
    except NovaError as error:
        recorder.first_error = recorder.first_error or error
        return Graph()


def deployed_declarations(
    registered_bindings: Mapping[str, Mapping[str, Any]], channels: Sequence[Channel], dataset_names: Collection[str]
) -> DatasetDeclarations:
    """What a catalog knows of datasets.

    Args:
        registered_bindings: as they are registered.
        channels: the same.
        dataset_names: the datasets that are asked for, and what they read. Others, of other projects, are left out,
            but for those that these are made of.
    """
    queries = {name: task["query"] for name, b in registered_bindings.items() for task in b["tasks"] if "query" in task}
    reads = {name: [c for port, c in registered_bindings[name]["channels"].items() if port != name] for name in queries}
    pending_names, found_names = list(dataset_names), dict[str, None]()
    while pending_names:
        name = pending_names.pop()
        if name in queries and name not in found_names:
            found_names[name] = None
            pending_names += reads[name]
    return DatasetDeclarations(
        tuple(SqlText(queries[n]["file"], queries[n]["sql"]) for n in found_names),
        tuple(c for c in channels if c.name not in found_names),
        {f: t for n in found_names for f, t in queries[n].get("functions", {}).items()},
    )
