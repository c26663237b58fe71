"""Declarations of datasets (SQL texts, channels, functions) before analysis, and a recorder for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from nova_assets.model.channel import Channel
from nova_assets.nova_error import NovaError
from nova_assets.sql.datasets.disk_cache import DiskCache
from nova_assets.sql.datasets.graph import Graph
from nova_assets.sql.datasets.graph_builder import build_graph, parse_external_views, parse_statements_in_order
from nova_assets.sql.statement.dataset_statement import DatasetStatement
from nova_assets.sql.text import SqlText

CACHE_MIN_STATEMENTS = 100
"""Fewest statements for which the disk cache is used. Analysing fewer statements is faster than looking them up."""


@dataclass(frozen=True)
class DatasetDeclarations:
    """SQL statements, and the channels and functions on which they depend.

    Args:
        texts: one statement each.
        channels: channels that the statements read. A channel with the name of a dataset sets how that dataset is
            stored.
        function_types: return types of the user-defined functions, by function name.
    """

    texts: tuple[SqlText, ...] = ()
    channels: tuple[Channel, ...] = ()
    function_types: Mapping[str, str] = field(default_factory=dict)

    def to_graph(self) -> Graph:
        """The graph of all datasets. Raises SqlError, DefinitionError."""
        return build_graph(self.texts, self.channels, self.function_types, self._disk_cache)

    @property
    def _disk_cache(self) -> DiskCache | None:
        return DiskCache.default() if len(self.texts) >= CACHE_MIN_STATEMENTS else None

    @property
    def channels_with_views(self) -> tuple[Channel, ...]:
        """The declared channels, and the channels of external tables."""
        named = {c.name for c in self.channels}
        return (
            *self.channels,
            *(v.channel for v in parse_external_views(self.texts, self._disk_cache) if v.name not in named),
        )

    def ordered_statements(self) -> list[DatasetStatement]:
        """The statements, ordered so that each follows the datasets that it reads. Raises SqlError, DefinitionError."""
        return parse_statements_in_order(self.texts, self._disk_cache)

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
        """The declarations from which a graph was built."""
        kept = (d.channel for d in graph.datasets.values())
        others = (c for n, c in graph.channels.items() if n not in graph.views)
        texts = (*(d.statement.text for d in graph.datasets.values()), *(v.text for v in graph.views.values()))
        return DatasetDeclarations(texts, (*others, *kept), graph.function_types)

    @staticmethod
    def merge(declarations: Iterable[DatasetDeclarations]) -> DatasetDeclarations:
        """Combine several declarations. A dataset of one declaration that another reads as a channel counts as a
        dataset.
        """
        merged = list(declarations)
        channels = {c.name: c for d in merged for c in d.channels}
        functions = {n: t for d in merged for n, t in d.function_types.items()}
        return DatasetDeclarations(tuple(t for d in merged for t in d.texts), tuple(channels.values()), functions)


@dataclass
class DeclarationRecorder:
    """The declarations made within a ``with`` block, and the first error among them."""

    declarations: list[DatasetDeclarations] = field(default_factory=list)
    first_error: NovaError | None = None


_RECORDER: ContextVar[DeclarationRecorder | None] = ContextVar("nova_declared", default=None)


@contextmanager
def record_declarations() -> Iterator[DeclarationRecorder]:
    """Record all declarations made within the block. Declarations that cannot be analysed are recorded and do not
    raise, so that a breaking change can be compared with the datasets that it breaks.
    """
    recorder = DeclarationRecorder()
    token = _RECORDER.set(recorder)
    try:
        yield recorder
    finally:
        _RECORDER.reset(token)


def build_declared_graph(declarations: DatasetDeclarations) -> Graph:
    """The graph of some declarations. Within ``record_declarations``, an empty graph if they cannot be analysed.

    Raises:
        SqlError, DefinitionError: the declarations cannot be analysed, and no recorder is active.
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
    """The dataset declarations that a catalog holds.

    Args:
        registered_bindings: the bindings as registered, by name.
        channels: the registered channels.
        dataset_names: the datasets to return. Their upstream datasets are included, and datasets of other projects are
            left out.
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
