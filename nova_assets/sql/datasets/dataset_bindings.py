"""Bindings made from a folder of SQL datasets: one binding per dataset, with one task, partitioned by the dataset's
scopes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args, overload

from nova_assets.errors import DefinitionError, SqlError
from nova_assets.model.binding import Binding, bind
from nova_assets.model.channel import Channel
from nova_assets.model.edge import Produces
from nova_assets.model.project import Project
from nova_assets.model.task import Task
from nova_assets.model.workflowette import Workflowette
from nova_assets.sql.datasets.dataset_query import DatasetQuery, Late
from nova_assets.sql.datasets.declarations import DatasetDeclarations, build_declared_graph
from nova_assets.sql.datasets.graph import Graph
from nova_assets.sql.datasets.scan_inputs import consumed_edges
from nova_assets.sql.query.user_functions import Functions, SqlFunction, sql_functions_by_name, type_by_function
from nova_assets.sql.text import SqlText


class Datasets(Sequence[Binding]):
    """The bindings of a set of SQL datasets, and the graph of the datasets. Each binding comes after the bindings of
    its inputs.

    Args:
        graph: the analysed datasets.
        late: dataset -> handling of late data. Data is late if it arrives at an input after the partition was made.
        bodies: user-defined functions, by name.
    """

    def __init__(
        self, graph: Graph, late: Mapping[str, Late] | None = None, bodies: Mapping[str, SqlFunction] | None = None
    ) -> None:
        self.graph = graph
        late_by_dataset = late or {}
        queries = [DatasetQuery(graph, name, late_by_dataset.get(name, "rebuild"), bodies) for name in graph.datasets]
        self._bindings = tuple(_make_binding(graph, q) for q in queries)

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

    Raises:
        DefinitionError: the folder does not exist or holds no ``.sql`` file.
        SqlError: a query cannot be parsed, or a schema, type or partition cannot be derived from it.
    """
    root = Path(folder)
    files = sorted(f for f in root.rglob("*") if f.suffix.lower() == ".sql") if root.is_dir() else []
    if not files:
        raise DefinitionError(
            f"there are no datasets in {root}",
            found="no .sql file in it" if root.is_dir() else "no such folder",
            expected="a folder with .sql files, a statement in each",
            next=f"make {root / 'NAME.sql'}",
        )
    texts = tuple(_read_sql_file(file) for file in files)
    graph = build_declared_graph(DatasetDeclarations(texts, tuple(channels), type_by_function(functions)))
    _check_late_policies(late or {}, graph)
    return Datasets(graph, late, sql_functions_by_name(functions))


def dataset_queries_by_name(project: Project) -> dict[str, DatasetQuery]:
    """The queries of all SQL datasets of a project, by dataset name."""
    found = (t.scoped for b in project.bindings for t in b.tasks)
    return {q.name: q for q in found if isinstance(q, DatasetQuery)}


def _check_late_policies(late_policies: Mapping[str, str], graph: Graph) -> None:
    for name, policy in late_policies.items():
        if graph.datasets:  # the graph is empty if the analysis failed, and that error is recorded already
            graph.dataset(name)
        if policy not in get_args(Late):
            raise DefinitionError(
                f"late={{{name!r}: {policy!r}}} is not a policy", expected=" or ".join(get_args(Late))
            )


def _read_sql_file(file: Path) -> SqlText:
    try:
        return SqlText(str(file), file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise SqlError(f"{file} cannot be read as text", found=str(error), expected="UTF-8", file=str(file)) from error


def _make_binding(graph: Graph, query: DatasetQuery) -> Binding:
    dataset = graph.dataset(query.name)
    task = Task(
        name=f"make_{dataset.name}",
        function=query,
        consumes=consumed_edges(dataset.statement.scans),
        produces=(Produces(dataset.name, dataset.statement.kind),),
        deterministic=not dataset.statement.has_calls,  # a function may read something else the next time
        description=dataset.statement.text.sql.strip(),
        scoped=query,
    )
    return bind(
        Workflowette(dataset.name, [task]),
        channels={name: _channel_by_name(graph, name) for name in (*dataset.reads, dataset.name)},
        description=dataset.statement.description or None,
        partitions=list(dataset.channel.partition_columns),
    )


def _channel_by_name(graph: Graph, name: str) -> Channel:
    return graph.datasets[name].channel if name in graph.datasets else graph.channels[name]
