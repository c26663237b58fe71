"""Views: one channel in its three modes, under one pin."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from nova_assets.model.schema import Schema


class View:
    """One channel in all modes: ``.old`` is the snapshot at the cursor, ``.new`` is the change since the cursor, and
    ``.all`` is the snapshot at the pinned head.

    Frames are built on first access. ``all = old ⊕ new`` always holds, because the three modes share one pin.
    On a channel whose rows can be deleted, ``.before`` and ``.after`` are the changed rows only, as they were and as
    they are now.

    Args:
        all, new, old: load the rows of a mode.
        changed_rows: loads the rows of ``before`` or ``after``, with the columns that are necessary; None if rows can
            not be deleted.

    Attributes:
        has_run: whether the binding has read the channel before. Otherwise ``.old`` is empty.
        is_changed: whether ``.new`` may have rows.
        has_small_change: whether ``.new`` is known to have few rows.
        has_new_definition: whether the channel's columns or merge model may have changed since the binding read it.
        schema: columns of ``.all``; None if they are not known without its frame.
        reason_without_change: why the change is not known, so that all rows are new; empty if it is known. Only for an
            input without a cursor.
    """

    def __init__(
        self,
        all: Callable[[], Any],
        new: Callable[[], Any],
        old: Callable[[], Any],
        *,
        changed_rows: Callable[[str, Collection[str] | None], Any] | None = None,
        to_frame: Callable[[Any], Any] = lambda rows: rows,
        has_run: bool = True,
        is_changed: bool = True,
        has_small_change: bool = False,
        has_new_definition: bool = False,
        has_dropped_partitions: Callable[[], bool] = lambda: False,
        schema: Schema | None = None,
        reason_without_change: str = "",
        list_partitions: Callable[[str], frozenset[str]] = lambda mode: frozenset(),
    ) -> None:
        self.schema = schema
        self.reason_without_change = reason_without_change
        self.list_partitions = list_partitions
        self.has_run = has_run
        self.is_changed = is_changed
        self.has_small_change = has_small_change
        self.has_new_definition = has_new_definition
        self._build = {"all": all, "new": new, "old": old}
        self._changed_rows = changed_rows
        self._to_frame = to_frame
        self._has_dropped_partitions = has_dropped_partitions
        self._rows: dict[tuple[str, frozenset[str] | None], Any] = {}
        self._frames: dict[str, Any] = {}

    @classmethod
    def of(cls, *, all: Any = None, new: Any = None, old: Any = None, before: Any = None, after: Any = None) -> View:
        """Build a view from existing frames, so that a unit test can call a task that takes a view."""
        rows = {"before": before, "after": after}
        return cls(lambda: all, lambda: new, lambda: old, changed_rows=lambda mode, columns: rows[mode])

    @property
    def has_dropped_partitions(self) -> bool:
        """Whether a partition of the channel was ever dropped. Results keep the rows that came from it (R19)."""
        return self._has_dropped_partitions()

    def _frame(self, mode: str) -> Any:
        if mode not in self._frames:
            self._frames[mode] = self._to_frame(self.rows(mode))
        return self._frames[mode]

    def rows(self, mode: str, columns: Collection[str] | None = None) -> Any:
        """Rows of a mode: a table if they are in this process, otherwise a frame.

        Args:
            mode: such as ``new``, ``before`` or ``after``.
            columns: names of the necessary columns, in lower case, if the mode is ``before`` or ``after``; None for all
                columns. There may be others.
        """
        key = (mode, None if columns is None else frozenset(columns))
        if key not in self._rows:
            self._rows[key] = self._load(mode, columns)
        return self._rows[key]

    def _load(self, mode: str, columns: Collection[str] | None) -> Any:
        if mode in self._build:
            return self._build[mode]()
        assert self._changed_rows is not None
        return self._changed_rows(mode, columns)

    @property
    def all(self) -> Any:
        """The snapshot at the pinned head."""
        return self._frame("all")

    @property
    def new(self) -> Any:
        """The change between the cursor and the pinned head; with ``_deleted`` if rows can be deleted."""
        return self._frame("new")

    @property
    def old(self) -> Any:
        """The snapshot at the cursor; empty if the consumer has never run."""
        return self._frame("old")

    @property
    def before(self) -> Any:
        """The changed and deleted rows as they were at the cursor. Not on ``Append`` and ``Custom`` channels."""
        return self._frame("before")

    @property
    def after(self) -> Any:
        """The added and changed rows as they are at the pinned head, without deleted rows. Not on ``Append`` and
        ``Custom`` channels.
        """
        return self._frame("after")
