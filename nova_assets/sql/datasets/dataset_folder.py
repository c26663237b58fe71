"""A folder of SQL datasets, with the policies of its datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_args

from nova_assets.errors import DefinitionError, SqlError
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.plan.staleness import DOWNSTREAM
from nova_assets.sql.datasets.dataset_query import FloatPolicy, Freshness, Late, Refresh
from nova_assets.sql.datasets.graph import Graph
from nova_assets.sql.query.user_functions import Functions
from nova_assets.sql.statement.dataset_statement import DatasetStatement
from nova_assets.sql.text import SqlText
from nova_assets.suggestions import did_you_mean

PolicyT = TypeVar("PolicyT", bound=str)


@dataclass(frozen=True, slots=True)
class DatasetFolder:
    """A folder of ``.sql`` files, and what ``nova.datasets`` says of its datasets. See there for the arguments."""

    path: Path
    functions: Functions | None = None
    late: Mapping[str, Late] | None = None
    refresh: Refresh | Mapping[str, Refresh] = "auto"
    freshness: Freshness | Mapping[str, Freshness] | None = None
    float: FloatPolicy | Mapping[str, FloatPolicy] = "exact"

    def read_texts(self) -> list[SqlText]:
        """The statements of the folder and its subfolders, one for each file.

        Raises:
            DefinitionError: the folder does not exist or holds no ``.sql`` file.
            SqlError: a file cannot be read.
        """
        files = self._files()
        if not files:
            raise DefinitionError(
                f"there are no datasets in {self.path}",
                found="no .sql file in it" if self.path.is_dir() else "no such folder",
                expected="a folder with .sql files, a statement in each",
                next=f"make {self.path / 'NAME.sql'}",
            )
        return [_read_sql_file(file) for file in files]

    def check_policies(self, graph: Graph) -> None:
        """Check the policies of the folder. Raises DefinitionError."""
        _check_policies("late", self.late or {}, get_args(Late), graph)
        _check_policies("refresh", _by_dataset(self.refresh), get_args(Refresh), graph)
        _check_policies("float", _by_dataset(self.float), get_args(FloatPolicy), graph)
        _check_freshness(_by_dataset(self.freshness or {}), graph)

    def policy_by_dataset(
        self,
        graph: Graph,
        policy: PolicyT | Mapping[str, PolicyT] | None,
        written_policy: Callable[[DatasetStatement], str],
    ) -> dict[str, PolicyT]:
        """Dataset -> policy. A policy for all datasets applies to those of the folder that do not state their own.

        Args:
            written_policy: the policy that a statement states itself; empty if it states none.
        """
        if policy is None or not isinstance(policy, str):
            return dict(policy or {})
        statements = {name: dataset.statement for name, dataset in graph.datasets.items()}
        return {n: policy for n, s in statements.items() if self.contains(s.text.name) and not written_policy(s)}

    def contains(self, file: str) -> bool:
        """Whether a file of ``read_texts`` is in this folder."""
        return Path(file).is_relative_to(self.path)

    def _files(self) -> list[Path]:
        return sorted(f for f in self.path.rglob("*") if f.suffix.lower() == ".sql") if self.path.is_dir() else []


def _read_sql_file(file: Path) -> SqlText:
    try:
        return SqlText(str(file), file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise SqlError(f"{file} cannot be read as text", found=str(error), expected="UTF-8", file=str(file)) from error


def _by_dataset(policy: str | Mapping[str, str]) -> Mapping[str, str]:
    """Policies by dataset. The name ``""`` stands for all datasets."""
    return {"": policy} if isinstance(policy, str) else policy


def _check_policies(argument: str, policies: Mapping[str, str], choices: Sequence[str], graph: Graph) -> None:
    """Check the policies by dataset."""
    for name, policy in policies.items():
        if name and graph.datasets:  # the graph is empty if the analysis failed, and that error is recorded already
            graph.dataset(name)
        if policy not in choices:
            value = f"{{{name!r}: {policy!r}}}" if name else repr(policy)
            raise DefinitionError(
                f"{argument}={value} is not a policy{did_you_mean(str(policy), choices)}", expected=" or ".join(choices)
            )


def _check_freshness(limits: Mapping[str, str], graph: Graph) -> None:
    """Check the freshness limits by dataset."""
    for name, limit in limits.items():
        if name and graph.datasets:
            graph.dataset(name)
        if limit != DOWNSTREAM and period_seconds(limit) is None:
            value = f"{{{name!r}: {limit!r}}}" if name else repr(limit)
            expected = f"{EXPECTED_PERIOD}, or {DOWNSTREAM!r}"
            raise DefinitionError(f"freshness={value} is neither a period nor {DOWNSTREAM!r}", expected=expected)
