"""``docs/coverage.md`` names tests, public names and sections that exist, and leaves out no number of a behaviour."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, cast

import click
import pytest
from _pytest.skipping import evaluate_skip_marks

import nova_assets
from nova_assets.cli.main import COMMANDS, cli
from nova_assets.settings import Settings
from nova_assets_tests.coverage_rows import PAGE, ROOT, ROWS, TESTS, name_of_test

SEEDS = ROOT.parent / "shared" / "seeds"

NOT_BUILT = "Not built"

COMPLETE_RUNS = ("core or not (spark or slow or long)", "not exhaustive")
"""Marker expressions of the runs that must include each named test: those of ``make test`` and ``make test-ci``."""

SECTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "Nova": (
        "nova-sigmod11.txt",
        {
            "Abstract": "ABSTRACTThis paper describes a workflow manager",
            "1. Introduction": "1.INTRODUCTION",
            "1.1 Related Work": "1.1Related Work",
            "2. Abstract workflow model": "2.ABSTRACT WORKFLOW MODEL",
            "2.1 Data and Update Model": "2.1Data and Update Model",
            "2.2 Task/Data Interface": "2.2Task/Data Interface",
            "2.3 Workflow Programming and Scheduling": "2.3Workflow Programming and Scheduling",
            "2.4 Data Compaction and Garbage Collection": "2.4Data Compaction and Garbage Collection",
            "3. Tying the model to Pig/Hadoop": "3.TYING THE MODEL TO PIG/HADOOP",
            "3.1 File Formats and Schemas": "3.1File Formats and Schemas",
            "4. Workflow manager architecture": "4.WORKFLOW MANAGERARCHITECTURE",
        },
    ),
    "The timeline service of Hudi": (
        "hudi-rfc-03-timeline-service.txt",
        {
            name: name
            for name in (
                "Abstract",
                "Background",
                "Design",
                "Embedded Server within Driver",
                "Algorithm for Incremental Timeline Syncing",
                "Algorithm for Incremental Cleaning",
                "File System View Bootstrap",
                "Alternatives Considered for Timeline Caching",
                "Rollout/Adoption Plan",
                "Test Plan",
            )
        },
    ),
    "BigDataFlow": (
        "bigdataflow-criteo-part-2.txt",
        {
            "Transformations in SQL": "data transformations can be described in terms of SQL",
            "The graph of datasets": "build a graph of datasets that depend on each others",
            "Derived schemas": "its schema can be derived from its SQL query",
            "Scopes and tasks": "The for-comprehension defines a list of scopes",
            "Dependencies of partitions": "We know that this task depends on those of store_sales",
            "A scheduler without a state of its own": "scheduler doesn’t have a state of its own",
            "What the platform takes care of": "the platform can then take care of all the things",
            "Breaking changes": "it provides support for managing breaking changes",
            "Build systems": "There are many similarities between what we do and what build systems do",
        },
    ),
    "Speedy Batch": (
        "speedy-batch-smartnews.txt",
        {
            name: name
            for name in (
                "1. Project Background",
                "2. Definition of the problem",
                "3. Objectives of the project",
                "4. Technology selection",
                "5. Technical challenges",
            )
        }
        | {
            "6. Overall plan and response to challenges": "6 Overall plan and response to challenges",
            "7. Project achievements and prospects": "7. Project achievements and prospects",
        },
    ),
}
"""Chapter of the page -> the text, and each of its sections -> words that begin or mark the section in the text."""


MISSING = re.findall(r"^- (\w+): (.+)$", PAGE.partition(f"\n## {NOT_BUILT}\n")[2], re.MULTILINE)


@cache
def names_of_tests(file: str) -> frozenset[str]:
    """Names of the tests of a file. A state machine of hypothesis is a test by assignment: ``TestX = … .TestCase``."""
    if not (TESTS / file).is_file():
        return frozenset()
    module = ast.parse((TESTS / file).read_text())
    functions = {n.name for n in module.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    assigned = {t.id for n in module.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    return frozenset(n for n in functions if n.startswith("test_")) | {n for n in assigned if re.match("Test[A-Z]", n)}


def left_out_tests(named: Iterable[str], cases: Iterable[tuple[str, bool]]) -> list[str]:
    """Named tests that a run leaves out: all their cases are missing or skipped.

    Args:
        named: tests as the page names them, ``file::test``.
        cases: node id of each test case of the run, and whether a mark skips the case.
    """
    run = {name_of_test(node_id) for node_id, is_skipped in cases if not is_skipped}
    return [test for test in named if test not in run]


def is_skipped_by_mark(item: pytest.Item) -> bool:
    """Whether a mark ``skip`` or ``skipif`` skips a test case here. An item without such a mark may still skip."""
    return evaluate_skip_marks(item) is not None


def reason_for_a_part(config: pytest.Config) -> str | None:
    """Why a run is not one of the complete runs; None if it is."""
    if config.args != config.getini("testpaths"):
        return f"only a part of the suite runs: {' '.join(config.args)}"
    for option in ("keyword", "deselect", "ignore", "ignore_glob", "lf"):
        if config.getoption(option, None):
            return f"only a part of the suite runs: an option sets {option!r}"
    if config.getoption("markexpr") not in COMPLETE_RUNS:
        return f"the marker expression is {config.getoption('markexpr')!r}, not {' or '.join(map(repr, COMPLETE_RUNS))}"
    return None


@cache
def routes() -> frozenset[str]:
    """``METHOD /path`` of everything that the service describes, and of the description itself."""
    from nova_assets.service.assembly import make_app

    app = make_app(cast(Any, None))
    described = {f"{method.upper()} {path}" for path, item in app.openapi()["paths"].items() for method in item}
    return frozenset({f"GET {app.openapi_url}", *described})


def problem_of(name: str) -> str | None:
    """What is wrong with a public name; None if it exists.

    The kinds: ``nova.X``, ``store.X``, ``nova_assets.room.X``, each with ``(argument=)``; ``nova command --option``,
    also with a subcommand; ``[tool.nova] setting``; ``GET /path``; ``python -m module``; ``nova/entry``; ``SQL WORD``.
    """
    if match := re.fullmatch(r"(nova|store|nova_assets)\.([\w.]+)(?:\((\w+)=\))?", name):
        return _problem_of_python(*match.groups())
    if match := re.fullmatch(r"nova(?: ([a-z][a-z-]*))?(?: ([a-z][a-z-]*))?(?: (--[a-z-]+))?", name):
        return _problem_of_command(*match.groups())
    if match := re.fullmatch(r"\[tool\.nova\] (\w+)", name):
        return None if match[1] in Settings.__dataclass_fields__ else "no such setting"
    if re.fullmatch(r"(GET|POST) /\S+", name):
        return None if name in routes() else "no such route"
    if match := re.fullmatch(r"python -m ([\w.]+)", name):
        file = ROOT.joinpath(*match[1].split("."))
        return None if file.with_suffix(".py").is_file() or (file / "__main__.py").is_file() else "no such module"
    if re.fullmatch(r"nova/\w+", name):
        files = (ROOT / "nova_assets" / "dagster_bridge").rglob("*.py")
        return None if any(f'"{name}"' in f.read_text() for f in files) else "no such entry"
    if match := re.fullmatch(r"SQL ([A-Z ]+)", name):
        guide = (ROOT / "docs" / "guides" / "sql.md").read_text()
        return None if re.search(rf"\b{match[1]}\b", guide) else "not in the guide"
    return "of no known kind"


def _problem_of_python(owner: str, path: str, argument: str | None) -> str | None:
    parts = path.split(".")
    value: Any = nova_assets
    if owner == "store":
        value = nova_assets.Store
    elif owner == "nova_assets":
        value, parts = importlib.import_module(".".join([owner, *parts[:-1]])), parts[-1:]
    for part in parts:
        if part in getattr(value, "__dataclass_fields__", ()) or part in getattr(value, "__annotations__", ()):
            return None if argument is None else "a field has no argument"
        if not hasattr(value, part):
            return f"no {part}"
        value = getattr(value, part)
    if argument is None:
        return None
    return None if argument in inspect.signature(value).parameters else f"no argument {argument}"


def _problem_of_command(name: str | None, subcommand: str | None, option: str | None) -> str | None:
    if name is None:
        return None
    if name not in COMMANDS:
        return "no such command"
    command = cli.get_command(click.Context(cli), name)
    if subcommand is not None:
        command = command.commands.get(subcommand) if isinstance(command, click.Group) else None
    if command is None:
        return f"no subcommand {subcommand}"
    options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    return None if option is None or option in options else f"no option {option}"


def test_there_are_rows() -> None:
    assert len(ROWS) > 300, "the page was read"
    assert all(row.section and row.behaviour.endswith(".") and row.names for row in ROWS)


def test_each_row_names_a_test_that_exists() -> None:
    missing = [r.test for r in ROWS if r.test.partition("::")[2] not in names_of_tests(r.test.partition("::")[0])]
    assert missing == []


def test_the_complete_runs_are_those_of_make() -> None:
    expressions = re.findall(r"^\t@\$\(PY\) \$\(PYTEST\) -m '(.+)'", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(COMPLETE_RUNS) < set(expressions)


def test_each_named_test_runs_in_this_suite(request: pytest.FixtureRequest) -> None:
    if (reason := reason_for_a_part(request.config)) is not None:
        pytest.skip(reason)
    cases = [(item.nodeid, is_skipped_by_mark(item)) for item in request.session.items]
    left_out = set(left_out_tests([row.test for row in ROWS], cases))
    assert [f"{row.number} {row.test}" for row in ROWS if row.test in left_out] == []


def test_a_test_is_left_out_without_a_case_that_runs() -> None:
    cases = [
        ("nova_assets_tests/a/test_a.py::test_some[one]", True),
        ("nova_assets_tests/a/test_a.py::test_some[two::x]", False),
        ("nova_assets_tests/a/test_a.py::test_skipped[one]", True),
        ("nova_assets_tests/a/test_a.py::TestMachine::runTest", False),
    ]
    named = [f"a/test_a.py::{name}" for name in ("test_some", "test_skipped", "test_none", "test_som", "TestMachine")]
    left_out = ["a/test_a.py::test_skipped", "a/test_a.py::test_none", "a/test_a.py::test_som"]
    assert left_out_tests(named, cases) == left_out


@pytest.mark.parametrize(
    ("mark", "skips"),
    [
        (pytest.mark.skip(reason="never"), True),
        (pytest.mark.skipif(True, reason="here"), True),
        (pytest.mark.skipif("sys.maxsize > 1"), True),
        (pytest.mark.skipif(False, reason="elsewhere"), False),
        (pytest.mark.skipif("sys.maxsize < 1"), False),
        (pytest.mark.slow, False),
    ],
)
def test_a_mark_that_skips_is_seen(request: pytest.FixtureRequest, mark: pytest.MarkDecorator, skips: bool) -> None:
    assert not is_skipped_by_mark(request.node)
    request.node.add_marker(mark)
    assert is_skipped_by_mark(request.node) == skips


def test_each_row_names_public_names_that_exist() -> None:
    problems = {f"{row.number} {name}": problem_of(name) for row in ROWS for name in row.names}
    assert {name: problem for name, problem in problems.items() if problem is not None} == {}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nova.Chanel", "no Chanel"),
        ("nova.bind(if_=)", "no argument if_"),
        ("store.inspect", "no inspect"),
        ("nova_assets.testing.check_lores", "no check_lores"),
        ("nova rum", "no such command"),
        ("nova gc --wet-run", "no option --wet-run"),
        ("nova token lend", "no subcommand lend"),
        ("[tool.nova] colour", "no such setting"),
        ("GET /v2/channels", "no such route"),
        ("POST /v1/channels", "no such route"),
        ("python -m examples.opera", "no such module"),
        ("nova/colour", "no such entry"),
        ("SQL WHILE", "not in the guide"),
        ("insert", "of no known kind"),
    ],
)
def test_that_check_can_fail(name: str, problem: str) -> None:
    assert problem_of(name) == problem
    assert "test_that_check_can_fail" in names_of_tests("test_coverage_page.py")
    assert not names_of_tests("test_coverage_page.py") & {"names_of_tests", "ROWS", "Row"} and not names_of_tests(
        "no.py"
    )


@pytest.mark.parametrize("chapter", SECTIONS)
def test_each_section_of_a_text_has_rows(chapter: str) -> None:
    file, sections = SECTIONS[chapter]
    assert list(dict.fromkeys(r.section for r in ROWS if r.chapter == chapter)) == list(sections)
    if (SEEDS / file).is_file():
        text = (SEEDS / file).read_text()
        assert [words for words in sections.values() if words not in text] == []


def test_every_behaviour_is_in_a_table_or_in_the_list_of_those_that_are_not_built() -> None:
    assert list(dict.fromkeys(r.chapter for r in ROWS)) == list(SECTIONS)
    numbers = [r.number for r in ROWS] + [number for number, _ in MISSING]
    assert len(numbers) == len(set(numbers)), "a behaviour is in one of them only"
    for letter in "NHBS":
        counted = sorted(int(n[1:]) for n in numbers if n[0] == letter)
        assert counted == list(range(1, len(counted) + 1)), f"a number of {letter} is missing"
    behaviours = [(r.chapter, r.behaviour) for r in ROWS]
    assert len(behaviours) == len(set(behaviours)), "a behaviour is listed twice"
