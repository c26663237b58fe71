"""The outbox of triggers: a firing is a row before its run is requested."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update
from sqlalchemy.exc import IntegrityError

from nova_assets.catalog.database import Database
from nova_assets.catalog.tables import firings
from nova_assets.model.firing import Firing
from nova_assets.model.partitions import WHOLE


class Firings:
    """Compare-and-set on a binding's firings, numbered from 1."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def firing(self, firing_id: str) -> Firing | None:
        """A firing by its id."""
        query = select(firings).where(firings.c.id == firing_id)
        row = self.database.read(lambda c: c.execute(query).mappings().first())
        return None if row is None else _firing(row)

    def firings(
        self, binding: str | None = None, limit: int = 100, *, among: Sequence[str] | None = None
    ) -> list[Firing]:
        """What has fired, latest first; of one binding, where one is named.

        Args:
            among: bindings; of these only.
        """
        query = select(firings).order_by(firings.c.at.desc(), firings.c.id).limit(limit)
        if binding is not None:
            query = query.where(firings.c.binding == binding)
        if among is not None:
            query = query.where(firings.c.binding.in_(among))
        return [_firing(r) for r in self.database.read(lambda c: c.execute(query).mappings().all())]

    def last_firing(self, binding: str, partition: str = WHOLE) -> Firing | None:
        """The latest firing of a binding, in one of its partitions."""
        return self.database.read(lambda c: _last(c, binding, partition))

    def requested(self, binding: str) -> frozenset[str]:
        """The partitions of a binding in which a firing is under way."""
        query = select(firings.c.partition).where(firings.c.binding == binding, firings.c.state == "requested")
        return frozenset(self.database.read(lambda c: c.execute(query).scalars().all()))

    def fire(
        self, binding: str, after_n: int, positions: Mapping[str, Any], partition: str = WHOLE, why: str = ""
    ) -> Firing | None:
        """Record the firing after number ``after_n``; None when another did, or when that one is still under way."""

        def work(c: Connection) -> Firing | None:
            last = _last(c, binding, partition)
            if (last.n if last is not None else 0) != after_n or (last is not None and last.state == "requested"):
                return None
            values = {
                "binding": binding,
                "partition": partition,
                "n": after_n + 1,
                "positions": dict(positions),
                "attempt": 1,
                "state": "requested",
                "why": why,
            }
            c.execute(insert(firings).values(id=uuid.uuid4().hex, at=self.database.clock(), **values))
            return _last(c, binding, partition)

        try:
            return self.database.write(lambda c: _unless_raced(work, c))
        except _Raced:
            return None

    def retry_firing(self, firing_id: str, attempt: int) -> Firing | None:
        """Count one more run for a firing whose attempt ``attempt`` came to nothing; None when another did."""

        def work(c: Connection) -> Firing | None:
            same = (firings.c.id == firing_id, firings.c.attempt == attempt, firings.c.state == "requested")
            if not c.execute(update(firings).where(*same).values(attempt=attempt + 1)).rowcount:
                return None
            return _firing(c.execute(select(firings).where(firings.c.id == firing_id)).mappings().one())

        return self.database.write(work)

    def end_firing(self, firing_id: str, state: str, why: str = "") -> None:
        """It was committed or abandoned; one that has ended stays as it is."""
        same = (firings.c.id == firing_id, firings.c.state == "requested")
        values = {"state": state, **({"why": why} if why else {})}
        self.database.write(lambda c: c.execute(update(firings).where(*same).values(**values)))


class _Raced(Exception):
    """Another process made the same firing."""


def _unless_raced(work: Any, c: Connection) -> Firing | None:
    try:
        found: Firing | None = work(c)
        return found
    except IntegrityError as error:
        raise _Raced from error


def _last(c: Connection, binding: str, partition: str) -> Firing | None:
    query = select(firings).where(firings.c.binding == binding, firings.c.partition == partition)
    row = c.execute(query.order_by(firings.c.n.desc()).limit(1)).mappings().first()
    return None if row is None else _firing(row)


def _firing(row: RowMapping) -> Firing:
    return Firing(
        row["id"],
        row["binding"],
        row["n"],
        row["positions"],
        row["attempt"],
        row["state"],
        row["at"],
        row["partition"],
        row["why"] or "",
    )
