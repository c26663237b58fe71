"""Columns of a dataset that change with its next base: what this means for its readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from nova_assets.cli.rendering import print_lines
from nova_assets.model.binding import Binding
from nova_assets.model.channel_registration import ColumnsByBase
from nova_assets.model.project import Project


def columns_by_base_json(name: str, columns: ColumnsByBase, project: Project) -> dict[str, Any]:
    """JSON form of changed columns: ``{"dropped": [name], "added": [{"name", "type"}], "readers": [binding]}``."""
    return {
        "dropped": list(columns.dropped),
        "added": [{"name": f.name, "type": str(f.type)} for f in columns.added],
        "readers": [b.name for b in _readers(project, name)],
    }


def show_columns_by_base(console: Console, by_base: Mapping[str, ColumnsByBase], project: Project) -> None:
    """Print for each dataset which columns change, and what its readers get."""
    for name, columns in by_base.items():
        dropped, added = ", ".join(columns.dropped), ", ".join(map(str, columns.added))
        changes = [f"{dropped} ends" if dropped else "", f"{added} begins" if added else ""]
        renamed = [
            f"{f.name} becomes {new}"
            for f in columns.present.fields
            if (new := columns.next.name_of_field(f)) not in (None, f.name)
        ]
        lines = [
            f"{name}: {'; '.join([*renamed, *filter(None, changes)])}. The next execution computes all rows, and "
            "replaces the stored rows by a base. Until then, the present columns hold.",
            *(f"  {binding.name} {_effect_on(binding, name)}" for binding in _readers(project, name)),
            f"  store.read({name!r}, since=...) gets the difference in the new columns: rows from before lack the "
            "ended columns, and have null in those that begin",
        ]
        print_lines(console, lines)


def _readers(project: Project, channel: str) -> Sequence[Binding]:
    return [b for b in project.bindings if channel in {c.name for c in b.reads} - {c.name for c in b.writes}]


def _effect_on(binding: Binding, channel: str) -> str:
    if binding.is_maintained:
        return "computes its whole query once"
    modes = {
        e.mode
        for t in binding.tasks
        for e in t.consumes
        if binding.channels.get(e.port, None) is not None and binding.channels[e.port].name == channel
    }
    return "gets the difference, as one change" if modes & {"new", "changes"} else "reads the new columns"
