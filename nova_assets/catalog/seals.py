"""Seals: which days or hours of a channel are complete, and what becomes of what comes after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select, update

from nova_assets.catalog.database import Database
from nova_assets.catalog.tables import seals
from nova_assets.errors import CommitConflict, GroupSealed
from nova_assets.model.commit import CommitRequest
from nova_assets.model.partitions import partition_values
from nova_assets.model.seal import PutSeal, Seal, Sealing


class Seals:
    """What is known to be complete."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def seals(self, channel: str, limit: int = 1000) -> list[Seal]:
        """Seals of a channel, latest first."""
        query = select(seals).where(seals.c.channel == channel)
        query = query.order_by(seals.c.at.desc(), seals.c.grp.desc(), seals.c.version.desc()).limit(limit)
        return [_seal(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def latest_seals(self, channel: str) -> dict[str, Seal]:
        """Group -> its latest seal."""
        query = select(seals).where(seals.c.channel == channel).order_by(seals.c.version)
        return {r["grp"]: _seal(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())}

    def seal_count(self, channel: str) -> int:
        """How often something was sealed; it only grows."""
        query = select(func.count()).select_from(seals).where(seals.c.channel == channel)
        return int(self.database.read(lambda c: c.execute(query).scalar()) or 0)


def put_seals(c: Connection, request: CommitRequest, now: Any) -> None:
    """Part of a commit: seal groups.

    Raises:
        CommitConflict: one of them was sealed meanwhile.
    """
    for put in request.seals:
        last = _last(c, put.channel, put.group)
        if (0 if last is None else last["version"]) + 1 != put.version or (last and last["state"] == "sealed"):
            raise CommitConflict(
                f"{put.group} of channel {put.channel!r} was sealed meanwhile",
                found=None if last is None else f"version {last['version']}, {last['state']}",
                expected=f"version {put.version - 1}",
                reason="seal",
                channel=put.channel,
            )
        c.execute(insert(seals).values(**_row(put), state="sealed", at=now, commit_id=request.id))


def reopen_or_refuse(c: Connection, request: CommitRequest, state: Mapping[str, Any]) -> None:
    """Part of a commit: what comes to a group that is sealed reopens it, or is refused, as its channel says.

    Raises:
        GroupSealed: it is refused.
    """
    touched: dict[tuple[str, str], Sealing] = {}
    for p in request.publish:
        how = state[p.channel]["upkeep"].get("seal")
        group = None if how is None else partition_values(p.partition).get(how["by"])
        if group is not None and p.takes_number and p.origin != "drop":
            touched[p.channel, group] = Sealing.from_json(how)
    for (channel, group), how in touched.items():
        last = _last(c, channel, group)
        if last is None or last["state"] != "sealed":
            continue
        if how.late == "quarantine":
            raise GroupSealed(
                f"{how.by}={group} of channel {channel!r} is sealed",
                found=f"rows that come after it was sealed at {last['at']:%Y-%m-%d %H:%M:%S} UTC",
                expected="none: the channel's seal says late='quarantine'",
                next=f"declare it with nova.seal({how.by!r}, late='reopen'), or leave the rows out",
                channel=channel,
                group=group,
            )
        mine = (seals.c.channel == channel, seals.c.grp == group, seals.c.version == last["version"])
        c.execute(update(seals).where(*mine).values(state="reopened"))


def _last(c: Connection, channel: str, group: str) -> RowMapping | None:
    query = select(seals).where(seals.c.channel == channel, seals.c.grp == group)
    return c.execute(query.order_by(seals.c.version.desc()).limit(1)).mappings().first()


def _row(put: PutSeal) -> dict[str, Any]:
    return {
        "channel": put.channel,
        "grp": put.group,
        "version": put.version,
        "seq": put.seq,
        "rows": put.rows,
        "bytes": put.bytes,
        "files": put.files,
    }


def _seal(row: RowMapping) -> Seal:
    return Seal(
        row["channel"],
        row["grp"],
        row["version"],
        row["state"],
        row["seq"],
        row["at"],
        row["rows"],
        row["bytes"],
        row["files"],
    )
