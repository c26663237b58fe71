"""Data checks: conditions on the output of an execution that are tested before it is published."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.edge import Consumes
from nova_assets.model.function_reference import input_parameter_problems, wants_context
from nova_assets.model.names import check_name, find_duplicates
from nova_assets.short_repr import short_repr


@dataclass(frozen=True)
class CheckResult:
    """Result of a check: passed or failed, with details.

    Args:
        passed: whether the condition holds.
        found: the result in one readable line.
        metadata: numbers and texts to store with the result. Dagster plots the numbers.
    """

    __repr__ = short_repr

    passed: bool
    found: str | None = None
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A function that tests the output of an execution before the output is published. A call of the check calls the
    plain function.

    Args:
        name: name of the check, unique among the checks and tasks of its workflowette.
        function: the plain function. For each edge, the function has a parameter with the name of the edge, which
            receives the frame. The function returns True or False, a ``CheckResult``, or a frame of the rows that
            violate the condition.
        consumes: the input edges. The first edge names the port under test. A task of the workflowette must write this
            port. For each port that the workflowette writes, ``new`` is the block of this execution, ``all`` is the
            channel after the commit, and ``old`` is the channel before it.
        blocking: whether a failure prevents the commit. Otherwise a failure is only reported.
    """

    __repr__ = short_repr

    name: str
    function: Callable[..., Any]
    consumes: tuple[Consumes, ...]
    blocking: bool = True
    description: str | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def port(self) -> str:
        """Port under test."""
        return self.consumes[0].port

    @property
    def wants_context(self) -> bool:
        return wants_context(self.function)

    def problems(self) -> list[str]:
        """Problems of this check alone."""
        names = [e.name for e in self.consumes]
        found = [] if names else ["consumes nothing; expected an edge to the port that it is about, say nova.new(port)"]
        found += [f"two inputs are called {n!r}; rename one with as_=" for n in find_duplicates(names)]
        found += [
            f"consumes matching({e.port}); expected new, all, old or changes"
            for e in self.consumes
            if e.mode == "matching"
        ]
        found += input_parameter_problems(self.function, names)
        return [f"check {self.name!r}: {p}" for p in found]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "consumes": [{"port": e.port, "mode": e.mode, "name": e.name} for e in self.consumes],
            "blocking": self.blocking,
        }


@check_argument_types("nova.check")
def check(
    consumes: Consumes | Sequence[Consumes],
    *,
    name: str | None = None,
    blocking: bool = True,
) -> Callable[[Callable[..., Any]], Check]:
    """Decorator that turns a plain function into a data check. See ``Check`` for the arguments.

    ``consumes`` takes one edge or a list of edges. Pass the check to ``nova.Workflowette(..., checks=[...])``. The
    check runs after all tasks have staged their output and before anything is published.
    """

    def make(function: Callable[..., Any]) -> Check:
        return Check(
            name=check_name(name or function.__name__, "a check"),
            function=function,
            consumes=(consumes,) if isinstance(consumes, Consumes) else tuple(consumes),
            blocking=blocking,
            description=inspect.getdoc(function),
        )

    return make
