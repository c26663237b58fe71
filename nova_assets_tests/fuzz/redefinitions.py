"""Columns of a channel under a new definition."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from nova_assets_tests.fuzz.naive import Column
from nova_assets_tests.fuzz.scenario import widened

ACTIONS_THAT_RENAME_OR_DROP = ("drop", "rename", "rename and add", "swap", "shift", "replace")


def redefined_columns(
    action: str,
    now: tuple[Column, ...],
    free: Sequence[Column],
    chosen: Column | None,
    new_column: Column,
    declared: Collection[int],
) -> tuple[Column, ...]:
    """Columns after an action; the same columns if the action does not fit them.

    Args:
        free: columns that a definition may rename and drop.
        chosen: one of them.
        new_column: a column that the action adds, or whose name it gives to the chosen column.
        declared: identities of the columns that the present definition declares. Only these can be dropped.
    """
    if action == "add":
        return now if new_column.name in {c.name for c in now} else (*now, new_column)
    assert chosen is not None
    if action == "widen":
        return tuple((widened(c) or c) if c is chosen else c for c in now)
    if action == "drop":
        return tuple(c for c in now if c is not chosen or c.identity not in declared or len(free) < 2)
    if action == "rename":
        return _with_names(now, {chosen.identity: new_column.name})
    if action == "rename and add":
        return (*_with_names(now, {chosen.identity: new_column.name}), replace(new_column, name=chosen.name))
    at = free.index(chosen)
    others = [*free[at + 1 :], *free[:at]]
    if not others or (action == "replace" and others[0].identity not in declared):
        return now
    if action == "shift":  # each column gets the name of the next one, and the last one a new name
        names = [*(c.name for c in others), new_column.name]
        return _with_names(now, {c.identity: n for c, n in zip([chosen, *others], names, strict=True)})
    swapped = _with_names(now, {chosen.identity: others[0].name, others[0].identity: chosen.name})
    return swapped if action == "swap" else tuple(c for c in swapped if c.identity != others[0].identity)


def _with_names(columns: Sequence[Column], names: dict[int, str]) -> tuple[Column, ...]:
    return tuple(replace(c, name=names.get(c.identity, c.name)) for c in columns)
