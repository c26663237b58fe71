"""Options that select partitions of a binding, shared by ``nova plan`` and ``nova run``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from nova_assets.execution.trigger_state import check_has_partitions
from nova_assets.store.store import Store


def add_partition_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds the options ``--partition``, ``--missing`` and ``--whole`` to a command."""
    for option in (
        click.option("--whole", is_flag=True, help="Run all partitions in one execution, with one cursor for all."),
        click.option("--missing", is_flag=True, help="Run every partition that has unread data, one after the other."),
        click.option(
            "--partition",
            "partitions",
            metavar="COL=VALUE[/…]",
            multiple=True,
            help="Partition to run; may be given several times.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True)
class PartitionOptions:
    """Values of the options that select partitions."""

    partitions: tuple[str, ...]
    missing: bool
    whole: bool

    def __post_init__(self) -> None:
        if self.missing + self.whole + bool(self.partitions) > 1:
            raise click.UsageError("--partition, --missing and --whole exclude each other")

    @property
    def is_single_execution(self) -> bool:
        """Whether the options select exactly one execution, so that the JSON result is its object and not a list."""
        return not self.missing and len(self.partitions) <= 1

    def resolve_partitions(self, store: Store, binding: str) -> list[str]:
        """Names of the selected partitions, without duplicates; ``""``, the whole, if none is selected."""
        if self.missing:
            check_has_partitions(store.project.binding(binding))
            return store.unread(binding)
        bound = store.project.binding(binding)
        return list(dict.fromkeys(bound.partition(p) for p in self.partitions or ("",)))
