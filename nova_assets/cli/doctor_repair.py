"""``nova doctor --repair``: what is broken between catalog, warehouse and Dagster, what that means, and mending it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from nova_assets.cli.command import Answer
from nova_assets.cli.deployment import Deployment, catalog_version
from nova_assets.cli.rendering import in_one_line, number, plural, progress
from nova_assets.errors import CatalogVersion, NotSupported
from nova_assets.model.damage import Damage, DamageKind, Examination, Outcome
from nova_assets.operations.repair import Repair, Tell
from nova_assets.store.store import Store

if TYPE_CHECKING:
    from nova_assets.dagster_bridge.repair import DagsterRepair

State = Literal["told", "found", "mended", "remains"]

HEADINGS: dict[DamageKind, str] = {
    "staged": "Staged leftovers",
    "lapsed": "Executions whose lease is over",
    "file": "Files missing or changed",
    "orphan": "Files that nobody lists",
    "upload": "Uploads that nobody has finished",
    "unpublished": "Commits that Dagster has not heard of",
    "event": "Dagster's events without commits",
    "firing": "Firings without a run",
}

_LISTED = 20
"""Damages of one kind that are listed for a person."""


@dataclass(frozen=True, slots=True)
class Told:
    """A damage, and what has become of it.

    Args:
        state: ``told`` (nothing is wrong with it), ``found`` (a dry run would mend it), ``mended``, ``remains``.
        says: why it remains, or what else was done.
    """

    damage: Damage
    state: State
    says: str = ""


def repair(deployment: Deployment, dry_run: bool) -> Answer:
    """Examine everything; mend it, unless it is a dry run."""
    if not _is_there(deployment, dry_run):
        data = {"dry_run": dry_run, "whole": True, "remaining": 0, "counts": {}, "notes": [_NO_CATALOG], "damages": []}
        return Answer(data, lambda console: console.print(f"Nothing to repair: {_NO_CATALOG}."))
    tell = partial(progress, quiet=deployment.quiet)
    with deployment.look(with_project=True) if dry_run else deployment.open() as store:
        own = Repair(store.runtime, store.settings.collect_grace, tell)
        with _dagster(store, tell) as (side, notes):
            found = own.examine().and_also(Examination(notes=notes))
            found = found if side is None else found.and_also(side.examine())
            told = _found(found) if dry_run else _mended(found, _mend(own, side, found))
    remaining = sum(t.state in ("found", "remains") for t in told)
    data = {
        "dry_run": dry_run,
        "whole": remaining == 0,
        "remaining": remaining,
        "counts": dict(found.counts),
        "notes": list(found.notes),
        "damages": [_as_json(t) for t in told],
    }
    return Answer(data, lambda console: _show(console, found, told, dry_run), code=1 if remaining else 0)


_NO_CATALOG = "there is no catalog yet"


def _is_there(deployment: Deployment, dry_run: bool) -> bool:
    """Whether there is a catalog to examine.

    Raises:
        CatalogVersion: a dry run would have to migrate it.
    """
    from nova_assets.catalog.schema_version import HEAD

    version = catalog_version(deployment.settings.catalog)
    if dry_run and version is not None and version < HEAD:
        raise CatalogVersion(
            "the catalog is of an older version, and a dry run changes nothing",
            found=version,
            expected=HEAD,
            next="nova init, which migrates it",
        )
    return version is not None


def verify(deployment: Deployment, sample: int | None) -> Answer:
    """Compare files with what was written, byte by byte; change nothing."""
    if not _is_there(deployment, dry_run=True):
        data = {"dry_run": True, "whole": True, "remaining": 0, "counts": {}, "notes": [_NO_CATALOG], "damages": []}
        return Answer(data, lambda console: console.print(f"Nothing to verify: {_NO_CATALOG}."))
    tell = partial(progress, quiet=deployment.quiet)
    with deployment.look(with_project=True) as store:
        own = Repair(store.runtime, store.settings.collect_grace, tell, thorough=True, sample=sample)
        found = own.verify()
    told = _found(found)
    remaining = sum(t.state in ("found", "remains") for t in told)
    data = {
        "dry_run": True,
        "whole": remaining == 0,
        "remaining": remaining,
        "counts": dict(found.counts),
        "notes": [],
        "damages": [_as_json(t) for t in told],
    }

    def show(console: Console) -> None:
        if remaining:
            _show(console, found, told, True)
        else:
            console.print(f"{plural(found.counts['files'], 'file')} hold what was written.")

    return Answer(data, show, code=1 if remaining else 0)


@contextlib.contextmanager
def _dagster(store: Store, tell: Tell) -> Iterator[tuple[DagsterRepair | None, tuple[str, ...]]]:
    """Dagster's side, where there is one; or why it is not looked at."""
    if not store.project.channels:
        yield None, ("Dagster was not looked at: no project is configured, so its assets are not known",)
        return
    if not os.environ.get("DAGSTER_HOME"):
        yield None, ("Dagster was not looked at: DAGSTER_HOME is not set",)
        return
    from nova_assets.dagster_bridge.repair import DagsterRepair, opened

    with contextlib.ExitStack() as held:
        try:
            instance = held.enter_context(opened())
        except NotSupported as reason:
            yield None, (f"Dagster was not looked at: {reason.what}",)
            return
        yield DagsterRepair(store, instance, tell), ()


