"""Type checks of arguments of public methods, before the method runs."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from nova_assets.errors import ArgumentRefused
from nova_assets.suggestions import did_you_mean

C = TypeVar("C", bound=type)

_MAX_LISTED_NAMES = 20
"""Maximum number of names listed in a message."""


def check_public_method_arguments(cls: C) -> C:
    """Class decorator: public methods, including inherited ones, reject arguments that contradict their annotations.

    Such a call raises ArgumentRefused, which names the method, the argument, its value and the expected types.
    Annotations other than plain types (protocols, callables, names that only type checkers import) accept every value.
    """
    for name, function in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_"):
            setattr(cls, name, _with_argument_checks(function))
    return cls


def _with_argument_checks(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    annotations: dict[str, Any] = {}

    @functools.wraps(function)
    def call_with_checks(*args: Any, **kwargs: Any) -> Any:
        if not annotations:
            annotations.update(
                {p.name: _resolve_annotation(p.annotation, function) for p in signature.parameters.values()}
            )
        for name, value in _bind_arguments(function.__name__, signature, args, kwargs).items():
            kind = signature.parameters[name].kind
            several = kind is inspect.Parameter.VAR_POSITIONAL
            for checked_value in value if several else () if kind is inspect.Parameter.VAR_KEYWORD else (value,):
                _check_argument(checked_value, annotations[name], name, function.__name__)
        return function(*args, **kwargs)

    return call_with_checks


def _bind_arguments(method: str, signature: inspect.Signature, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name. Raises TypeError like Python does, with the method's name."""
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        unknown = [k for k in kwargs if k not in signature.parameters]
        near = did_you_mean(unknown[0], signature.parameters) if unknown else ""
        raise TypeError(f"{method}() {error}{near}") from None


def _check_argument(value: Any, annotation: Any, argument: str, method: str) -> None:
    if not annotation_accepts(annotation, value):
        raise ArgumentRefused(
            f"{method}() takes no such {argument}=",
            found=f"{_format_value(value)} ({type(value).__name__})",
            expected=_describe_annotation(annotation)
            if _is_valid_if_text(value)
            else "Unicode text without null characters",
            argument=argument,
        )


def annotation_accepts(annotation: Any, value: Any) -> bool:
    """Whether a value conforms to an annotation, as far as the annotation is a plain type.

    Text must be Unicode without null characters.
    """
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(annotation_accepts(part, value) for part in inner)
    if origin is Literal:
        return any(value == part and type(value) is type(part) for part in inner)
    if annotation is None or annotation is type(None):
        return value is None
    if annotation is str:
        return isinstance(value, str) and _is_valid_if_text(value)
    if annotation in (int, float):
        numbers = int if annotation is int else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool) and abs(value) < 2**63
    if origin in (collections.abc.Sequence, collections.abc.Iterable, list, tuple) and inner:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return False
        return not isinstance(value, Sequence) or all(annotation_accepts(inner[0], v) for v in value)
    if origin is collections.abc.Mapping:
        return isinstance(value, Mapping)
    if isinstance(annotation, type) and not getattr(annotation, "_is_protocol", False):
        return isinstance(value, annotation)
    return True


def _is_valid_if_text(value: Any) -> bool:
    """Whether a value is either no text, or Unicode text without null characters."""
    if not isinstance(value, str):
        return True
    try:
        return b"\x00" not in value.encode()
    except UnicodeEncodeError:
        return False


def _resolve_annotation(annotation: Any, function: Callable[..., Any]) -> Any:
    """The annotation as an object; Any for names that only type checkers import."""
    if not isinstance(annotation, str):
        return Any if annotation is inspect.Parameter.empty else annotation
    try:
        return eval(annotation, vars(sys.modules[function.__module__]))  # only source of this package
    except NameError:
        return Any


def _describe_annotation(annotation: Any) -> str:
    """Readable text of an annotation."""
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " or ".join(_describe_annotation(part) for part in inner)
    if typing.get_origin(annotation) is Literal:
        return " or ".join(map(repr, inner[:_MAX_LISTED_NAMES]))
    if annotation in (None, type(None)):
        return "None"
    if typing.get_origin(annotation) is not None and inner:
        return f"a {typing.get_origin(annotation).__name__.lower()} of {_describe_annotation(inner[0])}"
    return {str: "text", int: "a whole number", float: "a number", bool: "True or False"}.get(
        annotation, getattr(annotation, "__name__", str(annotation))
    )


def _format_value(value: Any) -> str:
    try:
        text = ascii(value)
    except Exception:  # the repr may be user code
        return "a value without a repr"
    return text if len(text) <= 80 else text[:77] + "..."
