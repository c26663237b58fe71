"""What datasets are made of, before it is known whether they can be understood: texts, channels and functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from nova_assets.errors import NovaError
from nova_assets.model.channel import Channel
from nova_assets.sql.cache.disk_cache import Shelf
from nova_assets.sql.datasets.graph import Graph
from nova_assets.sql.datasets.graph_builder import graph, in_order, views_of
from nova_assets.sql.statement.statement import Written
from nova_assets.sql.text import Text

MANY = 100
"""Statements of which it is kept what was found out; of fewer it is found out sooner than looked up."""


@dataclass(frozen=True)
class Declared:
    """Statements, and what they count on.

    Args:
        texts: a statement each.
        channels: that they read; or, under the name of a dataset, how it is kept.
        functions: user-defined functions, by name, with the types that they give.
    """

    texts: tuple[Text, ...] = ()
    channels: tuple[Channel, ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)

    def graph(self) -> Graph:
        """Them all, understood. Raises SqlError, DefinitionError."""
        return graph(self.texts, self.channels, self.functions, self._shelf)

    @property
    def _shelf(self) -> Shelf | None:
        return Shelf.default() if len(self.texts) >= MANY else None

    @property
    def others(self) -> tuple[Channel, ...]:
        """The channels, and those that are views of external tables."""
        named = {c.name for c in self.channels}
        return (*self.channels, *(v.channel for v in views_of(self.texts, self._shelf) if v.name not in named))

    def in_order(self) -> list[Written]:
        """The statements, each after those that it reads. Raises SqlError, DefinitionError."""
        return in_order(self.texts, self._shelf)

    def as_json(self) -> dict[str, Any]:
        return {
            "texts": [{"file": t.name, "sql": t.sql} for t in self.texts],
            "channels": [c.as_json() for c in self.channels],
            "functions": dict(self.functions),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Declared:
        texts = tuple(Text(t["file"], t["sql"]) for t in data["texts"])
        return Declared(texts, tuple(map(Channel.from_json, data["channels"])), data["functions"])

    @staticmethod
    def of(graph: Graph) -> Declared:
        """What a graph was made of."""
        kept = (d.channel for d in graph.datasets.values())
        others = (c for n, c in graph.channels.items() if n not in graph.views)
        texts = (*(d.written.text for d in graph.datasets.values()), *(v.text for v in graph.views.values()))
        return Declared(texts, (*others, *kept), graph.functions)

    @staticmethod
    def together(some: Iterable[Declared]) -> Declared:
        """Several as one. A dataset of one that another reads as a channel is a dataset."""
        found = list(some)
        channels = {c.name: c for d in found for c in d.channels}
        functions = {n: t for d in found for n, t in d.functions.items()}
        return Declared(tuple(t for d in found for t in d.texts), tuple(channels.values()), functions)


@dataclass
class Heard:
    """What was declared in a block, and the first thing that was wrong with it."""

    declared: list[Declared] = field(default_factory=list)
    error: NovaError | None = None


_HEARD: ContextVar[Heard | None] = ContextVar("nova_declared", default=None)


@contextmanager
def listening() -> Iterator[Heard]:
    """Hear of everything that is declared in a block. What cannot be understood is kept, and does not stop it: a change
    that breaks something is compared with what it breaks."""
    heard = Heard()
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)


def understand(declared: Declared) -> Graph:
    """The graph of what is declared; an empty one where somebody listens and it cannot be understood.

    Raises:
        SqlError, DefinitionError: it cannot, and nobody listens.
    """
    heard = _HEARD.get()
    if heard is None:
        return declared.graph()
    heard.declared.append(declared)
    try:
        return declared.graph()
    except NovaError as error:
        heard.error = heard.error or error
        return Graph()


def deployed(
    bindings: Mapping[str, Mapping[str, Any]], channels: Sequence[Channel], named: Collection[str]
) -> Declared:
    """What a catalog knows of datasets.

    Args:
        bindings: as they are registered.
        channels: the same.
        named: the datasets that are asked for, and what they read. Others, of other projects, are left out, but for
            those that these are made of.
    """
    queries = {name: task["query"] for name, b in bindings.items() for task in b["tasks"] if "query" in task}
    reads = {name: [c for port, c in bindings[name]["channels"].items() if port != name] for name in queries}
    wanted, found = list(named), dict[str, None]()
    while wanted:
        name = wanted.pop()
        if name in queries and name not in found:
            found[name] = None
            wanted += reads[name]
    return Declared(
        tuple(Text(queries[n]["file"], queries[n]["sql"]) for n in found),
        tuple(c for c in channels if c.name not in found),
        {f: t for n in found for f, t in queries[n].get("functions", {}).items()},
    )
