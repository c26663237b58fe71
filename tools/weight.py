"""Measures how much there is to read: the size of the package, and what one call of each verb passes through.

    python tools/weight.py [--static]

Statements are counted without docstrings, so nothing is gained by packing lines or dropping comments. A call is
measured after two others of its kind, with a store in a temporary folder: the functions and files of the package that
it enters in any thread, and the transactions that begin on the catalog. ``--static`` leaves the calls out, which start
Spark.
"""

from __future__ import annotations

import ast
import itertools
import statistics
import sys
import tempfile
import threading
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import grimp

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "nova_assets"

FORMS = ("json", "row", "rows", "record", "yaml", "dict", "body")
"""What a mapper makes of an object, or an object of: the last word of its name."""


def main() -> int:
    """Print the figures as a table."""
    for name, figure in size_of_package().items():
        print(f"{name:<52}{figure:>12}")
    if "--static" not in sys.argv[1:]:
        print(f"\n{'one call of':<28}{'functions':>10}{'files':>8}{'transactions':>14}")
        for verb, trace in traces().items():
            print(f"{verb:<28}{len(trace.functions):>10}{len(trace.files):>8}{trace.transactions:>14}")
    return 0


# the size of the package


def size_of_package() -> Mapping[str, str]:
    """Name of a figure -> its value."""
    files = sorted(PACKAGE.rglob("*.py"))
    texts = {file: file.read_text() for file in files}
    trees = {file: ast.parse(text) for file, text in texts.items()}
    lines = {file: len(text.splitlines()) for file, text in texts.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    imports = sum(_lines(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    mappers = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name.split("_")[-1] in FORMS]
    comments = sum(map(count_comments, texts))
    total = sum(lines.values())
    return {
        "lines": f"{total:,}",
        "statements": f"{sum(map(count_statements, trees.values())):,}",
        "files": f"{len(texts):,}",
        "lines of a file, median": f"{statistics.median(lines.values()):.0f}",
        "share of lines that are imports": f"{imports / total:.1%}",
        "files that one other file imports": f"{count_single_importers():,}",
        "lines of functions named " + ", ".join(FORMS[:3]) + ", ...": f"{sum(map(_lines, mappers)):,}",
        "comments in 1,000 lines": f"{1000 * comments / total:.1f}",
    } | {f"lines of {room}": f"{count:,}" for room, count in lines_by_room(lines).items()}


def count_statements(tree: ast.Module) -> int:
    """Statements of a file. Docstrings, also those of fields, are none."""
    return sum(
        isinstance(node, ast.stmt) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in ast.walk(tree)
    )


def count_comments(file: Path) -> int:
    with tokenize.open(file) as text:
        return sum(token.type == tokenize.COMMENT for token in tokenize.generate_tokens(text.readline))


def lines_by_room(lines: Mapping[Path, int]) -> Mapping[str, int]:
    """Room -> lines, the largest first. The files of the top folder are a room, too."""
    rooms: dict[str, int] = {}
    for file, count in lines.items():
        parts = file.relative_to(PACKAGE).parts
        room = parts[0] if len(parts) > 1 else "the top folder"
        rooms[room] = rooms.get(room, 0) + count
    return dict(sorted(rooms.items(), key=lambda pair: -pair[1]))


def count_single_importers() -> int:
    """Files that exactly one file of the package imports."""
    graph = grimp.build_graph("nova_assets", exclude_type_checking_imports=False, cache_dir=None)
    return sum(len(graph.find_modules_that_directly_import(module)) == 1 for module in graph.modules)


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


# what one call passes through


@dataclass
class Trace:
    """Functions of the package that a call enters, and the transactions that it begins."""

    functions: set[CodeType] = field(default_factory=set)
    transactions: int = 0

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.functions}


def traced(call: Callable[[], object]) -> Trace:
    """The trace of one call."""
    from sqlalchemy import Engine, event

    trace = Trace()

    def on_event(frame: FrameType, kind: str, _: Any) -> None:
        if kind == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            trace.functions.add(frame.f_code)

    def on_begin(_: Any) -> None:
        trace.transactions += 1

    event.listen(Engine, "begin", on_begin)
    threading.setprofile(on_event)
    sys.setprofile(on_event)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        event.remove(Engine, "begin", on_begin)
    return trace


def traces() -> Mapping[str, Trace]:
    """Verb -> the trace of its third call."""
    return {verb: trace for verb, trace in _each_trace()}


def _each_trace() -> Iterator[tuple[str, Trace]]:
    import nova_assets as nova

    source = nova.Channel("source", schema="k bigint, v bigint")
    table = nova.Channel("table", merge=nova.Upsert(key="k"), schema="k bigint, v bigint")
    task = nova.task(consumes=nova.new(source), produces=nova.delta(table))(_keep)
    project = nova.Project([nova.bind(nova.Workflowette("work", [task]), when=nova.on_data(source))])
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="weight-") as folder:
        catalog, warehouse = f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse"
        with nova.open(project, catalog, warehouse) as store:
            store.register(project)

            def insert() -> None:
                store.insert(source, [{"k": next(numbers), "v": 1} for _ in range(1_000)])

            yield "store.insert", third(insert)
            yield "store.run", third(lambda: store.run("work"), before=insert)
            yield "store.read", third(lambda: store.read("table").to_arrow())
            yield "a tick of a sensor", third(sensor_tick(project, catalog, warehouse, folder))


def third(call: Callable[[], object], before: Callable[[], object] = lambda: None) -> Trace:
    """Trace of the third of three calls.

    Args:
        before: called before each, and not traced.
    """
    for _ in range(2):
        before()
        call()
    before()
    return traced(call)


def sensor_tick(project: Any, catalog: str, warehouse: str, folder: str) -> Callable[[], object]:
    """Function that evaluates the sensor of a trigger that has nothing to request."""
    import dagster as dg

    from nova_assets.dagster_bridge import build_definitions

    definitions = build_definitions(project, catalog=catalog, warehouse=warehouse)
    repository = definitions.get_repository_def()
    (sensor,) = [sensor for sensor in repository.sensor_defs if "work" in sensor.name]
    instance = dg.DagsterInstance.local_temp(folder)

    def evaluate() -> object:
        with dg.build_sensor_context(instance=instance, repository_def=repository) as context:
            return sensor.evaluate_tick(context)

    return evaluate


def _keep(source: Any) -> Any:
    return source.filter("v >= 0")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
