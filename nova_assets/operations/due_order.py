"""Which bindings are looked at, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nova_assets.model.binding import Binding
from nova_assets.model.project import Project


def select_bindings(project: Project, select: Sequence[str]) -> list[Binding]:
    """Bindings of a project by their names; all of them if no name is given.

    Args:
        select: names; ``name+`` selects the bindings that read its outputs, too, directly or through other bindings.

    Raises:
        BindingNotFound: the project has no such binding.
    """
    selected: list[Binding] = [] if select else list(project.bindings)
    for text in select:
        selected.append(project.binding(text.removesuffix("+")))
        if text.endswith("+"):
            _add_readers(project, selected)
    return list(dict.fromkeys(selected))


def _add_readers(project: Project, selected: list[Binding]) -> None:
    """Add the bindings that read outputs of the last selected binding, and the readers of their outputs."""
    reached = [selected[-1]]
    for binding in reached:
        written = {c.name for c in binding.writes}
        reached += [b for b in project.bindings if b not in reached and written & {c.name for c in b.reads}]
    selected += reached


def in_order_of_channels(bindings: Iterable[Binding]) -> list[Binding]:
    """Bindings, each after those whose outputs it reads. Bindings of a cycle keep their order."""
    remaining, ordered = list(bindings), list[Binding]()
    while remaining:
        written = {c.name for b in remaining for c in b.writes}
        free = [b for b in remaining if not written & ({c.name for c in b.reads} - {c.name for c in b.writes})]
        chosen = free or remaining[:1]
        ordered += chosen
        remaining = [b for b in remaining if b not in chosen]
    return ordered
