"""Writes docs/api.md: every public name with its signature and what its docstring says; and two tables in
docs/reference.md: of conversions, and of Spark's functions. ``--check`` only compares.

The docstrings are read from the source by griffe. Of the package only its names and its pure rules are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

from nova_assets import _HOMES
from nova_assets.model.value_conversion import KINDS, NOTATIONS, RULES
from nova_assets.sql.evaluation.evaluator import RULE_MODULES as EVALUATED
from nova_assets.sql.evaluation.rule_registry import argument_counts_by_function
from nova_assets.sql.parse import spark_functions
from nova_assets.sql.types.node_types import describe_function_types

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
REFERENCE = ROOT / "docs" / "reference.md"
BEGIN, END = "<!-- conversions: made by tools/reference.py -->\n", "<!-- end of conversions -->\n"
FUNCTIONS, END_OF_FUNCTIONS = "<!-- functions: made by tools/reference.py -->\n", "<!-- end of functions -->\n"

CHAPTERS = {
    "Data": (
        "model.channel",
        "model.compaction",
        "model.merge",
        "model.function_reference",
        "model.partitions",
        "model.block",
        "model.commit",
        "model.file_source",
        "model.external_table",
        "model.database_table",
        "model.seal",
        "model.published_table",
    ),
    "Tasks and bindings": ("model.edge", "model.task", "model.modes_view", "model.data_check", "model.workflowette"),
    "SQL": (
        "sql.datasets.dataset_bindings",
        "sql.query.user_functions",
        "sql.datasets.sql_task",
        "sql.incremental.incremental_task",
        "sql.incremental.apply_changes",
    ),
    "Bindings, triggers, projects": ("model.binding", "model.resources", "model.trigger", "model.project"),
    "Running": (
        "wiring.open_store",
        "store.store",
        "model.execution",
        "plan.run_plan",
        "store.forecast",
        "model.notification",
        "model.backup",
    ),
    "Views and the service": ("file_views.file_lists", "client.connection"),
}
FURTHER = {
    "Checks that many channels need (`nova.checks`)": {
        "model.checks": (
            "not_null",
            "unique",
            "accepted_values",
            "relationships",
            "expression",
            "row_count_between",
            "freshness",
        ),
    },
    "What is read": {
        "store.read": ("Selection", "Pinned"),
        "client.rows": ("RemoteSelection",),
    },
    "Under Dagster (`nova_assets.dagster_bridge`)": {
        "dagster_bridge.definitions": ("build_definitions",),
        "dagster_bridge.nova_asset": ("nova_asset",),
        "dagster_bridge.condition": ("has_unread",),
        "dagster_bridge.resources": ("NovaResource", "NovaIOManager"),
        "dagster_bridge.launch": ("launch_due",),
    },
    "For tests (`nova_assets.testing`)": {"testing": ("World", "check_laws", "check_incremental")},
}
_OPTIONS: Any = {"warn_unknown_params": False, "warn_missing_types": False}
_INSIDE = {"as_json", "from_json", "problems"}  # between the package's own rooms

INTRODUCTION = """# Public names

