"""Type checks of the arguments of definitions, by their annotations.

A wrong type raises a ``DefinitionError`` that names the argument, instead of an ``AttributeError`` from the inside.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from nova_assets.errors import DefinitionError
from nova_assets.renamed import check_arguments_not_renamed

P = ParamSpec("P")
R = TypeVar("R")

_SCALARS = (str, int, float, bool, bytes, type(None))


def check_argument_types(public_name: str, **hint_by_argument: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator that checks the arguments of a function or constructor before the call.

    Texts and numbers are not checked before the call, because the function's own message is more specific. They are
    checked if the function fails on them.

    Args:
        public_name: name of the function for users.
        hint_by_argument: argument -> how to create a valid value.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call_with_checks(*args: P.args, **kwargs: P.kwargs) -> R:
            check_arguments_not_renamed(public_name, kwargs)
            _check_arguments(function, public_name, hint_by_argument, args, kwargs, check_scalars=False)
            try:
                return function(*args, **kwargs)
            except (TypeError, AttributeError, ValueError):
                _check_arguments(function, public_name, hint_by_argument, args, kwargs, check_scalars=True)
                raise

        return call_with_checks

    return decorate


def _check_arguments(
    function: Callable[..., Any],
    public_name: str,
    hint_by_argument: Mapping[str, str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    check_scalars: bool,
) -> None:
    signature = _signature(function)
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError:  # too few or too many arguments: Python reports them
        return
    parameters = signature.parameters
    for name, annotation in _parameter_types(function).items():
        if name not in arguments:
            continue
        is_variadic = parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        for value in arguments[name] if is_variadic else (arguments[name],):
            if isinstance(value, _SCALARS) and _allows_scalar(annotation) and not check_scalars:
                continue
            mismatch = _describe_mismatch(value, annotation)
            if mismatch:
                hint = f": {hint_by_argument[name]}" if name in hint_by_argument else ""
                raise DefinitionError(
                    f"{name} of {public_name}: {mismatch[0]}",
                    found=mismatch[0],
                    expected=describe_annotation(annotation) + hint,
                    argument=name,
                )


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


@cache
def _parameter_types(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Annotations of the parameters, without names that only type checkers import."""
    raw = {n: a for n, a in function.__annotations__.items() if n != "return"}
    type_by_parameter: dict[str, Any] = {}
    for name, annotation in raw.items():
        single_annotation = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            type_by_parameter |= get_type_hints(single_annotation, function.__globals__)
        except (NameError, AttributeError):
            continue
    return type_by_parameter


def _allows_scalar(annotation: Any) -> bool:
    """Whether an annotation allows a text or a number."""
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_allows_scalar(a) for a in get_args(annotation) if a is not type(None))
    return annotation in _SCALARS or get_origin(annotation) is Literal


def _describe_mismatch(value: Any, annotation: Any) -> list[str]:
    """Text of the part of a value that an annotation does not allow, as a list; empty for a valid value."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation is Any or isinstance(annotation, TypeVar) or origin is Literal:
        return []
    if origin in (Union, types.UnionType):
        found = [_describe_mismatch(value, a) for a in inner]
        return [] if not all(found) else min(found, key=lambda words: words[0] == describe_value(value))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return [describe_value(value)]
        parts = [
            p for k, v in value.items() for p in (*_describe_mismatch(k, inner[0]), *_describe_mismatch(v, inner[1]))
        ]
        return parts[:1]
    if origin is not None and isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset):
        if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__") or isinstance(value, type):
            return [describe_value(value)]
        return [p for v in value for p in _describe_mismatch(v, inner[0])][:1]
    if origin is not None and not isinstance(origin, type):
        return []
    kind = origin or annotation
    if kind is Callable or not isinstance(kind, type):
        return []
    allowed = (int, float) if kind is float else kind
    return [] if isinstance(value, allowed) else [describe_value(value)]


def describe_value(value: Any) -> str:
    """Short text of a value: ``a Workflowette 'w'``, ``5``."""
    if isinstance(value, _SCALARS):
        return repr(value)[:80]
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"the function {value.__qualname__}"
    name = getattr(value, "name", None)
    return f"a {type(value).__name__}" + (f" {name!r}" if isinstance(name, str) else "")


def describe_annotation(annotation: Any) -> str:
    """Text of an annotation: ``a list of Binding``."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(describe_annotation(a) for a in inner)
    if origin is Literal:
        return ", ".join(map(repr, inner))
    if annotation is type(None):
        return "None"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping of {describe_annotation(inner[0])} to {describe_annotation(inner[1])}"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Sequence):
        return f"a list of {describe_annotation(inner[0])}"
    plain = {str: "text", int: "a whole number", float: "a number"}
    return plain[annotation] if annotation in plain else str(getattr(annotation, "__name__", annotation))
