"""Type checks of arguments by their annotations, before a public function runs.

A wrong type raises an error that names the argument, instead of an ``AttributeError`` from the inside. Definitions
raise ``DefinitionError``. Methods raise ``ArgumentRefused``, and also check texts and numbers.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, wraps
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from nova_assets.errors import ArgumentRefused, DefinitionError
from nova_assets.renamed import check_arguments_not_renamed
from nova_assets.suggestions import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_SCALARS = (str, int, float, bool, bytes, type(None))

_MAX_LISTED_NAMES = 20
"""Maximum number of values of a literal that a message lists."""

_TYPE_TEXTS = {str: "text", int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}


def check_argument_types(public_name: str, **hint_by_argument: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator that checks the arguments of the function or constructor of a definition before the call.

    Texts and numbers are not checked before the call, because the function's own message is more specific. They are
    checked if the function fails on them.

    Args:
        public_name: name of the function for users.
        hint_by_argument: argument -> how to create a valid value.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        def check(args: tuple[Any, ...], kwargs: Mapping[str, Any], check_scalars: bool) -> None:
            try:
                arguments = _signature(function).bind(*args, **kwargs).arguments
            except TypeError:  # too few or too many arguments: Python reports them
                return
            for name, annotation, value in _typed_values(function, arguments):
                if isinstance(value, _SCALARS) and _allows_scalar(annotation) and not check_scalars:
                    continue
                for part in _mismatches(value, annotation, is_strict=False):
                    hint = f": {hint_by_argument[name]}" if name in hint_by_argument else ""
                    raise DefinitionError(
                        f"{name} of {public_name}: {_describe_value(part)}",
                        found=_describe_value(part),
                        expected=describe_annotation(annotation) + hint,
                        argument=name,
                    )

        @wraps(function)
        def call_with_checks(*args: P.args, **kwargs: P.kwargs) -> R:
            check_arguments_not_renamed(public_name, kwargs)
            check(args, kwargs, check_scalars=False)
            try:
                return function(*args, **kwargs)
            except (TypeError, AttributeError, ValueError):
                check(args, kwargs, check_scalars=True)
                raise

        return call_with_checks

    return decorate


def check_public_method_arguments(cls: C) -> C:
    """Class decorator: public methods, including inherited ones, reject arguments that contradict their annotations.

    Such a call raises ArgumentRefused, which names the method, the argument, its value and the expected types.
    Annotations other than plain types (protocols, callables, names that only type checkers import) accept every value.
    Text must be Unicode without null characters, a number must fit into 64 bits.
    """
    for name, function in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_"):
            setattr(cls, name, _with_strict_checks(function))
    return cls


def _with_strict_checks(function: Callable[..., Any]) -> Callable[..., Any]:
    method, signature = function.__name__, _signature(function)

    @wraps(function)
    def call_with_checks(*args: Any, **kwargs: Any) -> Any:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            unknown = [k for k in kwargs if k not in signature.parameters]
            near = did_you_mean(unknown[0], signature.parameters) if unknown else ""
            raise TypeError(f"{method}() {error}{near}") from None
        for name, annotation, value in _typed_values(function, arguments):
            if any(True for _ in _mismatches(value, annotation, is_strict=True)):
                raise ArgumentRefused(
                    f"{method}() takes no such {name}=",
                    found=f"{_format_value(value)} ({type(value).__name__})",
                    expected=describe_annotation(annotation)
                    if _is_valid_if_text(value)
                    else "Unicode text without null characters",
                    argument=name,
                )
        return function(*args, **kwargs)

    return call_with_checks


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


@cache
def _parameter_types(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Annotations of the parameters, without names that only type checkers import."""
    type_by_parameter: dict[str, Any] = {}
    names = vars(sys.modules[function.__module__])  # a wrapper has the globals of another module
    for name, annotation in function.__annotations__.items():
        single_annotation = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            type_by_parameter |= get_type_hints(single_annotation, names)
        except (NameError, AttributeError):
            continue
    return type_by_parameter


