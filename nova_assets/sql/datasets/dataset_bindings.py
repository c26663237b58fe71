"""Bindings made from folders of SQL datasets: one binding per dataset, with one task, partitioned by its scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar, cast, get_args, overload

from nova_assets.errors import DefinitionError, SqlError
from nova_assets.model.binding import Binding, bind
from nova_assets.model.channel import Channel
from nova_assets.model.edge import Produces
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.model.project import Project
from nova_assets.model.task import Task
from nova_assets.model.workflowette import Workflowette
from nova_assets.plan.staleness import DOWNSTREAM
from nova_assets.sql.datasets.dataset_query import DatasetQuery, FloatPolicy, Freshness, Late, Refresh, RefreshDecision
from nova_assets.sql.datasets.declarations import DatasetDeclarations, build_declared_graph
from nova_assets.sql.datasets.graph import Graph
from nova_assets.sql.datasets.maintained_dataset import (
    MaintainedDataset,
    check_new_scans,
    datasets_that_lose_rows,
    decide_refresh,
    multiset_channel,
)
from nova_assets.sql.datasets.sql_task import consumed_edges
from nova_assets.sql.incremental.incremental_task import IncrementalQuery
from nova_assets.sql.query.user_functions import Functions, SqlFunction, sql_functions_by_name, type_by_function
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
    for policy, value in _values_of_known_datasets(policies, graph):
        if policy not in choices:
            raise DefinitionError(
                f"{argument}={value} is not a policy{did_you_mean(str(policy), choices)}", expected=" or ".join(choices)
            )


def _check_freshness(limits: Mapping[str, str], graph: Graph) -> None:
    """Check the freshness limits by dataset."""
    for limit, value in _values_of_known_datasets(limits, graph):
        if limit != DOWNSTREAM and period_seconds(limit) is None:
            expected = f"{EXPECTED_PERIOD}, or {DOWNSTREAM!r}"
            raise DefinitionError(f"freshness={value} is neither a period nor {DOWNSTREAM!r}", expected=expected)


def _values_of_known_datasets(policies: Mapping[str, str], graph: Graph) -> Iterator[tuple[str, str]]:
    """Policies, each with its text for errors. Raises DefinitionError for the policy of an unknown dataset."""
    for name, policy in policies.items():
        if name and graph.datasets:  # the graph is empty if the analysis failed, and that error is recorded already
            graph.dataset(name)
        yield policy, f"{{{name!r}: {policy!r}}}" if name else repr(policy)


class Datasets(Sequence[Binding]):
    """The bindings of a set of SQL datasets, and the graph of the datasets. Each binding comes after the bindings of
    its inputs.

    Args:
        graph: the analysed datasets.
        late: dataset -> handling of late data. Data is late if it arrives at an input after the partition was made.
        bodies: user-defined functions, by name.
        refresh: how the datasets are brought up to date: for all, or by dataset.
        freshness: how long changes may wait: for all, or by dataset.
        float: how sums of floating-point numbers are maintained: for all, or by dataset.
        channels: channels that a check of a dataset may read, besides those of the graph; None leaves the checks out.

    Attributes:
        refresh_decisions: dataset -> how it is brought up to date, and why.
    """

    def __init__(
        self,
        graph: Graph,
        late: Mapping[str, Late] | None = None,
        bodies: Mapping[str, SqlFunction] | None = None,
        refresh: Refresh | Mapping[str, Refresh] = "auto",
        freshness: Freshness | Mapping[str, Freshness] | None = None,
        float: FloatPolicy | Mapping[str, FloatPolicy] = "exact",
        channels: Sequence[Channel] | None = None,
    ) -> None:
        late_by_dataset = late or {}
        self._freshness = _freshness_by_dataset(freshness, graph)
        self.refresh_decisions: dict[str, RefreshDecision] = {}
        for name in graph.datasets:  # inputs come before their readers
            requested = _requested_refresh(refresh, graph.dataset(name).statement)
            adds_floats = (float if isinstance(float, str) else float.get(name)) == "fast"
            late_data = late_by_dataset.get(name, "rebuild")
            decision = decide_refresh(graph, name, requested, late_data, adds_floats=adds_floats)
            self.refresh_decisions[name] = decision
            if decision.is_incremental:  # a base of a full dataset that it reads may remove rows
                graph = _with_multisets(graph, [name, *datasets_that_lose_rows(graph, graph.dataset(name).reads)])
        self.graph = graph
        self._channels_of_checks = None if channels is None else {c.name: c for c in channels}
        self._bindings = tuple(
            self._make_binding(self._make_query(name, late_by_dataset.get(name, "rebuild"), bodies))
            for name in graph.datasets
        )

    def _make_query(self, name: str, late: Late, bodies: Mapping[str, SqlFunction] | None) -> DatasetQuery:
        decision = self.refresh_decisions[name]
        query_class = MaintainedDataset if decision.is_incremental else DatasetQuery
        return query_class(self.graph, name, late, bodies, decision, self._freshness.get(name))

    def _make_binding(self, query: DatasetQuery) -> Binding:
        graph, dataset = self.graph, self.graph.dataset(query.name)
        maintaining = self._make_task_function(query) if isinstance(query, MaintainedDataset) else None
        task = Task(
            name=f"make_{dataset.name}",
            function=maintaining or query,
            consumes=consumed_edges(dataset.statement.scans) if maintaining is None else maintaining.input_edges(),
            produces=(Produces(dataset.name, dataset.statement.kind if maintaining is None else "delta"),),
            deterministic=not dataset.statement.has_calls,  # a function may read something else the next time
            description=dataset.statement.text.sql.strip(),
            can_replace=maintaining is not None,
            scoped=query,
        )
        checks = [
            written.build(dataset.statement.text, dataset.channel, self._find_channel)
            for written in dataset.statement.options.checks
            if self._channels_of_checks is not None
        ]
        return bind(
            Workflowette(dataset.name, [task], checks),
            channels={name: graph.channel(name) for name in (*dataset.reads, dataset.name)},
            description=dataset.statement.description or None,
            partitions=list(dataset.channel.partition_columns),
        )

    def _find_channel(self, name: str) -> Channel | None:
        if name in self.graph.datasets or name in self.graph.channels:
            return self.graph.channel(name)
        return (self._channels_of_checks or {}).get(name)

    def _make_task_function(self, query: MaintainedDataset) -> IncrementalQuery:
        maintained_readers = [
            name
            for name, reader in self.graph.datasets.items()
            if query.name in reader.reads and self.refresh_decisions[name].is_incremental
        ]
        prefers_changes = self.refresh_decisions[query.name].requested == "incremental"
        return query.make_task_function(prefers_changes=prefers_changes, readers=len(maintained_readers))

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of external tables. A project contains them whether or not a dataset reads them."""
        return tuple(v.channel for v in self.graph.views.values())

    def channel(self, name: str) -> Channel:
        """The channel of a dataset or of an external table, for Python tasks that read it. Raises DefinitionError."""
        return self.graph.views[name].channel if name in self.graph.views else self.graph.dataset(name).channel

    @overload
    def __getitem__(self, at: int) -> Binding: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Binding]: ...
    def __getitem__(self, at: int | slice) -> Binding | Sequence[Binding]:
        return self._bindings[at]

    def __len__(self) -> int:
        return len(self._bindings)

    def __iter__(self) -> Iterator[Binding]:
        return iter(self._bindings)


