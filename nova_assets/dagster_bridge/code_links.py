"""Links from an asset to the source of the tasks that write it, as Dagster's code references."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dagster import CodeReferencesMetadataValue, LocalFileCodeReference

from nova_assets.model.binding import Binding
from nova_assets.model.task import Task
from nova_assets.sql.datasets.dataset_query import DatasetQuery


def code_link_metadata(binding: Binding) -> dict[str, Any]:
    """Metadata with a link for each task: to its function, or to the file of its dataset. Empty without such files."""
    return _metadata([link for task in binding.tasks if (link := _link(task)) is not None])


def code_link_of_function(function: Callable[..., Any], label: str) -> dict[str, Any]:
    """Metadata with a link to a function; empty if its file does not exist."""
    link = _link_to_function(function, label)
    return {} if link is None else _metadata([link])


def _metadata(links: Sequence[LocalFileCodeReference]) -> dict[str, Any]:
    return {"dagster/code_references": CodeReferencesMetadataValue(code_references=[*links])} if links else {}


def _link(task: Task) -> LocalFileCodeReference | None:
    if isinstance(task.scoped, DatasetQuery):
        return _link_to_file(task.scoped.source_file, 1, task.name)
    return _link_to_function(task.function, task.name)


def _link_to_function(function: Callable[..., Any], label: str) -> LocalFileCodeReference | None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None else _link_to_file(code.co_filename, code.co_firstlineno, label)


def _link_to_file(file: str | Path, line: int, label: str) -> LocalFileCodeReference | None:
    path = _existing_file(file)
    return None if path is None else LocalFileCodeReference(file_path=path, line_number=line, label=label)


@cache
def _existing_file(file: str | Path) -> str | None:
    """Absolute path of a file; None without such a file. Many tasks are in one file."""
    path = Path(file)
    return str(path.resolve()) if path.is_file() else None