This page is made from the docstrings by `tools/reference.py`. Names without a module come from `import nova_assets as
nova`. [reference.md](reference.md) lists settings, commands and errors. [concepts.md](concepts.md) explains the words.
"""


def page() -> str:
    """The whole page."""
    package = griffe.load(
        "nova_assets", search_paths=[str(ROOT)], docstring_parser="google", docstring_options=_OPTIONS
    )
    assert {m for chapter in CHAPTERS.values() for m in chapter} == set(_HOMES), "every home is in a chapter"
    parts = [INTRODUCTION]
    for title, modules in CHAPTERS.items():
        parts.append(f"## {title}\n")
        parts += [entry(package[m][name], "nova.") for m in modules for name in _HOMES[m]]
    for title, homes in FURTHER.items():
        parts.append(f"## {title}\n")
        parts += [entry(package[m][name], "") for m, names in homes.items() for name in names]
    return "\n".join(parts)


def entry(found: Any, prefix: str) -> str:
    """One name: how it is called, what it means, its arguments, what it raises; a class with its public methods."""
    lines = [f"### `{prefix}{found.name}`\n", *described(found, signature(found, f"{prefix}{found.name}"))]
    if found.is_class:
        for member in map(_forwarding_target, {**found.members, **_inherited(found)}.values()):
            public = (
                not member.name.startswith("_")
                and member.name not in _INSIDE
                and not member.is_alias
                and member.docstring is not None
            )
            if public and member.is_function and "property" not in member.labels:
                lines += [f"#### `{found.name}.{member.name}`\n", *described(member, signature(member, member.name))]
    return "\n".join(lines)


def _forwarding_target(member: Any) -> Any:
    """Method of a part that a class forwards to, as in ``name = forwarded("part", Part.name)``. Or else the member."""
    value = member.value if member.is_attribute else None
    if not isinstance(value, griffe.ExprCall) or value.canonical_path != "nova_assets.store.store.forwarded":
        return member
    target: Any = value.arguments[-1]
    return member.package[target.canonical_path.removeprefix("nova_assets.")]


def _inherited(found: Any) -> dict[str, Any]:
    """Members of the parts that a class is put together from."""
    return {n: m.target for n, m in found.inherited_members.items() if m.target.module.package.name == "nova_assets"}


def described(found: Any, how: str) -> Iterator[str]:
    if how:
        yield f"```text\n{how}\n```\n"
    for section in found.docstring.parsed if found.docstring is not None else ():
        kind = section.kind.value
        if kind == "text":
            yield f"{section.value}\n"
        elif kind == "parameters":
            yield "\n".join(f"- `{p.name}`: {' '.join(p.description.split())}" for p in section.value) + "\n"
        elif kind == "raises":
            yield "Raises:\n"
            yield "\n".join(f"- `{r.annotation}`: {' '.join(r.description.split())}" for r in section.value) + "\n"


def signature(found: Any, name: str) -> str:
    """How it is called, one argument a line where that does not fit."""
    function = found
    if found.is_class:
        function = found.members.get("__init__")
        if function is None or function.is_alias:
            return ""
    if not function.is_function:
        return ""
    arguments = list(_arguments(function.parameters))
    returns = "" if found.is_class or function.returns is None else f" -> {function.returns}"
    short = f"{name}({', '.join(arguments)}){returns}"
    return short if len(short) <= 110 else "{}(\n    {},\n){}".format(name, ",\n    ".join(arguments), returns)


def _arguments(parameters: Any) -> Iterator[str]:
    named_only = False
    for p in parameters:
        if p.name in ("self", "cls"):
            continue
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(p.kind.value, "")
        if p.kind.value == "keyword-only" and not named_only:
            named_only = True
            yield "*"
        typed = f"{stars}{p.name}" + (f": {p.annotation}" if p.annotation is not None else "")
        yield typed if p.default is None or stars else f"{typed} = {p.default}"


def conversions() -> str:
    """The table of conversions: declared type by class of value; then the text that stands for values."""
    lines = ["| declared type | value | the value arrives if |", "|---|---|---|"]
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for declared, rules in RULES.items():
        alike.setdefault(tuple(rules.items()), []).append(f"`{declared}`")
    for cells, types in alike.items():
        lines += [f"| {', '.join(types)} | {value} | {condition} |" for value, condition in cells]
    lines += ["", "| declared type | text in CSV | text in JSON and dicts |", "|---|---|---|"]
    csv, json = NOTATIONS["csv"], NOTATIONS["json"]
    lines += [f"| `{d}` | {csv.get(d, 'no')} | {json.get(d, 'no')} |" for d in RULES if d in csv or d in json]
    lines += ["", "| input | text for other types | NaN becomes |", "|---|---|---|"]
    notations = {"none": "no", "json": "as JSON", "csv": "as CSV"}
    lines += [f"| {k.name} | {notations[k.notation]} | {'null' if k.nan_is_null else 'NaN'} |" for k in KINDS]
    return "\n".join(lines) + "\n"


def functions() -> str:
    """The table of Spark's functions: the type of each, and whether it is evaluated on partitions."""
    assert EVALUATED, "the rules are registered"
    kinds = {
        "aggregate": spark_functions.AGGREGATES,
        "window": spark_functions.WINDOW_FUNCTIONS,
        "rows": spark_functions.GENERATOR_FUNCTIONS,
        "value": spark_functions.SCALAR_FUNCTIONS,
    }
    types, evaluated = describe_function_types(), argument_counts_by_function()
    lines = ["| function | kind | type | on partitions |", "|---|---|---|---|"]
    for name in sorted(spark_functions.EXPRESSION_FUNCTIONS):
        kind = next(k for k, names in kinds.items() if name in names)
        where = "evaluated" if name in evaluated else "unknown"
        lines.append(f"| `{name}` | {kind} | {types.get(name, 'Spark is asked')} | {where} |")
    return "\n".join(lines) + "\n"


def between(text: str, begin: str, end: str, table: str) -> str:
    """A page with a table between its two marks."""
    before, rest = text.split(begin)
    return before + begin + table + end + rest.split(end)[1]


def reference(text: str) -> str:
    """The reference with its two tables."""
    with_conversions = between(text, BEGIN, END, conversions())
    return between(with_conversions, FUNCTIONS, END_OF_FUNCTIONS, functions())


def main() -> int:
    texts = {PAGE: page(), REFERENCE: reference(REFERENCE.read_text(encoding="utf-8"))}
    for path, text in texts.items():
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            print(f"{path.relative_to(ROOT)} is not what the code says; type: make reference", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
