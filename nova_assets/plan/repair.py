"""What is amiss, and what to do about it: decisions from facts, without touching anything. Pure.

Nothing live is damage: an execution is left alone until its lease and the grace after it are over, a file until it has
been lying for longer than anybody takes to record it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from nova_assets.model.commit import Commit
from nova_assets.model.damage import Damage, DamageKind
from nova_assets.model.execution import Execution
from nova_assets.model.firing import Firing
from nova_assets.model.warehouse_contents import Entry, Known, Upload

UNHEARD = timedelta(minutes=1)
"""For how long a commit is left to the run, or the sensor, that tells Dagster of it."""

WAITING = timedelta(hours=1)
"""For how long a firing may be without a run before it is worth a word."""

_OURS = re.compile(r"blocks/[A-Za-z0-9_-]+(/[^/]+)?")
"""Paths that this package gives: a block's folder, and the files right in it."""

_NEVER_SEEN = "nothing for any answer: what it staged was never visible"


# staging


def left_by(
    execution: Execution, blocks: int, now: datetime, grace: timedelta, is_orphaned: bool = False
) -> Damage | None:
    """What an execution has left, or will; None where there is nothing to be said.

    Args:
        blocks: how many it has staged.
        is_orphaned: the process that holds it is known to be gone.
        grace: after its end, or that of its lease, in which its process may not have noticed yet.
    """
    lapsed = execution.state in ("running", "failed") and execution.lease_until < now
    if is_orphaned and execution.state == "running" and not lapsed:
        of = f"execution {execution.id[:8]} of {execution.binding or 'an insert'}"
        what = f"{of} is held by {execution.owner}, which is gone"
        return Damage("lapsed", execution.id, what, _NEVER_SEEN, next=f"nova release {execution.id[:8]}", wrong=False)
    if not blocks and not (lapsed and execution.state == "running"):
        return None
    kind: DamageKind = "lapsed" if lapsed and execution.state == "running" else "staged"
    staged = _counted(blocks, "staged block") if blocks else "nothing staged"
    what = (
        f"execution {execution.id[:8]} of {execution.binding or 'an insert'} {_state(execution, lapsed)}, with {staged}"
    )
    over = swept_from(execution, grace)
    if over < now:
        mended = ["it is aborted"] if lapsed else []
        mending = " and ".join([*mended, *([f"{staged} swept"] if blocks else [])])
        return Damage(kind, execution.id, what, _NEVER_SEEN, "sweep", mending)
    until = f"nothing: if nobody goes on with it, it is swept from {over:%Y-%m-%d %H:%M:%S} UTC on"
    return Damage(kind, execution.id, what, _NEVER_SEEN, next=until, wrong=False)


def swept_from(execution: Execution, grace: timedelta) -> datetime:
    """When what an execution staged may be swept, if nobody goes on with it."""
    ends = [execution.lease_until]
    if execution.state in ("aborted", "committed") and execution.finished_at is not None:
        ends.append(execution.finished_at)
    return min(ends) + grace


def _state(execution: Execution, lapsed: bool) -> str:
    if lapsed:
        return f"has not renewed its lease, which ended at {execution.lease_until:%Y-%m-%d %H:%M:%S} UTC"
    if execution.state == "running":
        return "is under way"
    if execution.state == "failed":
        return f"failed and can be resumed until {execution.lease_until:%Y-%m-%d %H:%M:%S} UTC"
    return f"has ended ({execution.state})"


# Dagster


def unheard(commits: Iterable[Commit], now: datetime) -> list[Damage]:
    """Commits which Dagster has not heard of, and which nobody is about to tell it."""
    return [
        Damage(
            "unpublished",
            commit.id,
            f"commit {commit.id[:8]} ({_numbered(commit)}) of {commit.at:%Y-%m-%d %H:%M:%S} UTC is not known to "
            "have reached Dagster",
            "every answer is right; Dagster shows none of it, and its own sensors on these assets have not fired",
            "publish",
            "Dagster is told, as the sensor nova_publish does",
        )
        for commit in commits
        if now - commit.at > UNHEARD
    ]


def differing(channel: str, told: frozenset[str], commits: Mapping[str, bool]) -> list[Damage]:
    """Where Dagster and the catalog disagree about the commits on a channel.

    Args:
        told: commits that Dagster has of it.
        commits: those that the catalog has -> whether Dagster is taken to have heard of it.
    """
    unknown, forgotten = told - set(commits), {c for c, heard in commits.items() if heard} - told
    mending = f"what Dagster has of {channel} is wiped, and all {len(commits)} of its commits are told again"
    found = []
    if unknown:
        what = f"{_counted(len(unknown), 'materialization')} of {channel} by commits that the catalog does not know"
        means = (
            "every answer is right by the catalog, which was restored from a backup, or is another one; Dagster shows "
            "what is not there. Dagster cannot take back one event: it forgets its checks of the asset, too"
        )
        found.append(Damage("event", channel, what, means, "rebuild", mending, concerns=tuple(sorted(unknown))))
    if forgotten:
        what = f"Dagster has lost {_counted(len(forgotten), 'commit')} of {channel} that it had been told of"
        means = "every answer is right; Dagster's history of the asset has gaps"
        found.append(Damage("unpublished", channel, what, means, "rebuild", mending, concerns=tuple(sorted(forgotten))))
    return found


