"""Test cases of datasets in SQL, from YAML files beside the queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nova_assets.errors import DefinitionError
from nova_assets.suggestions import did_you_mean

SUFFIX = ".test.yaml"
"""End of the names of files with test cases: ``totals.test.yaml`` belongs to ``totals.sql``."""

_KEYS = ("name", "rows", "partition", "expected")
_EXAMPLE = "- {name: ..., rows: {INPUT: [{COLUMN: VALUE}]}, expected: [{COLUMN: VALUE}]}"


@dataclass(frozen=True)
class SqlCase:
    """Input rows of a dataset, and its expected rows.

    Args:
        name: what the case shows.
        rows: input -> its rows.
        partition: values of the partition columns; None if the dataset is not partitioned.
    """

    name: str
    expected: list[dict[str, Any]]
    rows: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    partition: Mapping[str, object] | None = None


class _LoaderWithUniqueKeys(yaml.SafeLoader):
    """YAML's safe loader. A repeated key is an error, because YAML would drop the first value silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if repeated := next((key for key in keys if keys.count(key) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"the key {repeated!r} is repeated", node.start_mark)
        return super().construct_mapping(node, deep)


def read_sql_cases(file: Path) -> list[SqlCase]:
    """The cases of a file: a list of mappings with ``name``, ``rows``, ``expected`` and perhaps ``partition``.

    Raises:
        DefinitionError: the file cannot be read, is no YAML, or has another form.
    """
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), _LoaderWithUniqueKeys)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DefinitionError(f"{file} cannot be read as YAML", found=str(error), expected=_EXAMPLE) from error
    if not isinstance(content, list):
        raise _form_error(file, "it is no list", "a list of cases")
    return [_make_case(file, number, case) for number, case in enumerate(content, start=1)]


def _make_case(file: Path, number: int, case: Any) -> SqlCase:
    if not isinstance(case, dict):
        raise _form_error(file, f"case {number} is no mapping", "a mapping for each case")
    where = f"case {number}"
    for key in case:
        if key not in _KEYS:
            raise _form_error(file, f"{where} has the key {key!r}{did_you_mean(str(key), _KEYS)}", ", ".join(_KEYS))
    if not isinstance(case.get("name"), str):
        raise _form_error(file, f"{where} has no name", "a text under 'name'")
    rows = case.get("rows", {})
    if not isinstance(rows, dict) or not all(map(_are_rows, rows.values())):
        raise _form_error(file, f"'rows' of {where} is not a mapping from inputs to rows", "{INPUT: [{COLUMN: VALUE}]}")
    if not _are_rows(case.get("expected")):
        raise _form_error(file, f"'expected' of {where} is no list of rows", "[{COLUMN: VALUE}], or [] for no row")
    partition = case.get("partition")
    if partition is not None and not (isinstance(partition, dict) and all(isinstance(k, str) for k in partition)):
        raise _form_error(file, f"'partition' of {where} is no mapping", "{COLUMN: VALUE}")
    return SqlCase(case["name"], case["expected"], rows, partition)


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _form_error(file: Path, problem: str, expected: str) -> DefinitionError:
    return DefinitionError(f"{file}: {problem}", expected=expected, next=f"a case looks like this: {_EXAMPLE}")