def datasets(
    folder: str | Path,
    *,
    channels: Sequence[Channel] = (),
    functions: Functions | None = None,
    late: Mapping[str, Late] | None = None,
    refresh: Refresh | Mapping[str, Refresh] = "auto",
    freshness: Freshness | Mapping[str, Freshness] | None = None,
    float: FloatPolicy | Mapping[str, FloatPolicy] = "exact",
) -> Datasets:
    """The datasets of a folder. Every ``.sql`` file in the folder and its subfolders holds one statement.

        project = nova.Project(bindings=nova.datasets("sql", channels=[tickets]))

    The queries determine the schemas, the partitions, and which partitions each task reads. To derive all this, no data
    is read.

    Args:
        folder: the folder that contains the ``.sql`` files.
        channels: channels that are not datasets, but that the datasets read. If a channel has the same name as a
            dataset, the channel says how the dataset is stored.
        functions: user-defined functions that the queries call, made with ``nova.sql_function``. If the Spark session
            already has a function, give only its name and its type: ``{"slug": "string"}``.
        late: dataset -> handling of late data. Data is late if it arrives at an input after the partition was made.
            With ``"rebuild"`` (the default), ticks make the partition again. With ``"ignore"``, ticks leave the
            partition as it is. Example: ``{"invoices": "ignore"}``.
        refresh: how a dataset is brought up to date after its inputs have changed. With ``"full"``, its query is
            computed again. With ``"incremental"``, nova derives the changes of its rows from the changes of the inputs,
            and writes only these changes. An error names the part of the query for which nova has no rule. With
            ``"auto"`` (the default), a dataset is incremental if nova has a rule for each part of its query, otherwise
            full. Then each execution chooses the cheaper of the changes and a replacement of the result. A mapping
            gives the choice by dataset: ``{"totals": "incremental"}``.
        freshness: how long ticks may leave changes of the inputs unread. With ``"10 minutes"``, a tick makes a dataset
            again when its oldest unread change is ten minutes old. With ``"downstream"``, a tick makes a dataset again
            when one of its readers is due. Missing partitions and backfills do not wait. By default, no changes wait.
            A mapping gives the limit by dataset: ``{"totals": "10 minutes"}``.
        float: how sums and averages of floating-point numbers are maintained. With ``"exact"`` (the default), groups
            that changed are computed again. With ``"fast"``, the change is added to the stored sum, which drifts. A
            mapping gives the choice by dataset.

    Raises:
        DefinitionError: the folder does not exist or holds no ``.sql`` file.
        SqlError: a query cannot be parsed, or a schema, type or partition cannot be derived from it.
    """
    return datasets_of_folders([DatasetFolder(Path(folder), functions, late, refresh, freshness, float)], channels)


