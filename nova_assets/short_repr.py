"""Short representations of public objects: at most two lines of a terminal, the name first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any

LONGEST = 158
"""Characters of two lines."""

_LONGEST_PART = 44
_SHOWN = 3


def short_repr(self: Any) -> str:
    """``Channel('orders', merge=Upsert(id), schema=id bigint, …)``: a dataclass, without what is at its default.

    Objects within are shown by their names, and long texts are cut.
    """
    parts = [
        f"{'' if field.name == 'name' else field.name + '='}{_part(getattr(self, field.name))}"
        for field in fields(self)
        if field.repr and not _is_default(type(self), field.name, getattr(self, field.name))
    ]
    head = f"{type(self).__name__}("
    shown: list[str] = []
    for part in parts:
        if len(head) + sum(len(s) + 2 for s in shown) + len(part) > LONGEST - 4:
            shown.append("…")
            break
        shown.append(part)
    return head + ", ".join(shown) + ")"


def _is_default(kind: type, name: str, value: Any) -> bool:
    """Whether a value says nothing: it is empty, or what the constructor takes by default."""
    if value is None or (isinstance(value, str | Sequence | Mapping | Set) and not value):
        return True
    parameter = signature(kind).parameters.get(name)
    return parameter is not None and type(parameter.default) is type(value) and bool(parameter.default == value)


def _part(value: Any) -> str:
    if isinstance(value, Mapping):
        text = _some([f"{_name(k)}: {_name(v)}" for k, v in value.items()], "{", "}")
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        text = _some([_name(v) for v in value], "[", "]")
    else:
        text = _name(value)
    return text if len(text) <= _LONGEST_PART else text[: _LONGEST_PART - 1] + "…"


def _some(parts: list[str], opens: str, closes: str) -> str:
    more = [f"… {len(parts) - _SHOWN} more"] if len(parts) > _SHOWN else []
    return f"{opens}{', '.join([*parts[:_SHOWN], *more])}{closes}"


def _name(value: Any) -> str:
    """An object within another: by its name, or in the words that it has for people."""
    name = getattr(value, "name", None)
    if is_dataclass(value) and isinstance(name, str):
        return repr(name)
    if is_dataclass(value) and type(value).__str__ is not object.__str__:
        return " ".join(str(value).split())
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return " ".join(repr(value).split())
