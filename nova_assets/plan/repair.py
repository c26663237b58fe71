"""Damage reports with their repairs, decided without changing anything. Pure.

Active work is not damage. An execution is left alone until its lease and the following grace period are over, and a
file until it is older than any process takes to record it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from nova_assets.model.commit import Commit
from nova_assets.model.damage import CatalogPaths, Damage, DamageKind, UnfinishedUpload, WarehouseEntry
from nova_assets.model.execution import Execution, Firing

REPORT_DELAY = timedelta(minutes=1)
"""Time for the run or the sensor to report a commit to Dagster, before the commit counts as unreported."""

FIRING_DELAY = timedelta(hours=1)
"""Time that a firing may wait for a run before it is reported."""

_NOVA_PATH = re.compile(r"blocks/[A-Za-z0-9_-]+(/[^/]+)?")
"""Paths that this package creates: the folder of a block, and files directly in it."""

_NO_EFFECT_ON_ANSWERS = "no answer is affected: the staged blocks were never visible"


# staging


def leftover_damage(
    execution: Execution, staged_count: int, now: datetime, grace: timedelta, is_orphaned: bool = False
) -> Damage | None:
    """Damage report for what an execution has left behind, or may leave; None if there is nothing to report.

    Args:
        execution: the execution.
        staged_count: number of its staged blocks.
        now: current time.
        grace: time after the end of the execution or of its lease, in which its process may not have noticed the end.
        is_orphaned: the process that holds the lease is known to have ended.
    """
    is_lapsed = execution.has_lapsed(now)
    if is_orphaned and execution.state == "running" and not is_lapsed:
        execution_text = f"execution {execution.id[:8]} of {execution.binding or 'an insert'}"
        what = f"{execution_text} is held by {execution.owner}, which no longer runs"
        return Damage(
            "lapsed", execution.id, what, _NO_EFFECT_ON_ANSWERS, next=f"nova release {execution.id[:8]}", wrong=False
        )
    if not staged_count and not (is_lapsed and execution.state == "running"):
        return None
    kind: DamageKind = "lapsed" if is_lapsed and execution.state == "running" else "staged"
    staged = _format_count(staged_count, "staged block") if staged_count else "nothing staged"
    what = (
        f"execution {execution.id[:8]} of {execution.binding or 'an insert'} "
        f"{_describe_state(execution, is_lapsed)}, with {staged}"
    )
    sweep_time = sweep_time_of(execution, grace)
    if sweep_time < now:
        actions = ["the execution is aborted"] if is_lapsed else []
        actions += [f"{staged} {'is' if staged_count == 1 else 'are'} deleted"] if staged_count else []
        mending = " and ".join(actions)
        return Damage(kind, execution.id, what, _NO_EFFECT_ON_ANSWERS, "sweep", mending)
    until = f"nothing: unless the execution is resumed, it is swept from {sweep_time:%Y-%m-%d %H:%M:%S} UTC on"
    return Damage(kind, execution.id, what, _NO_EFFECT_ON_ANSWERS, next=until, wrong=False)


def sweep_time_of(execution: Execution, grace: timedelta) -> datetime:
    """Time from which the staged blocks of an execution may be swept, unless it is resumed."""
    ends = [execution.lease_until]
    if execution.state in ("aborted", "committed") and execution.finished_at is not None:
        ends.append(execution.finished_at)
    return min(ends) + grace


def _describe_state(execution: Execution, is_lapsed: bool) -> str:
    if is_lapsed:
        return f"did not renew its lease, which ended at {execution.lease_until:%Y-%m-%d %H:%M:%S} UTC"
    if execution.state == "running":
        return "is running"
    if execution.state == "failed":
        return f"failed and can be resumed until {execution.lease_until:%Y-%m-%d %H:%M:%S} UTC"
    return f"has ended ({execution.state})"


# Dagster


def unreported_commit_damage(commits: Iterable[Commit], now: datetime) -> list[Damage]:
    """Damage reports for unreported commits older than ``REPORT_DELAY``. A run or sensor may still report younger ones.

    Args:
        commits: commits that the catalog does not count as reported to Dagster.
    """
    return [
        Damage(
            "unpublished",
            commit.id,
            f"commit {commit.id[:8]} ({_format_commit_numbers(commit)}) of "
            f"{commit.at:%Y-%m-%d %H:%M:%S} UTC was not "
            "reported to Dagster, as far as the catalog knows",
            "every answer is correct, but Dagster does not show the commit, and its sensors have not fired for it",
            "publish",
            "the commit is reported to Dagster, as by the sensor nova_publish",
        )
        for commit in commits
        if now - commit.at > REPORT_DELAY
    ]


def dagster_mismatch_damage(
    channel: str, commits_in_dagster: frozenset[str], is_reported_by_commit: Mapping[str, bool]
) -> list[Damage]:
    """Damage reports for commits of a channel on which Dagster and the catalog disagree.

    Args:
        channel: name of the channel.
        commits_in_dagster: ids of the commits that Dagster knows.
        is_reported_by_commit: commit in the catalog -> whether the catalog considers it reported to Dagster.
    """
    unknown_commits, missing_events = (
        commits_in_dagster - set(is_reported_by_commit),
        {c for c, is_reported in is_reported_by_commit.items() if is_reported} - commits_in_dagster,
    )
    commit_count = len(is_reported_by_commit)
    mending = f"Dagster's events of {channel} are deleted, and all {commit_count} of its commits are reported again"
    found = []
    if unknown_commits:
        what = (
            f"Dagster has {_format_count(len(unknown_commits), 'materialization')} of {channel} from "
            "commits that the catalog does not contain"
        )
        means = (
            "every answer is correct. Dagster shows commits that do not exist, because the catalog was restored from a "
            "backup, or is another one. Dagster cannot delete single events, so the repair deletes all events of the "
            "asset, and the results of its checks"
        )
        found.append(Damage("event", channel, what, means, "rebuild", mending, concerns=tuple(sorted(unknown_commits))))
    if missing_events:
        what = f"Dagster has lost {_format_count(len(missing_events), 'commit')} of {channel} that were reported to it"
        means = "every answer is correct, but Dagster's history of the asset has gaps"
        found.append(
            Damage("unpublished", channel, what, means, "rebuild", mending, concerns=tuple(sorted(missing_events)))
        )
    return found


def waiting_firing_damage(firing: Firing, now: datetime) -> Damage | None:
    """Damage report for a firing whose run is unknown to Dagster; None while a delay is normal."""
    if now - firing.at <= FIRING_DELAY:
        return None
    return Damage(
        "firing",
        firing.run_key,
        f"firing {firing.n} of {firing.binding} has waited for a run since {firing.at:%Y-%m-%d %H:%M:%S} UTC",
        "the binding has not read its new data yet",
        next="nothing: the sensor requests the run again. If the firing keeps waiting, check that "
        f"{firing.binding}_sensor is on",
        wrong=False,
    )


# the warehouse


def orphan_damage(
    entries: Iterable[WarehouseEntry],
    known_paths: CatalogPaths,
    catalog_identities: frozenset[str],
    own_identity: str,
    now: datetime,
    grace: timedelta,
) -> list[Damage]:
    """Damage reports for unreferenced files and folders. Their owner determines whether they may be moved away.

    Args:
        entries: everything under ``blocks/``, listed before the catalog was queried.
        known_paths: paths that the catalog refers to.
        catalog_identities: identities of all catalogs that have written into the warehouse.
        own_identity: identity of this catalog.
        now: current time.
        grace: minimum age of reported files.
    """
    found = _unlisted_entries_by_path(entries, known_paths, now, grace)
    nova_paths = {path: some for path, some in found.items() if _has_nova_name(path, some)}
    foreign_paths = {path: some for path, some in found.items() if path not in nova_paths}
    foreign_damage = [_foreign_files_damage(foreign_paths)] if foreign_paths else []
    if not nova_paths or catalog_identities == {own_identity}:
        return [*(_single_orphan_damage(path, some) for path, some in nova_paths.items()), *foreign_damage]
    return [_unknown_owner_damage(nova_paths, catalog_identities - {own_identity}), *foreign_damage]


def unfinished_upload_damage(
    uploads: Iterable[UnfinishedUpload],
    known_paths: CatalogPaths,
    catalog_identities: frozenset[str],
    own_identity: str,
    now: datetime,
    grace: timedelta,
) -> list[Damage]:
    """Damage reports for multipart uploads that no process continues.

    Args:
        uploads: the unfinished uploads.
        known_paths: paths that the catalog refers to.
        catalog_identities, own_identity, now, grace: as for ``orphan_damage``.
    """
    old = [u for u in uploads if now - u.started_at > grace and u.path.rpartition("/")[0] not in known_paths.staged]
    means = "no answer is affected: the object does not exist, but its uploaded parts use paid storage"
    if old and catalog_identities != {own_identity}:
        what = f"{_format_count(len(old), 'unfinished upload')} in a warehouse that is shared with other catalogs"
        next = "nothing, or a lifecycle rule of the bucket that aborts incomplete uploads"
        return [Damage("upload", "blocks/", what, means, next=next, wrong=False)]
    return [
        Damage(
            "upload",
            u.path,
            f"an upload of {u.path} that began at {u.started_at:%Y-%m-%d %H:%M:%S} UTC was not finished",
            means,
            "abort",
            "the upload is aborted",
            concerns=(u.id,),
        )
        for u in old
    ]


def _unlisted_entries_by_path(
    entries: Iterable[WarehouseEntry], known_paths: CatalogPaths, now: datetime, grace: timedelta
) -> dict[str, tuple[WarehouseEntry, ...]]:
    """Path of an unreferenced folder, or of an unreferenced file in a referenced folder -> its entries."""
    grouped: dict[str, list[WarehouseEntry]] = {}
    for entry in entries:
        grouped.setdefault("/".join(entry.path.split("/")[:2]), []).append(entry)
    known_folders = {path.rpartition("/")[0] for path in known_paths.files} | known_paths.folders
    entries_by_path: dict[str, tuple[WarehouseEntry, ...]] = {}
    for folder, folder_entries in sorted(grouped.items()):
        if folder in known_paths.staged:
            continue
        if folder in known_folders:
            entries_by_path |= {
                e.path: (e,) for e in folder_entries if not e.is_folder and e.path not in known_paths.files
            }
        else:
            entries_by_path[folder] = tuple(folder_entries)
    return {path: some for path, some in entries_by_path.items() if now - max(e.modified_at for e in some) > grace}


def _has_nova_name(path: str, entries: Sequence[WarehouseEntry]) -> bool:
    in_a_folder = path.count("/") > 1 or all(e.is_folder or e.path != path for e in entries)
    return in_a_folder and _NOVA_PATH.fullmatch(path) is not None


def _single_orphan_damage(path: str, entries: Sequence[WarehouseEntry]) -> Damage:
    what = f"{path} ({_format_entries_size(entries)}) belongs to no committed or staged block"
    means = (
        "no answer is affected. If this catalog was restored from a backup, the files may belong to later commits: "
        "inspect them first"
    )
    return Damage("orphan", path, what, means, "set aside", "moved to orphans/ in the warehouse", concerns=(path,))


def _unknown_owner_damage(
    entries_by_path: Mapping[str, Sequence[WarehouseEntry]], other_identities: frozenset[str]
) -> Damage:
    """Single damage report for files of unknown owner, which are left in place."""
    size = _format_entries_size([e for entries in entries_by_path.values() for e in entries])
    what = f"{size} in {_format_count(len(entries_by_path), 'path')} that this catalog does not list"
    if other_identities:
        means = (
            "the warehouse is shared with "
            f"{_format_count(len(other_identities), 'other catalog')}, which may own the files"
        )
        next = f"nothing. If a catalog no longer exists, delete its marker file: catalogs/{sorted(other_identities)[0]}"
    else:
        means = "no catalog has written its marker file into the warehouse yet, so the owner of the files is unknown"
        next = "nova doctor --repair again, after the next run or insert, which writes this catalog's marker file"
    return Damage("orphan", "blocks/", what, means, next=next, wrong=False)


def _foreign_files_damage(entries_by_path: Mapping[str, Sequence[WarehouseEntry]]) -> Damage:
    paths = sorted(entries_by_path)
    size = _format_entries_size([e for entries in entries_by_path.values() for e in entries])
    what = f"{', '.join(paths[:3])}{' and more' if len(paths) > 3 else ''} ({size})"
    return Damage(
        "orphan",
        "blocks/",
        f"{what} has a name that nova does not use",
        "no answer is affected: no block has such a name",
        next="nothing, or delete the files by hand",
        wrong=False,
    )


def _format_entries_size(entries: Sequence[WarehouseEntry]) -> str:
    files = [e for e in entries if not e.is_folder]
    return f"{_format_count(len(files), 'file')}, {sum(e.bytes for e in files)} bytes" if files else "empty"


def _format_commit_numbers(commit: Commit) -> str:
    return ", ".join(f"{channel} {seq}" for channel, seq in sorted(commit.numbers.items()))


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
