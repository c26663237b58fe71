"""Checks: what has to hold of an execution's output before it is published."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nova_assets.model.edge import Consumes
from nova_assets.model.function_parameters import find_duplicates, input_parameter_problems, wants_context
from nova_assets.model.names import check_name
from nova_assets.model.type_checks import check_argument_types
from nova_assets.short_repr import short_repr


@dataclass(frozen=True)
class CheckResult:
    """What a check found, where true or false is not enough.

    Args:
        passed: whether it holds.
        found: one line for a person.
        metadata: numbers and texts to keep beside it; Dagster plots the numbers.
    """

    __repr__ = short_repr

    passed: bool
    found: str | None = None
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A function that looks at what an execution is about to publish. Calling a check calls the plain function.

    Args:
        name: unique among the checks and tasks of its workflowette.
        function: takes each edge's frame by the edge's name, and gives True or False, a ``CheckResult``, or a frame of
            the rows that ought not to be there.
        consumes: what it looks at. The first edge is to the port that the check is about, which some task writes. On a
            port that the workflowette writes, ``new`` is what this execution adds, ``all`` the channel as the commit
            would leave it, ``old`` as it was.
        blocking: a failure publishes nothing; otherwise it is only reported.
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
        """The port that the check is about."""
        return self.consumes[0].port

    @property
    def wants_context(self) -> bool:
        return wants_context(self.function)

    def problems(self) -> list[str]:
        """What is wrong with this check by itself."""
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
    """Make a check of a plain function. See ``Check`` for the arguments; edges may be one or a list.

    Give it to ``nova.Workflowette(..., checks=[...])``. It runs when all tasks have staged what they made and nothing
    is published yet.
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
