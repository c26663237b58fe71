"""Seals: the days or hours of a channel that are complete, and the treatment of late data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select, update

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.transactions import query_as_dict
from nova_assets.catalog.tables import seals
from nova_assets.errors import CommitConflict, GroupSealed
from nova_assets.model.commit import CommitRequest
from nova_assets.model.partitions import partition_values
from nova_assets.model.seal import AddSeal, Seal, Sealing


class Seals(CatalogPart):
    """Reads the seals of channels."""

    def find(self, channel: str, limit: int = 1000) -> list[Seal]:
        """Seals of a channel, latest first."""
        query = select(seals).where(seals.c.channel == channel)
        query = query.order_by(seals.c.at.desc(), seals.c.grp.desc(), seals.c.version.desc()).limit(limit)
        return [_seal_from_row(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def latest(self, channel: str) -> dict[str, Seal]:
        """Latest seal of each group."""
        query = select(seals).where(seals.c.channel == channel).order_by(seals.c.version)
        return {r["grp"]: _seal_from_row(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())}

    def count(self, channel: str) -> int:
        """Number of seals ever made for a channel. Never decreases."""
        query = select(func.count()).select_from(seals).where(seals.c.channel == channel)
        return int(self.database.read(lambda c: c.execute(query).scalar()) or 0)

    def counts(self) -> dict[str, int]:
        """Number of seals ever made, for each channel that has one."""
        query = select(seals.c.channel, func.count()).group_by(seals.c.channel)
        return self.database.read(lambda c: query_as_dict(c, query))


def insert_seals(c: Connection, request: CommitRequest, now: Any) -> None:
    """Part of a commit: seal groups.

    Raises:
        CommitConflict: a group was sealed meanwhile.
    """
    for new_seal in request.seals:
        latest_row = _latest_seal_row(c, new_seal.channel, new_seal.group)
        if (0 if latest_row is None else latest_row["version"]) + 1 != new_seal.version or (
            latest_row and latest_row["state"] == "sealed"
        ):
            raise CommitConflict(
                f"{new_seal.group} of channel {new_seal.channel!r} was sealed meanwhile",
                found=None if latest_row is None else f"version {latest_row['version']}, {latest_row['state']}",
                expected=f"version {new_seal.version - 1}",
                reason="seal",
                channel=new_seal.channel,
            )
        c.execute(insert(seals).values(**_values_of_seal(new_seal), state="sealed", at=now, commit_id=request.id))


def reopen_or_reject_sealed_groups(c: Connection, request: CommitRequest, channel_rows: Mapping[str, Any]) -> None:
    """Part of a commit: data for a sealed group reopens the group or is rejected, depending on the channel's seal.

    Raises:
        GroupSealed: the data is rejected.
    """
    sealing_by_group: dict[tuple[str, str], Sealing] = {}
    for p in request.added_blocks:
        sealing = channel_rows[p.channel]["upkeep"].get("seal")
        group = None if sealing is None else partition_values(p.partition).get(sealing["by"])
        if group is not None and p.takes_sequence_number and p.origin != "drop":
            sealing_by_group[p.channel, group] = Sealing.from_json(sealing)
    for (channel, group), sealing in sealing_by_group.items():
        latest_row = _latest_seal_row(c, channel, group)
        if latest_row is None or latest_row["state"] != "sealed":
            continue
        if sealing.late == "quarantine":
            raise GroupSealed(
                f"{sealing.by}={group} of channel {channel!r} is sealed",
                found=f"rows that arrived after it was sealed at {latest_row['at']:%Y-%m-%d %H:%M:%S} UTC",
                expected="none: the channel's seal says late='quarantine'",
                next=f"declare it with nova.seal({sealing.by!r}, late='reopen'), or leave the rows out",
                channel=channel,
                group=group,
            )
        conditions = (seals.c.channel == channel, seals.c.grp == group, seals.c.version == latest_row["version"])
        c.execute(update(seals).where(*conditions).values(state="reopened"))


def _latest_seal_row(c: Connection, channel: str, group: str) -> RowMapping | None:
    query = select(seals).where(seals.c.channel == channel, seals.c.grp == group)
    return c.execute(query.order_by(seals.c.version.desc()).limit(1)).mappings().first()


def _values_of_seal(new_seal: AddSeal) -> dict[str, Any]:
    return {
        "channel": new_seal.channel,
        "grp": new_seal.group,
        "version": new_seal.version,
        "seq": new_seal.seq,
        "rows": new_seal.rows,
        "bytes": new_seal.bytes,
        "files": new_seal.files,
    }


def _seal_from_row(row: RowMapping) -> Seal:
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
