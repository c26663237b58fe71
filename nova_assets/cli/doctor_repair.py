"""``nova doctor --repair`` and ``--verify``: find and repair damage between catalog, warehouse and Dagster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from nova_assets.cli.command import CommandResult
from nova_assets.cli.deployment import Deployment, read_catalog_version
from nova_assets.cli.rendering import escape_unprintable, format_count, pluralize, print_progress
from nova_assets.errors import CatalogVersion, NotSupported
from nova_assets.model.damage import Damage, DamageKind, DamageReport, RepairOutcome
from nova_assets.store.repair import ProgressCallback, Repair
from nova_assets.store.store import Store

if TYPE_CHECKING:
    from nova_assets.dagster_bridge.repair import DagsterRepair

DamageState = Literal["told", "found", "mended", "remains"]

_HEADING_BY_KIND: dict[DamageKind, str] = {
    "staged": "Staged files of dead executions",
    "lapsed": "Executions whose lease has expired",
    "file": "Files missing or changed",
    "orphan": "Files that the catalog does not list",
    "upload": "Unfinished uploads",
    "unpublished": "Commits that Dagster does not show",
    "event": "Events of Dagster without commits",
    "firing": "Firings without a run",
}

_MAX_LISTED = 20
"""Maximum number of damages of one kind in the text output."""


@dataclass(frozen=True, slots=True)
class DamageWithState:
    """A damage and the outcome of its repair.

    Args:
        damage: the damage.
        state: ``told`` (only reported, nothing is wrong), ``found`` (a repair would fix it), ``mended`` or ``remains``.
        explanation: reason why the damage remains, or description of the repair.
    """

    damage: Damage
    state: DamageState
    explanation: str = ""


def repair_deployment(deployment: Deployment, dry_run: bool) -> CommandResult:
    """Examine catalog, warehouse and Dagster, and repair the damage unless ``dry_run``."""
    if not _has_examinable_catalog(deployment, may_migrate=not dry_run):
        data = _report_json(dry_run, {}, [_NO_CATALOG], [])
        return CommandResult(data, lambda console: console.print(f"Nothing to repair: {_NO_CATALOG}."))
    on_progress = partial(print_progress, quiet=deployment.quiet)
    with deployment.open(dry_run=dry_run) as store:
        nova_repair = Repair(store.runtime, store.settings.gc_grace, on_progress)
        with _open_dagster_repair(store, on_progress) as (dagster_repair, notes):
            examination = nova_repair.find_damages().merged_with(DamageReport(notes=notes))
            examination = (
                examination if dagster_repair is None else examination.merged_with(dagster_repair.find_damages())
            )
            damages = (
                _damages_without_repair(examination)
                if dry_run
                else _damages_after_repair(examination, _run_repairs(nova_repair, dagster_repair, examination))
            )
    return CommandResult(
        _report_json(dry_run, examination.counts, examination.notes, damages),
        lambda console: _show_damages(console, examination, damages, dry_run),
        exit_code=1 if _remaining_count(damages) else 0,
    )


_NO_CATALOG = "there is no catalog yet"


def _has_examinable_catalog(deployment: Deployment, may_migrate: bool) -> bool:
    """Whether there is a catalog that can be examined.

    Raises:
        CatalogVersion: the catalog would have to be migrated, and may not be.
    """
    from nova_assets.catalog.schema_version import HEAD

    version = read_catalog_version(deployment.settings.catalog)
    if not may_migrate and version is not None and version < HEAD:
        raise CatalogVersion(
            "the catalog is of an older version, and a dry run changes nothing",
            found=version,
            expected=HEAD,
            next="nova init, which migrates the catalog",
        )
    return version is not None


def verify_files(deployment: Deployment, sample_size: int | None) -> CommandResult:
    """Compare the bytes of data files with their recorded digests. Changes nothing.

    Args:
        sample_size: number of files per channel, chosen at random; None for all files.
    """
    if not _has_examinable_catalog(deployment, may_migrate=False):
        data = _report_json(True, {}, [_NO_CATALOG], [])
        return CommandResult(data, lambda console: console.print(f"Nothing to verify: {_NO_CATALOG}."))
    on_progress = partial(print_progress, quiet=deployment.quiet)
    with deployment.open_read_only(with_project=True) as store:
        nova_repair = Repair(
            store.runtime, store.settings.gc_grace, on_progress, thorough=True, sample_size=sample_size
        )
        examination = nova_repair.verify_files()
    damages = _damages_without_repair(examination)
    remaining = _remaining_count(damages)

    def show(console: Console) -> None:
        if remaining:
            _show_damages(console, examination, damages, True)
        else:
            console.print(f"{pluralize(examination.counts['files'], 'file')} match their digests.")

    data = _report_json(True, examination.counts, [], damages)
    return CommandResult(data, show, exit_code=1 if remaining else 0)


@contextlib.contextmanager
def _open_dagster_repair(
    store: Store, on_progress: ProgressCallback
) -> Iterator[tuple[DagsterRepair | None, tuple[str, ...]]]:
    """Repair of Dagster's records, or None with a note that gives the reason why Dagster is not examined."""
    if not store.project.channels:
        yield None, ("Dagster was not examined: no project is configured, so its assets are unknown",)
        return
    if not os.environ.get("DAGSTER_HOME"):
        yield None, ("Dagster was not examined: DAGSTER_HOME is not set",)
        return
    from nova_assets.dagster_bridge.repair import DagsterRepair, open_existing_instance

    with contextlib.ExitStack() as exit_stack:
        try:
            instance = exit_stack.enter_context(open_existing_instance())
        except NotSupported as reason:
            yield None, (f"Dagster was not examined: {reason.what}",)
            return
        yield DagsterRepair(store, instance, on_progress), ()