def _mend(own: Repair, side: DagsterRepair | None, found: Examination) -> list[Outcome]:
    if side is not None and any(d.cure == "sweep" for d in found.damages):
        side.settle()
    outcomes = own.mend(found.damages)
    return outcomes if side is None else [*outcomes, *side.mend(found.damages)]


def _found(found: Examination) -> list[Told]:
    return [Told(d, "told" if not d.wrong else "found" if d.cure else "remains") for d in found.damages]


def _mended(found: Examination, outcomes: list[Outcome]) -> list[Told]:
    became = {id(o.damage): o for o in outcomes}
    told = []
    for damage in found.damages:
        outcome = became.get(id(damage))
        if outcome is not None:
            told.append(Told(damage, "mended" if outcome.mended else "remains", outcome.says))
        else:
            told.append(Told(damage, "remains" if damage.wrong else "told"))
    return told


def _as_json(told: Told) -> dict[str, Any]:
    shown = asdict(told.damage)
    return {**shown, "concerns": list(told.damage.concerns), "state": told.state, "says": told.says}


def _show(console: Console, found: Examination, told: list[Told], dry_run: bool) -> None:
    for kind, heading in HEADINGS.items():
        some = [t for t in told if t.damage.kind == kind]
        if some:
            console.print(f"{heading} ({number(len(some))})")
            for t in some[:_LISTED]:
                _show_one(console, t)
            if len(some) > _LISTED:
                console.print(f"  and {number(len(some) - _LISTED)} more (--json lists them all)")
            console.print()
    for note in found.notes:
        console.print(f"({note}.)")
    console.print(_conclusion(found, told, dry_run))


def _show_one(console: Console, told: Told) -> None:
    from rich.padding import Padding

    damage = told.damage
    console.print(Padding(in_one_line(damage.what), (0, 0, 0, 2), expand=False))
    for line in (f"means: {damage.means}", f"→ {_becomes(told)}"):
        console.print(Padding(in_one_line(line), (0, 0, 0, 4), expand=False))


def _becomes(told: Told) -> str:
    if told.state == "found":
        return f"would be mended: {told.damage.mending}"
    if told.state == "mended":
        return f"mended: {told.says or told.damage.mending}"
    return f"not mended: {told.says}" if told.says else told.damage.next or "nothing can be done about it here"


def _conclusion(found: Examination, told: list[Told], dry_run: bool) -> str:
    counts = found.counts
    looked = f"{plural(counts['files'], 'file')} of {plural(counts['blocks'], 'block')} were looked at"
    looked += f", and {plural(counts['events'], 'event')} of Dagster's" if "events" in counts else ""
    mendable, mended, remains = (sum(t.state == s for t in told) for s in ("found", "mended", "remains"))
    if not mendable and not mended and not remains:
        there = f"{plural(counts['files'], 'file')} of {plural(counts['blocks'], 'block')} are there"
        more = ", and Dagster shows what the catalog says" if "events" in counts else ""
        return f"Nothing to repair: {there}{more}."
    if dry_run:
        beyond = f"; {remains} cannot be mended here" if remains else ""
        return f"{mendable} would be mended by nova doctor --repair{beyond}. {looked.capitalize()}."
    return f"{mended} mended, {remains} wrong still. {looked.capitalize()}."
