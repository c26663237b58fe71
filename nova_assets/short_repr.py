"""Short representations of public objects: at most two terminal lines, beginning with the name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any

MAX_LENGTH = 158
"""Number of characters on two lines."""

_MAX_VALUE_LENGTH = 44
_MAX_ITEMS = 3


def short_repr(self: Any) -> str:
    """Representation of a dataclass without its default values.

    Example: ``Channel('orders', merge=Upsert(id), schema=id bigint, …)``. Nested objects are shown by name, and long
    texts are truncated.
    """
    parts = [
        f"{'' if field.name == 'name' else field.name + '='}{_shorten_value(getattr(self, field.name))}"
        for field in fields(self)
        if field.repr and not _is_default(type(self), field.name, getattr(self, field.name))
    ]
    head = f"{type(self).__name__}("
    shown: list[str] = []
    for part in parts:
        if len(head) + sum(len(s) + 2 for s in shown) + len(part) > MAX_LENGTH - 4:
            shown.append("…")
            break
        shown.append(part)
    return head + ", ".join(shown) + ")"


def _is_default(cls: type, field_name: str, value: Any) -> bool:
    """Whether a value is empty or equals the constructor's default."""
    if value is None or (isinstance(value, str | Sequence | Mapping | Set) and not value):
        return True
    parameter = signature(cls).parameters.get(field_name)
    return parameter is not None and type(parameter.default) is type(value) and bool(parameter.default == value)


def _shorten_value(value: Any) -> str:
    if isinstance(value, Mapping):
        text = _first_items_text([f"{_value_as_text(k)}: {_value_as_text(v)}" for k, v in value.items()], "{", "}")
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        text = _first_items_text([_value_as_text(v) for v in value], "[", "]")
    else:
        text = _value_as_text(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 1] + "…"


def _first_items_text(items: list[str], opens: str, closes: str) -> str:
    more = [f"… {len(items) - _MAX_ITEMS} more"] if len(items) > _MAX_ITEMS else []
    return f"{opens}{', '.join([*items[:_MAX_ITEMS], *more])}{closes}"


def _value_as_text(value: Any) -> str:
    """Text of a nested value: its name, or its text for people."""
    name = getattr(value, "name", None)
    if is_dataclass(value) and isinstance(name, str):
        return repr(name)
    if is_dataclass(value) and type(value).__str__ is not object.__str__:
        return " ".join(str(value).split())
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return " ".join(repr(value).split())