def waiting(firing: Firing, now: datetime) -> Damage | None:
    """A firing whose run Dagster does not have; None while that is to be expected."""
    if now - firing.at <= WAITING:
        return None
    return Damage(
        "firing",
        firing.run_key,
        f"firing {firing.n} of {firing.binding} has waited for a run since {firing.at:%Y-%m-%d %H:%M:%S} UTC",
        "what the binding would have read is still unread",
        next=f"nothing: its sensor requests the run again. If it stays so, see that {firing.binding}_sensor is on",
        wrong=False,
    )


# the warehouse


def orphans(
    entries: Iterable[Entry], known: Known, marks: frozenset[str], identity: str, now: datetime, grace: timedelta
) -> list[Damage]:
    """Files and folders that nobody lists; whose they are, and so whether they may go.

    Args:
        entries: all that lies below ``blocks/``, listed before the catalog was asked what it knows.
        marks: of the catalogs that have written into the warehouse.
        identity: of this one.
        grace: for how long what lies there is left alone.
    """
    found = _unlisted(entries, known, now, grace)
    ours = {path: some for path, some in found.items() if _is_of_nova(path, some)}
    strange = {path: some for path, some in found.items() if path not in ours}
    told = [_stranger(strange)] if strange else []
    if not ours or marks == {identity}:
        return [*(_orphan(path, some) for path, some in ours.items()), *told]
    return [_of_whom(ours, marks - {identity}), *told]


def unfinished(
    uploads: Iterable[Upload], known: Known, marks: frozenset[str], identity: str, now: datetime, grace: timedelta
) -> list[Damage]:
    """Uploads in parts that nobody goes on with.

    Args:
        marks, identity, grace: as for ``orphans``.
    """
    old = [u for u in uploads if now - u.at > grace and u.path.rpartition("/")[0] not in known.staged]
    means = "nothing for any answer: no object is there; its parts take room that the store charges for"
    if old and marks != {identity}:
        what = f"{_counted(len(old), 'unfinished upload')} in a warehouse that is shared with other catalogs"
        next = "nothing, or a lifecycle rule of the bucket that aborts incomplete uploads"
        return [Damage("upload", "blocks/", what, means, next=next, wrong=False)]
    return [
        Damage(
            "upload",
            u.path,
            f"an upload of {u.path} that began at {u.at:%Y-%m-%d %H:%M:%S} UTC was not finished",
            means,
            "abort",
            "the upload is aborted",
            concerns=(u.id,),
        )
        for u in old
    ]


def _unlisted(entries: Iterable[Entry], known: Known, now: datetime, grace: timedelta) -> dict[str, tuple[Entry, ...]]:
    """Path of a folder, or of a file in a folder that is known -> what lies there and is known to nobody."""
    grouped: dict[str, list[Entry]] = {}
    for entry in entries:
        grouped.setdefault("/".join(entry.path.split("/")[:2]), []).append(entry)
    filled = {path.rpartition("/")[0] for path in known.files} | known.folders
    found: dict[str, tuple[Entry, ...]] = {}
    for folder, some in sorted(grouped.items()):
        if folder in known.staged:
            continue
        if folder in filled:
            found |= {e.path: (e,) for e in some if not e.is_folder and e.path not in known.files}
        else:
            found[folder] = tuple(some)
    return {path: some for path, some in found.items() if now - max(e.at for e in some) > grace}


def _is_of_nova(path: str, some: Sequence[Entry]) -> bool:
    in_a_folder = path.count("/") > 1 or all(e.is_folder or e.path != path for e in some)
    return in_a_folder and _OURS.fullmatch(path) is not None


def _orphan(path: str, some: Sequence[Entry]) -> Damage:
    what = f"{path} ({_sized(some)}) is listed by no block, and nothing that is staged is in it"
    means = (
        "nothing for any answer. If this catalog was restored from a backup, it is what was committed after that: look "
        "into it first"
    )
    return Damage("orphan", path, what, means, "set aside", "moved to orphans/ in the warehouse", concerns=(path,))


def _of_whom(found: Mapping[str, Sequence[Entry]], others: frozenset[str]) -> Damage:
    """Nobody here can tell whose they are; so they are told in one line, and left."""
    what = f"{_sized([e for some in found.values() for e in some])} in {_counted(len(found), 'place')} that this "
    what += "catalog does not list"
    if others:
        means = f"the warehouse is shared with {_counted(len(others), 'other catalog')}, whose data they may be"
        next = f"nothing; but if a catalog is gone for good, delete its mark: catalogs/{sorted(others)[0]}"
    else:
        means = "no catalog has left its mark in the warehouse yet, so whose they are is not known"
        next = "nova doctor --repair, again, after the next run or insert, which leaves this catalog's mark"
    return Damage("orphan", "blocks/", what, means, next=next, wrong=False)


def _stranger(found: Mapping[str, Sequence[Entry]]) -> Damage:
    some = sorted(found)
    size = _sized([e for entries in found.values() for e in entries])
    what = f"{', '.join(some[:3])}{' and more' if len(some) > 3 else ''} ({size})"
    return Damage(
        "orphan",
        "blocks/",
        f"{what} has a name that nova does not give",
        "nothing for any answer: it is nobody's block",
        next="nothing, or delete it by hand",
        wrong=False,
    )


def _sized(some: Sequence[Entry]) -> str:
    files = [e for e in some if not e.is_folder]
    return f"{_counted(len(files), 'file')}, {sum(e.bytes for e in files)} bytes" if files else "empty"


def _numbered(commit: Commit) -> str:
    return ", ".join(f"{channel} {seq}" for channel, seq in sorted(commit.numbers.items()))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
