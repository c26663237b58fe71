"""JSON form of the model's dataclasses: catalogs store it, services send it, and commands print it.

The fields of a dataclass are the keys of its form. The metadata of a field says where the two differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from operator import methodcaller
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

NOT_IN_JSON: Mapping[str, Any] = {"json_omit": True}
"""Metadata of a field that is not in the form. Reading gives it its default."""


def json_key(name: str | None = None, *, omit_default: bool = False, digits: int | None = None) -> Mapping[str, Any]:
    """Metadata of a field that the form shows in another way.

    Args:
        name: the key; None for the name of the field.
        omit_default: whether the key is left out if the value is the default of the field.
        digits: number of decimal places to which the value is rounded; None for all.
    """
    return {"json_key": name, "json_omit_default": omit_default, "json_digits": digits}


class JsonForm:
    """Base class of dataclasses with a JSON form.

    A class whose form is not an object of its fields overrides both methods. The forms of objects that contain it
    follow.
    """

    __slots__ = ()

    _json_properties: ClassVar[tuple[str, ...]] = ()
    """Properties that the form shows beside the fields. Reading ignores them."""

    def as_json(self) -> Any:
        """The form, of dicts, lists and plain values. Catalogs hold it, so a change of it needs a migration."""
        cls: Any = type(self)
        return _writer(cls)(self)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """The object that a form describes. What was checked when it was written is not checked again, except the
        types of plain values, since a form may come from the network."""
        form_class: Any = cls
        found: Self = _reader(form_class)(data, form_class)
        return found


def register_form(type_: Any, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
    """Set the form of fields of a type that is not a dataclass, or that is not written like one."""
    _CONVERTER.register_unstructure_hook_func(lambda t: t == type_, write)
    _CONVERTER.register_structure_hook_func(lambda t: t == type_, lambda value, _: read(value))


def _is_plain_tuple(type_: Any) -> bool:
    """Whether a type is a tuple of any length of values that are their own form."""
    return get_origin(type_) is tuple and get_args(type_) in {(t, ...) for t in (str, int, Any)}


def _read_plain_tuple(value: Any, _: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):  # a text would become its letters
        raise TypeError(f"{value!r} is no list")
    return tuple(value)


def _is_form(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, JsonForm)


def _read_plain_value(value: Any, type_: type) -> Any:
    if not isinstance(value, (int, float) if type_ is float else type_):
        raise TypeError(f"{value!r} is not {type_.__name__}")
    return value


_CONVERTER = Converter(
    detailed_validation=False, unstruct_collection_overrides={tuple: list, Sequence: list, Mapping: dict}
)
for _plain_type in (str, int, float, bool):  # cattrs would convert values, such as None to the text "None"
    _CONVERTER.register_structure_hook(_plain_type, _read_plain_value)
_CONVERTER.register_unstructure_hook(datetime, lambda time: time.isoformat().replace("+00:00", "Z"))
_CONVERTER.register_structure_hook(datetime, lambda text, _: datetime.fromisoformat(text))
_CONVERTER.register_unstructure_hook_func(_is_plain_tuple, list)
_CONVERTER.register_structure_hook_func(_is_plain_tuple, _read_plain_tuple)


@_CONVERTER.register_unstructure_hook_factory(_is_form)
def _nested_writer(cls: Any) -> Callable[[Any], Any]:
    return _writer(cls) if cls.as_json is JsonForm.as_json else methodcaller("as_json")


@_CONVERTER.register_structure_hook_factory(_is_form)
def _nested_reader(cls: Any) -> Callable[[Any, Any], Any]:
    is_generic = cls.from_json.__func__ is JsonForm.from_json.__func__  # type: ignore[attr-defined]
    return _reader(cls) if is_generic else lambda data, _: cls.from_json(data)


@cache
def _writer(cls: Any) -> Callable[[Any], dict[str, Any]]:
    write: Callable[[Any], dict[str, Any]] = make_dict_unstructure_fn(cls, _CONVERTER, **_overrides(cls))
    names: tuple[str, ...] = cls._json_properties
    return (lambda value: write(value) | {n: getattr(value, n) for n in names}) if names else write


@cache
def _reader(cls: Any) -> Callable[[Any, Any], Any]:
    if cls.__dataclass_params__.init:
        return make_dict_structure_fn(cls, _CONVERTER, **_overrides(cls))
    return _reader_without_constructor(cls)


def _reader_without_constructor(cls: Any) -> Callable[[Any, Any], Any]:
    """Reader of a class whose own constructor takes what users write, and checks it."""
    hints = get_type_hints(cls)
    stored = [f for f in dataclasses.fields(cls) if not f.metadata.get("json_omit")]
    key_by_field = {f.name: f.metadata.get("json_key") or f.name for f in stored}
    hooks = {name: _CONVERTER.get_structure_hook(hints[name]) for name in key_by_field}

    def read(data: Mapping[str, Any], _: Any) -> Any:
        instance = object.__new__(cls)
        for f in dataclasses.fields(cls):
            key = key_by_field.get(f.name)
            if key is not None and (key in data or _has_no_default(f)):
                value = hooks[f.name](data[key], hints[f.name])
            else:
                value = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
            object.__setattr__(instance, f.name, value)
        return instance

    return read


def _has_no_default(f: dataclasses.Field[Any]) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


def _overrides(cls: type) -> dict[str, Any]:
    return {
        f.name: override(
            rename=f.metadata.get("json_key"),
            omit=f.metadata.get("json_omit"),
            omit_if_default=f.metadata.get("json_omit_default"),
            unstruct_hook=_rounding(f.metadata.get("json_digits")),
        )
        for f in dataclasses.fields(cls)
    }


def _rounding(digits: int | None) -> Callable[[float | None], float | None] | None:
    return None if digits is None else lambda value: None if value is None else round(value, digits)
