"""Errors that name the field of a component's YAML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dagster.components.resolved.context import ResolutionContext

from nova_assets.errors import DefinitionError
from nova_assets.nova_error import NovaError


class FieldError(DefinitionError):
    """A definition error of a component. ``path`` leads to the field of the attributes that causes it."""


@contextmanager
def in_field(*path: str | int) -> Iterator[None]:
    """Attribute the nova errors of the block to a field."""
    try:
        yield
    except NovaError as error:
        inner_path = error.path if isinstance(error, FieldError) else ()
        raise FieldError(
            error.what, found=error.found, expected=error.expected, next=error.next, path=(*path, *inner_path)
        ) from None


@contextmanager
def in_yaml(context: ResolutionContext) -> Iterator[None]:
    """Add the file, the line and the field to the field errors of the block."""
    try:
        yield
    except FieldError as error:
        tree = context.source_position_tree
        if tree is None:
            raise
        path = [*context.path, *error.path]
        position, _ = tree.lookup_closest_and_path(path, None)
        raise DefinitionError(
            f"{position.filename}:{position.start.line}: {_format_path(path)}: {error.what}",
            found=error.found,
            expected=error.expected,
            next=error.next,
        ) from None


def _format_path(path: Sequence[str | int]) -> str:
    """``attributes.partitions[0].start``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
