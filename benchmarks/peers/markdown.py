"""Results as Markdown, for the docs: tables, then versions and settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.peers import registry, tables
from benchmarks.peers.results import Result
from benchmarks.peers.session import COMMON
from benchmarks.peers.workloads import ALL


def markdown(results: Sequence[Result], picture: str | None = None) -> str:
    parts = [] if picture is None else [f"![Seconds by workload and system]({picture})", ""]
    for workload in ALL:
        found = tables.lines(results, workload)
        if found:
            parts += [f"### {workload.title} (`{workload.name}`)", ""]
            parts += [*_table(tables.columns(workload, found), tables.cells(workload, found)), ""]
    parts += [*_about(results), *_troubles(results), tables.headline(results), ""]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    rule = "|".join(["---", *["---:"] * (len(head) - 1)])
    return [f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(r)} |" for r in rows)]


def _about(results: Sequence[Result]) -> list[str]:
    """Each system with its versions and settings, of either layout where they differ."""
    common = " ".join(f"`{k}={v}`" for k, v in COMMON.items())
    parts = ["### Versions and settings", "", f"All on Spark: {common}", ""]
    for name in dict.fromkeys(r.key.system for r in results):
        mine = [r for r in results if r.key.system == name and r.versions]
        if not mine:
            continue
        versions = ", ".join(f"{k} {v}" for k, v in mine[-1].versions.items())
        parts.append(f"- **{name}** ({versions}): {registry.system(name).lines}.")
        settings: dict[str, list[str]] = {}
        for result in mine:
            for key, value in result.settings.items():
                if value not in settings.setdefault(key, []):
                    settings[key].append(value)
        parts.append("  " + " ".join(f"`{k}={' or '.join(v)}`" for k, v in settings.items()))
    return [*parts, ""]


def _troubles(results: Sequence[Result]) -> list[str]:
    found = tables.troubles(results)
    return ["### Wrong answers and failures", "", *(f"- {t}" for t in found), ""] if found else []
