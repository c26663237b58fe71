"""The warehouse of a catalog: known by an identity that the catalog keeps and that a mark in the warehouse repeats.

Without it, a process with another ``warehouse`` would commit blocks that nobody else can read. The mark is the file
``catalogs/<catalog id>``; it moves with the warehouse.
"""

from __future__ import annotations

import uuid

from nova_assets.errors import WarehouseMismatch, WarehouseUnavailable
from nova_assets.model.catalog import Catalog
from nova_assets.model.engine import Engine


def check_warehouse(catalog: Catalog, engine: Engine) -> None:
    """See that the warehouse is the catalog's, with one request. A store that does not answer is left to reads and
    writes, which say so themselves.

    Raises:
        WarehouseMismatch: it is another one.
        WarehouseUnavailable: it is not there.
    """
    identity, address = catalog.warehouse()
    try:
        mark = engine.mark_of(catalog.identity())
        right = _is_right(catalog, engine, mark)
    except WarehouseUnavailable:
        return
    if not right:
        raise _mismatch(catalog, engine, identity, address, mark)


def adopt_warehouse(catalog: Catalog, engine: Engine) -> None:
    """See that the warehouse is the catalog's, before anything is written; of a catalog that has none yet, it becomes
    the catalog's for good. One of several processes that do so at once decides.

    Raises:
        WarehouseMismatch, WarehouseUnavailable.
    """
    own = catalog.identity()
    identity, address = catalog.warehouse()
    mark = engine.mark_of(own)
    right = _is_right(catalog, engine, mark)
    if right and (identity is None or not mark):
        # The catalog decides first, so that all who mark the warehouse at once write the same.
        identity, address = catalog.adopt_warehouse(identity or mark or uuid.uuid4().hex, engine.address)
        if mark != identity and (address == engine.address or catalog.listed_file() is not None):
            engine.mark(own, identity)
        right = engine.mark_of(own) == identity
    if not right:
        raise _mismatch(catalog, engine, identity, address, mark)


def _is_right(catalog: Catalog, engine: Engine, mark: str | None) -> bool:
    """Whether the warehouse is the catalog's: by its mark; where that is lost, or is of an older version, by the file
    that was committed last."""
    identity, address = catalog.warehouse()
    if mark:
        return identity in (None, mark)
    listed = catalog.listed_file()
    if listed is not None:
        return engine.size(listed) is not None
    return identity is None or address == engine.address


def _mismatch(
    catalog: Catalog, engine: Engine, identity: str | None, address: str | None, mark: str | None
) -> WarehouseMismatch:
    file = f"catalogs/{catalog.identity()}"
    known = f" (first at {address})" if address else ""
    return WarehouseMismatch(
        f"{engine.address} is not the warehouse of this catalog",
        found=f"{mark!r} in {file}" if mark else f"neither {file} nor the file that was committed last",
        expected=f"the warehouse that the catalog's blocks are in{known}"
        + (f", with {identity!r} in {file}" * bool(identity)),
        next=f"see that it is mounted, or set NOVA_WAREHOUSE to {address or 'that warehouse'}; if it was moved, move "
        "all of it, with its folder catalogs/",
        warehouse=engine.address,
        identity=identity,
    )
