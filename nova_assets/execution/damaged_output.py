"""Stored rows of an output that a task maintains, and whose files are damaged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nova_assets.errors import FileMissing
from nova_assets.model.task import Task
from nova_assets.model.timeline import History
from nova_assets.plan.run_plan import Output


@dataclass(frozen=True)
class DamagedOutput:
    """An output whose stored rows cannot be read.

    Args:
        reason: which file is damaged, and how.
    """

    port: str
    reason: str


def find_damaged_output(
    task: Task, outputs: Iterable[Output], histories: Mapping[str, History], error: FileMissing
) -> DamagedOutput | None:
    """The output whose stored rows an error is about; None if the task cannot make these rows again.

    Args:
        histories: channel -> its history up to the pinned head.
    """
    if not task.can_replace:
        return None
    path = error.fields.get("path")
    for output in outputs:
        blocks = () if output.channel is None else histories[output.channel].blocks
        if any(file.path == path for block in blocks for file in block.manifest.files):
            return DamagedOutput(output.port, error.what)
    return None
