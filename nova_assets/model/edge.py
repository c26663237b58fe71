"""Edges: what a task reads and writes, and how (Nova 2.2). Written as ``nova.all(c)``, ``nova.new(c)``,
``nova.delta(c)``, ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nova_assets.errors import DefinitionError
from nova_assets.model.block import Kind
from nova_assets.model.channel import Channel
from nova_assets.model.names import check_name
from nova_assets.model.type_checks import check_argument_types
from nova_assets.short_repr import short_repr

Lineage = Mapping[str, str | Sequence[str]]

Mode = Literal["all", "new", "old", "changes", "matching"]


@dataclass(frozen=True, slots=True)
class Consumes:
    """An edge from a port to a task.

    Args:
        port: the port's name.
        mode: ``all`` the snapshot, ``new`` what came since the last successful execution, ``old`` the snapshot before
            that; ``changes`` is the three as one ``View``; ``matching`` is ``all`` restricted to some keys.
        name: the parameter of the task's function.
        channel: the channel that the port is bound to unless a binding says otherwise.
        keys_of: for ``matching``, the parameter whose keys are looked up.
        on: for ``matching``, the key columns; the channel's key when left out.
        by_name: the port is bound to the project's channel of that name, unless a binding says otherwise.
    """

    __repr__ = short_repr

    port: str
    mode: Mode
    name: str
    channel: Channel | None = None
    keys_of: str | None = None
    on: tuple[str, ...] = ()
    by_name: bool = False

    @property
    def moves_cursor(self) -> bool:
        """Whether this edge has a cursor (R15: only ``new`` and ``old`` edges have)."""
        return self.mode in ("new", "old", "changes")


@dataclass(frozen=True, slots=True)
class Produces:
    """An edge from a task to a port, as a new ``base`` or as a ``delta``.

    Args:
        columns: column -> the ``input.column``s that it is made from, where the author says so.
    """

    __repr__ = short_repr

    port: str
    kind: Kind
    channel: Channel | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


@check_argument_types("nova.all")
def all(port: Channel | str, *, as_: str | None = None) -> Consumes:  # the paper's word
    """The whole channel, as of the pinned head."""
    return _consumes_edge(port, "all", as_)


@check_argument_types("nova.new")
def new(port: Channel | str, *, as_: str | None = None) -> Consumes:
    """What has come since this binding's last successful execution, as one delta (Nova 2.2)."""
    return _consumes_edge(port, "new", as_)


@check_argument_types("nova.old")
def old(port: Channel | str, *, as_: str | None = None) -> Consumes:
    """The snapshot that the last successful execution saw. Legal only beside ``new`` on the same channel (R8)."""
    return _consumes_edge(port, "old", as_)


@check_argument_types("nova.changes")
def changes(port: Channel | str, *, as_: str | None = None) -> Consumes:
    """A ``View`` with ``.new``, ``.old`` and ``.all`` of one channel, under one pin."""
    return _consumes_edge(port, "changes", as_)


@check_argument_types("nova.matching")
def matching(
    port: Channel | str, *, keys_of: Channel | Consumes | str, on: str | Sequence[str] = (), as_: str | None = None
) -> Consumes:
    """``all``, restricted to the keys that occur in another input of the same task.

    Args:
        port: the channel that is looked up.
        keys_of: the other input: its channel, port or parameter.
        on: the key columns, where they are not the channel's key.
        as_: renames the parameter.
    """
    edge = _consumes_edge(port, "matching", as_)
    other = keys_of.name if isinstance(keys_of, Channel | Consumes) else keys_of
    columns = (on,) if isinstance(on, str) else tuple(on)
    return Consumes(edge.port, "matching", edge.name, edge.channel, other, columns)


@check_argument_types("nova.base")
def base(port: Channel | str, *, columns: Lineage | None = None) -> Produces:
    """A new, full snapshot that replaces what was there.

    Args:
        columns: as for ``delta``.
    """
    return _produces_edge(port, "base", columns)


@check_argument_types("nova.delta")
def delta(port: Channel | str, *, columns: Lineage | None = None) -> Produces:
    """Rows (or deletions) that augment what is there.

    Args:
        columns: column -> what it is made from, as ``"input.column"``, one or several: ``{"total": ["orders.price",
            "orders.pieces"]}``. Shown as column lineage; of columns that are left out nothing is said.
    """
    return _produces_edge(port, "delta", columns)


def _consumes_edge(port: Channel | str, mode: Mode, as_: str | None) -> Consumes:
    name, channel = _port_name_and_channel(port)
    return Consumes(name, mode, check_name(as_, "a parameter (as_)") if as_ is not None else name, channel)


def _produces_edge(port: Channel | str, kind: Kind, columns: Lineage | None) -> Produces:
    name, channel = _port_name_and_channel(port)
    sources_by_column = {c: (s,) if isinstance(s, str) else tuple(s) for c, s in (columns or {}).items()}
    return Produces(name, kind, channel, sources_by_column)


def _port_name_and_channel(port: Channel | str) -> tuple[str, Channel | None]:
    if isinstance(port, Channel):
        return port.name, port
    if isinstance(port, str):
        return check_name(port, "a port"), None
    raise DefinitionError("an edge leads nowhere", found=repr(port), expected="a nova.Channel or the name of a port")


def lineage_problems(edge: Produces, port_by_input: Mapping[str, str]) -> list[str]:
    """Sources that are no ``input.column`` of the task.

    Args:
        port_by_input: the task's parameters -> their ports.
    """
    return [
        f"port {edge.port!r} says that column {column!r} is made from {source!r}; "
        f"expected input.column, of {', '.join(port_by_input) or 'a task with inputs'}"
        for column, sources in edge.columns.items()
        for source in sources
        if source.partition(".")[0] not in port_by_input or not source.partition(".")[2]
    ]