def _run_repairs(
    nova_repair: Repair, dagster_repair: DagsterRepair | None, examination: DamageReport
) -> list[RepairOutcome]:
    if dagster_repair is not None and any(d.cure == "sweep" for d in examination.damages):
        dagster_repair.settle_consumers()
    outcomes = nova_repair.repair_damages(examination.damages)
    return outcomes if dagster_repair is None else [*outcomes, *dagster_repair.repair_damages(examination.damages)]


def _damages_without_repair(examination: DamageReport) -> list[DamageWithState]:
    return [
        DamageWithState(d, "told" if not d.wrong else "found" if d.cure else "remains") for d in examination.damages
    ]


def _damages_after_repair(examination: DamageReport, outcomes: list[RepairOutcome]) -> list[DamageWithState]:
    outcomes_by_damage = {id(o.damage): o for o in outcomes}
    damages = []
    for damage in examination.damages:
        outcome = outcomes_by_damage.get(id(damage))
        if outcome is not None:
            damages.append(DamageWithState(damage, "mended" if outcome.mended else "remains", outcome.detail))
        else:
            damages.append(DamageWithState(damage, "remains" if damage.wrong else "told"))
    return damages


def _remaining_count(damages: Sequence[DamageWithState]) -> int:
    return sum(d.state in ("found", "remains") for d in damages)


def _report_json(
    dry_run: bool, counts: Mapping[str, int], notes: Sequence[str], damages: Sequence[DamageWithState]
) -> dict[str, Any]:
    remaining = _remaining_count(damages)
    return {
        "dry_run": dry_run,
        "whole": remaining == 0,
        "remaining": remaining,
        "counts": dict(counts),
        "notes": list(notes),
        "damages": [_damage_json(d) for d in damages],
    }


def _damage_json(damage: DamageWithState) -> dict[str, Any]:
    damage_fields = asdict(damage.damage)
    return {
        **damage_fields,
        "concerns": list(damage.damage.concerns),
        "state": damage.state,
        "says": damage.explanation,
    }


def _show_damages(console: Console, examination: DamageReport, damages: list[DamageWithState], dry_run: bool) -> None:
    for kind, heading in _HEADING_BY_KIND.items():
        damages_of_kind = [t for t in damages if t.damage.kind == kind]
        if damages_of_kind:
            console.print(f"{heading} ({format_count(len(damages_of_kind))})")
            for t in damages_of_kind[:_MAX_LISTED]:
                _show_damage(console, t)
            if len(damages_of_kind) > _MAX_LISTED:
                console.print(f"  and {format_count(len(damages_of_kind) - _MAX_LISTED)} more (--json lists them all)")
            console.print()
    for note in examination.notes:
        console.print(f"({note}.)")
    console.print(_format_conclusion(examination, damages, dry_run))


def _show_damage(console: Console, damage_with_state: DamageWithState) -> None:
    from rich.padding import Padding

    damage = damage_with_state.damage
    console.print(Padding(escape_unprintable(damage.what), (0, 0, 0, 2), expand=False))
    for line in (f"means: {damage.means}", f"→ {_format_damage_state(damage_with_state)}"):
        console.print(Padding(escape_unprintable(line), (0, 0, 0, 4), expand=False))


def _format_damage_state(damage: DamageWithState) -> str:
    if damage.state == "found":
        return f"would be repaired: {damage.damage.mending}"
    if damage.state == "mended":
        return f"repaired: {damage.explanation or damage.damage.mending}"
    return (
        f"not repaired: {damage.explanation}"
        if damage.explanation
        else damage.damage.next or "this command cannot repair it"
    )


def _format_conclusion(examination: DamageReport, damages: list[DamageWithState], dry_run: bool) -> str:
    counts = examination.counts
    examined_text = f"{pluralize(counts['files'], 'file')} of {pluralize(counts['blocks'], 'block')} were examined"
    examined_text += f", and {pluralize(counts['events'], 'event')} of Dagster" if "events" in counts else ""
    repairable, repaired, remaining = (sum(t.state == s for t in damages) for s in ("found", "mended", "remains"))
    if not repairable and not repaired and not remaining:
        intact = f"{pluralize(counts['files'], 'file')} of {pluralize(counts['blocks'], 'block')} are intact"
        dagster_text = ", and Dagster shows the commits of the catalog" if "events" in counts else ""
        return f"Nothing to repair: {intact}{dagster_text}."
    if dry_run:
        not_repairable = f"; {remaining} cannot be repaired here" if remaining else ""
        return f"{repairable} would be repaired by nova doctor --repair{not_repairable}. {examined_text.capitalize()}."
    return f"{repaired} repaired, {remaining} still wrong. {examined_text.capitalize()}."
