"""References to functions that the catalog records: by import path, never by pickled code (R18)."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from nova_assets.errors import DefinitionError

_ASSOCIATIVE = "__nova_associative__"


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """Reference to a function: ``module:qualname@version``."""

    module: str
    qualname: str
    version: str = "1"

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}@{self.version}"

    @staticmethod
    def of(function: Callable[..., Any], role: str, version: str = "1") -> FunctionRef:
        """Reference to ``function``.

        Raises:
            DefinitionError: a lambda, a nested function, or a function of ``__main__``. Other processes cannot import
                these.
        """
        module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        reason = _why_not_importable(function, module, qualname)
        if reason or module is None or qualname is None:
            raise DefinitionError(
                f"the {role} function cannot be recorded: {reason}",
                found=repr(function),
                expected="a function defined at the top level of a module that can be imported",
                next="move it into a module of your package and give it a name",
            )
        return FunctionRef(module, qualname, version)

    @staticmethod
    def parse(text: str) -> FunctionRef:
        import_path, _, version = text.rpartition("@")
        module, _, qualname = import_path.partition(":")
        return FunctionRef(module, qualname, version)

    def load(self) -> Callable[..., Any]:
        """The function itself. Raises DefinitionError if it cannot be imported."""
        try:
            found: Any = importlib.import_module(self.module)
            for part in self.qualname.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise DefinitionError(
                f"the function {self} cannot be imported",
                found=str(error),
                next=f"restore {self.module}.{self.qualname}, or register the channel with another one",
            ) from error
        if not callable(found):
            raise DefinitionError(f"{self} is not a function", found=repr(found))
        return found  # type: ignore[no-any-return]


def _why_not_importable(function: object, module: str | None, qualname: str | None) -> str | None:
    if not callable(function):
        return "it is not a function"
    if module is None or qualname is None:
        return "it has no name"
    if "<lambda>" in qualname:
        return "it is a lambda"
    if "<locals>" in qualname:
        return "it is defined inside another function"
    if module == "__main__":
        return "it lives in __main__, which is another module in every process"
    return None


F = TypeVar("F", bound=Callable[..., Any])


def associative(function: F) -> F:
    """Declare a function associative: ``function(function(a, b), c) == function(a, function(b, c))``.

    ``Keyed(combine=...)`` accepts only functions that are declared associative (R11). The function takes two values,
    the earlier value first, and returns the combined value. In the Spark engine, the values are Spark columns.
    """
    setattr(function, _ASSOCIATIVE, True)
    return function


def is_associative(function: object) -> bool:
    return bool(getattr(function, _ASSOCIATIVE, False))


def wants_context(function: Callable[..., Any]) -> bool:
    """Whether the function has a ``ctx`` parameter for a ``nova.Context``."""
    return "ctx" in inspect.signature(function).parameters


def input_parameter_problems(function: Callable[..., Any], input_names: Iterable[str]) -> list[str]:
    """Mismatches between the function's parameters and the names of its edges."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return []
    accepted = {n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    required = {n for n in accepted if parameters[n].default is inspect.Parameter.empty} - {"ctx"}
    inputs = set(input_names)
    found = [
        f"the function has no parameter {n!r} for the input of that name; name it so, or use as_="
        for n in sorted(inputs - accepted)
    ]
    return found + [
        f"the function's parameter {n!r} has no input; consume a port of that name, or use as_="
        for n in sorted(required - inputs)
    ]
