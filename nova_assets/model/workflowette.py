"""Workflowettes: DAGs of tasks with open ports, independent of channels (Nova 2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.channel import Channel
from nova_assets.model.data_check import Check
from nova_assets.model.edge import Consumes, Produces
from nova_assets.model.names import check_name, find_duplicates
from nova_assets.model.task import Task
from nova_assets.short_repr import short_repr

STEPS = ("begin", "checks", "commit")
"""Steps of every execution besides its tasks, under their names in Dagster."""


@dataclass(frozen=True, init=False)
class Workflowette:
    """Tasks that are executed and committed together. Ports connect the tasks.

    A task that reads a port runs after the task that writes the port.

    Args:
        name: name of the workflowette. A binding has the same name by default.
        tasks: the tasks, in any order.
        checks: data checks that must pass before the output is published.
    """

    __repr__ = short_repr

    name: str
    tasks: tuple[Task, ...]
    checks: tuple[Check, ...]

    @check_argument_types(
        "nova.Workflowette", tasks="functions under @nova.task(...)", checks="functions under @nova.check(...)"
    )
    def __init__(self, name: str, tasks: Sequence[Task], checks: Sequence[Check] = ()) -> None:
        object.__setattr__(self, "name", check_name(name, "a workflowette"))
        object.__setattr__(self, "tasks", tuple(tasks))
        object.__setattr__(self, "checks", tuple(checks))

    def task(self, name: str) -> Task:
        """Task with this name. Raises KeyError."""
        for t in self.tasks:
            if t.name == name:
                return t
        raise KeyError(name)

    @property
    def edges(self) -> tuple[Consumes | Produces, ...]:
        """All edges of all tasks and checks, in order of declaration."""
        found: list[Consumes | Produces] = []
        for t in self.tasks:
            found += [*t.consumes, *t.produces]
        for c in self.checks:
            found += c.consumes
        return tuple(found)

    @property
    def ports(self) -> tuple[str, ...]:
        """All ports, in order of first mention."""
        return tuple(dict.fromkeys(e.port for e in self.edges))

    @property
    def declared_channels_by_port(self) -> dict[str, Channel]:
        """Port -> channel, for edges that name a channel."""
        return {e.port: e.channel for e in self.edges if e.channel is not None}

    def writer(self, port: str) -> Task | None:
        """Task that writes the port. None if no task writes the port. Two tasks never write the same port."""
        return next((t for t in self.tasks for e in t.produces if e.port == port), None)

    def is_read_by_check(self, port: str) -> bool:
        """Whether a check reads the port."""
        return any(e.port == port for c in self.checks for e in c.consumes)

    def readers(self, port: str) -> tuple[Task, ...]:
        return tuple(t for t in self.tasks if any(e.port == port for e in t.consumes))

    def upstream(self, task: Task) -> tuple[str, ...]:
        """Names of the tasks whose output this task reads. The task itself is left out, because a task does not see its
        own output.
        """
        writers = (self.writer(e.port) for e in task.consumes)
        return tuple(dict.fromkeys(w.name for w in writers if w is not None and w.name != task.name))

    def downstream(self, name: str) -> tuple[str, ...]:
        """Names of all tasks that depend on this task, directly or transitively."""
        found: list[str] = []
        for t in self.in_order():
            if any(u == name or u in found for u in self.upstream(t)):
                found.append(t.name)
        return tuple(found)

    def in_order(self) -> tuple[Task, ...]:
        """Tasks in topological order. Independent tasks keep the order of their declaration. Raises CycleError."""
        sorter = TopologicalSorter({t.name: self.upstream(t) for t in self.tasks})
        return tuple(self.task(n) for n in sorter.static_order())

    def problems(self) -> list[str]:
        """Problems of the tasks and checks, alone and together."""
        if not self.tasks:
            return [f"workflowette {self.name!r} has no tasks"]
        found = [p for t in self.tasks for p in t.problems()] + [p for c in self.checks for p in c.problems()]
        found += self._name_problems() + self._check_problems() + self._port_problems() + self._cycle_problems()
        return [f"workflowette {self.name!r}: {p}" for p in found]

    def _name_problems(self) -> list[str]:
        tasks, checks = [t.name for t in self.tasks], [c.name for c in self.checks]
        found = [f"two tasks are called {n!r}" for n in find_duplicates(tasks)]
        found += [
            f"a task is called {n!r}, which is the name of a step of every execution" for n in STEPS if n in tasks
        ]
        found += [f"two checks are called {n!r}" for n in find_duplicates(checks)]
        return found + [f"a check and a task are both called {n!r}" for n in sorted(set(tasks) & set(checks))]

    def _check_problems(self) -> list[str]:
        return [
            f"check {c.name!r} tests port {c.port!r}, which no task writes; its first edge names the port under test"
            for c in self.checks
            if c.consumes and self.writer(c.port) is None
        ]

    def _port_problems(self) -> list[str]:
        found = []
        for port in self.ports:
            writers = [t.name for t in self.tasks for e in t.produces if e.port == port]
            if len(writers) > 1 and len(set(writers)) > 1:
                found.append(f"port {port!r} is written by {' and '.join(writers)}; a port has one writer (R5)")
            self_reading_tasks = [
                t.name for t in self.tasks if t.name in writers for e in t.consumes if e.port == port and e.moves_cursor
            ]
            found += [
                f"task {n!r} consumes new({port}) and writes it; a new reader comes after the writer (R5)"
                for n in self_reading_tasks
            ]
            named = {e.channel for e in self.edges if e.port == port and e.channel is not None}
            if len(named) > 1:
                found.append(f"port {port!r} is given two different channels")
        return found

    def _cycle_problems(self) -> list[str]:
        try:
            self.in_order()
        except CycleError as error:
            return [f"the tasks form a cycle: {' → '.join(reversed(error.args[1]))}"]
        return []