def _typed_values(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, annotation and value of each argument that has an annotation; each value of ``*args``."""
    annotations = _parameter_types(function)
    for name, argument in arguments.items():
        kind = _signature(function).parameters[name].kind
        if name in annotations and kind is not inspect.Parameter.VAR_KEYWORD:
            for value in argument if kind is inspect.Parameter.VAR_POSITIONAL else (argument,):
                yield name, annotations[name], value


def _allows_scalar(annotation: Any) -> bool:
    """Whether an annotation allows a text or a number."""
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_allows_scalar(a) for a in get_args(annotation) if a is not type(None))
    return annotation in _SCALARS or get_origin(annotation) is Literal


def _mismatches(value: Any, annotation: Any, is_strict: bool) -> Iterator[Any]:
    """Parts of a value that an annotation does not allow, as far as the annotation consists of plain types.

    Args:
        is_strict: also check literals, texts and numbers, and no parts of mappings.
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        parts = [list(_mismatches(value, a, is_strict)) for a in inner]
        if all(parts):  # a part that is not the value itself says more
            yield from min(parts, key=lambda found: found[0] is value)
    elif origin is Literal:
        if is_strict and not any(value == a and type(value) is type(a) for a in inner):
            yield value
    elif _is_subclass(origin, Mapping):
        if not isinstance(value, Mapping):
            yield value
        elif not is_strict:
            for key, part in value.items():
                yield from _mismatches(key, inner[0], is_strict)
                yield from _mismatches(part, inner[1], is_strict)
    elif origin is Iterable or _is_subclass(origin, Sequence) or _is_subclass(origin, Set):
        is_many = isinstance(value, Iterable if is_strict else Collection)  # definitions read values several times
        if isinstance(value, str | bytes | Mapping | type) or not is_many:
            yield value
        elif isinstance(value, Collection):
            for part in value:
                yield from _mismatches(part, inner[0], is_strict)
    elif not _is_instance(value, origin or annotation, is_strict):
        yield value


def _is_instance(value: Any, kind: Any, is_strict: bool) -> bool:
    if kind in (Any, Callable) or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if kind in (int, float):
        is_number = isinstance(value, int) or (kind is float and isinstance(value, float))
        return is_number and (not is_strict or (not isinstance(value, bool) and abs(value) < 2**63))
    return isinstance(value, kind) and not (is_strict and not _is_valid_if_text(value))


def _is_subclass(origin: Any, kind: type) -> bool:
    return isinstance(origin, type) and issubclass(origin, kind)


def _is_valid_if_text(value: Any) -> bool:
    """Whether a value is either no text, or Unicode text without null characters."""
    if not isinstance(value, str):
        return True
    try:
        return b"\x00" not in value.encode()
    except UnicodeEncodeError:
        return False


def _describe_value(value: Any) -> str:
    """Short text of a value: ``a Workflowette 'w'``, ``5``."""
    if isinstance(value, _SCALARS):
        return repr(value)[:80]
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"the function {value.__qualname__}"
    name = getattr(value, "name", None)
    return f"a {type(value).__name__}" + (f" {name!r}" if isinstance(name, str) else "")


def _format_value(value: Any) -> str:
    try:
        text = ascii(value)
    except Exception:  # the repr may be user code
        return "a value without a repr"
    return text if len(text) <= 80 else text[:77] + "..."


def describe_annotation(annotation: Any) -> str:
    """Text of an annotation: ``a list of Binding``."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(describe_annotation(a) for a in inner)
    if origin is Literal:
        return " or ".join(map(repr, inner[:_MAX_LISTED_NAMES]))
    if _is_subclass(origin, Mapping):
        return f"a mapping of {describe_annotation(inner[0])} to {describe_annotation(inner[1])}"
    if _is_subclass(origin, Iterable) and inner:
        return f"a list of {describe_annotation(inner[0])}"
    return _TYPE_TEXTS.get(annotation) or str(getattr(annotation, "__name__", annotation))
