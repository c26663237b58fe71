"""Edges: the ports that a task reads and writes, each with its mode (Nova 2.2).

Users write them as ``nova.all(c)``, ``nova.new(c)``, ``nova.delta(c)``, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nova_assets.errors import DefinitionError
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.block import Kind
from nova_assets.model.block_options import NO_OPTIONS, BlockFormat, BlockOptions, options_from_arguments
from nova_assets.model.channel import Channel
from nova_assets.model.merge import MergeModel
from nova_assets.model.names import check_name
from nova_assets.short_repr import short_repr

Lineage = Mapping[str, str | Sequence[str]]

Mode = Literal["all", "new", "old", "changes", "matching"]


@dataclass(frozen=True, slots=True)
class Consumes:
    """An edge from a port to a task.

    Args:
        port: name of the port.
        mode: ``all`` is the snapshot; ``new`` is the change since the last successful execution; ``old`` is the
            snapshot before that change; ``changes`` is all three as one ``View``; ``matching`` is ``all`` restricted to
            some keys.
        name: parameter of the task's function.
        channel: channel of the port, unless a binding chooses another one.
        keys_of: for ``matching``: the parameter whose keys are looked up.
        on: for ``matching``: the key columns; empty for the key of the channel.
        by_name: the port belongs to the project's channel of the same name, unless a binding chooses another one.
        has_cursor: for ``changes``: whether a cursor remembers what was read, and collection keeps the blocks after it.
            Otherwise, the change begins at the version that the last commit of the binding's partition read, as long
            as the blocks exist. A cursor of each partition would keep every block since the oldest one was computed.
        is_lazy: for ``all``: whether the function receives a function that loads the rows, in place of the frame.
    """

    __repr__ = short_repr

    port: str
    mode: Mode
    name: str
    channel: Channel | None = None
    keys_of: str | None = None
    on: tuple[str, ...] = ()
    by_name: bool = False
    has_cursor: bool = True
    is_lazy: bool = False

    @property
    def moves_cursor(self) -> bool:
        """Whether this edge has a cursor (R15: only ``new`` and ``old`` edges do)."""
        return self.mode in ("new", "old", "changes") and self.has_cursor


@dataclass(frozen=True, slots=True)
class Produces:
    """An edge from a task to a port, as a new ``base`` or as a ``delta``.

    Args:
        columns: output column -> its sources as ``input.column``, where the author declares them.
        options: merge model and file format of the blocks.
    """

    __repr__ = short_repr

    port: str
    kind: Kind
    channel: Channel | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    options: BlockOptions = NO_OPTIONS


@check_argument_types("nova.all")
def all(port: Channel | str, *, as_: str | None = None) -> Consumes:  # the paper's word
    """Input edge: the snapshot of the channel at the pinned head."""
    return _consumes_edge(port, "all", as_)


@check_argument_types("nova.new")
def new(port: Channel | str, *, as_: str | None = None) -> Consumes:
    """Input edge: the change since the last successful execution of this binding, as one delta (Nova 2.2)."""
    return _consumes_edge(port, "new", as_)


@check_argument_types("nova.old")
def old(port: Channel | str, *, as_: str | None = None) -> Consumes:
    """Input edge: the snapshot as of the last successful execution. Allowed only if the task also has ``new`` of the
    same channel (R8).
    """
    return _consumes_edge(port, "old", as_)


@check_argument_types("nova.changes")
def changes(port: Channel | str, *, as_: str | None = None) -> Consumes:
    """Input edge: a ``View`` of one channel. Its frames ``.new``, ``.old`` and ``.all`` share one pin."""
    return _consumes_edge(port, "changes", as_)


@check_argument_types("nova.matching")
def matching(
    port: Channel | str, *, keys_of: Channel | Consumes | str, on: str | Sequence[str] = (), as_: str | None = None
) -> Consumes:
    """Input edge: like ``all``, but only rows whose key occurs in another input of the same task.

    Args:
        port: the channel to look up.
        keys_of: the other input. Write its channel, its edge, or the name of its port or parameter.
        on: columns that are compared between the two inputs. By default, the key of the channel.
        as_: name of the task's parameter. By default, the name of the port.
    """
    edge = _consumes_edge(port, "matching", as_)
    other = keys_of.name if isinstance(keys_of, Channel | Consumes) else keys_of
    columns = (on,) if isinstance(on, str) else tuple(on)
    return Consumes(edge.port, "matching", edge.name, edge.channel, other, columns)


@check_argument_types("nova.base")
def base(port: Channel | str, *, columns: Lineage | None = None, format: BlockFormat | None = None) -> Produces:
    """Output edge: a new, full snapshot that replaces the previous content of the channel.

    Args:
        port: the channel to write.
        columns: declared lineage of the output columns, as for ``delta``.
        format: file format of the blocks, as for ``delta``.
    """
    return _produces_edge(port, "base", columns, options_from_arguments(None, format))


@check_argument_types("nova.delta")
def delta(
    port: Channel | str,
    *,
    columns: Lineage | None = None,
    merge: MergeModel | None = None,
    format: BlockFormat | None = None,
) -> Produces:
    """Output edge: rows and deletions that are merged into the existing content of the channel.

    Args:
        port: the channel to write.
        columns: output column -> one or several sources of its values. A source is written as ``"input.column"``:
            ``{"total": ["orders.price", "orders.pieces"]}``. Dagster shows the sources as column lineage. A column that
            is left out has no declared lineage.
        merge: merge model of these blocks (Nova 3.1). By default, and for all other blocks, the channel's model. Later
            blocks and readers see the merged rows: the change that such a block makes is read in the channel's model.
            It must have the same key as the channel's model.
        format: file format of these blocks: ``parquet`` (default), ``orc``, ``avro``, ``csv`` or ``json`` (one object
            per line). Compaction writes Parquet.
    """
    return _produces_edge(port, "delta", columns, options_from_arguments(merge, format))


def _consumes_edge(port: Channel | str, mode: Mode, as_: str | None) -> Consumes:
    name, channel = _port_name_and_channel(port)
    return Consumes(name, mode, check_name(as_, "a parameter (as_)") if as_ is not None else name, channel)


def _produces_edge(port: Channel | str, kind: Kind, columns: Lineage | None, options: BlockOptions) -> Produces:
    name, channel = _port_name_and_channel(port)
    sources_by_column = {c: (s,) if isinstance(s, str) else tuple(s) for c, s in (columns or {}).items()}
    return Produces(name, kind, channel, sources_by_column, options)


def _port_name_and_channel(port: Channel | str) -> tuple[str, Channel | None]:
    if isinstance(port, Channel):
        return port.name, port
    if isinstance(port, str):
        return check_name(port, "a port"), None
    raise DefinitionError("an edge leads nowhere", found=repr(port), expected="a nova.Channel or the name of a port")


def lineage_problems(edge: Produces, port_by_input: Mapping[str, str]) -> list[str]:
    """Problems of declared lineage sources that are not an ``input.column`` of the task.

    Args:
        edge: the edge with the declared lineage.
        port_by_input: parameter of the task -> its port.
    """
    return [
        f"port {edge.port!r} says that column {column!r} is made from {source!r}; "
        f"expected input.column, of {', '.join(port_by_input) or 'a task with inputs'}"
        for column, sources in edge.columns.items()
        for source in sources
        if source.partition(".")[0] not in port_by_input or not source.partition(".")[2]
    ]