def datasets_of_folders(folders: Sequence[DatasetFolder], channels: Sequence[Channel] = ()) -> Datasets:
    """The datasets of several folders. They may read each other.

    Args:
        channels: channels that are not datasets, as for ``datasets``.

    Raises:
        DefinitionError: a folder does not exist or holds no ``.sql`` file, or its policies do not fit its datasets.
        SqlError: a query cannot be parsed, or a schema, type or partition cannot be derived from it.
    """
    texts = tuple(text for folder in folders for text in folder.read_texts())
    bodies = {n: f for folder in folders for n, f in sql_functions_by_name(folder.functions).items()}
    types = {n: t for folder in folders for n, t in type_by_function(folder.functions).items()}
    graph = build_declared_graph(DatasetDeclarations(texts, tuple(channels), types))
    check_new_scans(graph)
    late: dict[str, Late] = {}
    refresh: dict[str, Refresh] = {}
    freshness: dict[str, Freshness] = {}
    float: dict[str, FloatPolicy] = {}
    for folder in folders:
        folder.check_policies(graph)
        late |= folder.late or {}
        refresh |= folder.policy_by_dataset(graph, folder.refresh, lambda statement: statement.options.refresh)
        freshness |= folder.policy_by_dataset(graph, folder.freshness, lambda statement: statement.options.freshness)
        float |= folder.policy_by_dataset(graph, folder.float, lambda _: "")
    return Datasets(graph, late, bodies, refresh, freshness, float, channels)


def dataset_queries_by_name(project: Project) -> dict[str, DatasetQuery]:
    """The queries of all SQL datasets of a project, by dataset name."""
    found = (t.scoped for b in project.bindings for t in b.tasks)
    return {q.name: q for q in found if isinstance(q, DatasetQuery)}


def _requested_refresh(refresh: Refresh | Mapping[str, Refresh], statement: DatasetStatement) -> Refresh:
    """How a dataset is to be brought up to date. Its statement goes before what the folder says."""
    written = cast("Refresh | Literal['']", statement.options.refresh)
    by_name = None if isinstance(refresh, str) else refresh.get(statement.name)
    _check_agreement("refresh", statement, written, by_name)
    return written or by_name or (refresh if isinstance(refresh, str) else "auto")


def _freshness_by_dataset(freshness: Freshness | Mapping[str, Freshness] | None, graph: Graph) -> dict[str, Freshness]:
    """Dataset -> how long changes may wait. Its statement goes before what the folder says."""
    by_name = {} if isinstance(freshness, str) else freshness or {}
    found = dict.fromkeys(graph.datasets, freshness) if isinstance(freshness, str) else dict(by_name)
    for name, dataset in graph.datasets.items():
        written = dataset.statement.options.freshness
        _check_agreement("freshness", dataset.statement, written, by_name.get(name))
        if written:
            found[name] = written
    return found


def _check_agreement(argument: str, statement: DatasetStatement, written: str, by_name: str | None) -> None:
    if written and by_name is not None and by_name != written:
        raise statement.text.error(
            f"{argument.upper()} is {written} here, and nova.datasets(...) says {argument}={{{statement.name!r}: "
            f"{by_name!r}}}",
            statement.options.span,
            expected="one of them",
        )


def _with_multisets(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with channels of which rows can be removed, for these datasets."""
    changed = {n: replace(graph.datasets[n], channel=multiset_channel(graph.datasets[n].channel)) for n in names}
    return replace(graph, datasets={**graph.datasets, **changed})
