"""Identity of a catalog's warehouse. The catalog stores it, and a marker file in the warehouse repeats it.

Without the identity, a process with another ``warehouse`` setting would commit blocks that nobody else can read. The
marker is the file ``catalogs/<catalog id>``. It moves with the warehouse.
"""

from __future__ import annotations

import uuid

from nova_assets.errors import WarehouseMismatch, WarehouseUnavailable
from nova_assets.model.catalog import Catalog
from nova_assets.model.engine import Engine


def check_warehouse_identity(catalog: Catalog, engine: Engine) -> None:
    """Check with one request that the warehouse belongs to the catalog.

    A warehouse that does not answer passes. Later reads and writes then raise the error.

    Raises:
        WarehouseMismatch: the warehouse belongs to another catalog.
    """
    identity, address = catalog.warehouse_identity_and_address()
    try:
        found_identity = engine.read_catalog_marker(catalog.identity())
        matches = _is_warehouse_of_catalog(catalog, engine, found_identity)
    except WarehouseUnavailable:
        return
    if not matches:
        raise _warehouse_mismatch_error(catalog, engine, identity, address, found_identity)


def check_or_adopt_warehouse(catalog: Catalog, engine: Engine) -> None:
    """Check before the first write that the warehouse belongs to the catalog. A catalog without a warehouse adopts it
    for good.

    If several processes adopt a warehouse at once, one of them decides.

    Raises:
        WarehouseMismatch, WarehouseUnavailable.
    """
    catalog_id = catalog.identity()
    identity, address = catalog.warehouse_identity_and_address()
    found_identity = engine.read_catalog_marker(catalog_id)
    matches = _is_warehouse_of_catalog(catalog, engine, found_identity)
    if matches and (identity is None or not found_identity):
        # The catalog decides first, so that concurrent processes write the same marker.
        identity, address = catalog.adopt_warehouse(identity or found_identity or uuid.uuid4().hex, engine.address)
        if found_identity != identity and (address == engine.address or catalog.newest_listed_file() is not None):
            engine.write_catalog_marker(catalog_id, identity)
        matches = engine.read_catalog_marker(catalog_id) == identity
    if not matches:
        raise _warehouse_mismatch_error(catalog, engine, identity, address, found_identity)


def _is_warehouse_of_catalog(catalog: Catalog, engine: Engine, found_identity: str | None) -> bool:
    """Whether the warehouse belongs to the catalog, by its marker.

    If the marker is lost, or was written by an older version, the newest committed file decides.
    """
    identity, address = catalog.warehouse_identity_and_address()
    if found_identity:
        return identity in (None, found_identity)
    listed = catalog.newest_listed_file()
    if listed is not None:
        return engine.file_size(listed) is not None
    return identity is None or address == engine.address


def _warehouse_mismatch_error(
    catalog: Catalog,
    engine: Engine,
    expected_identity: str | None,
    expected_address: str | None,
    found_identity: str | None,
) -> WarehouseMismatch:
    file = f"catalogs/{catalog.identity()}"
    known = f" (first at {expected_address})" if expected_address else ""
    return WarehouseMismatch(
        f"{engine.address} is not the warehouse of this catalog",
        found=f"{found_identity!r} in {file}" if found_identity else f"neither {file} nor the last committed file",
        expected=f"the warehouse that holds the catalog's blocks{known}"
        + (f", with {expected_identity!r} in {file}" * bool(expected_identity)),
        next="check that the warehouse is mounted, or set NOVA_WAREHOUSE to "
        f"{expected_address or 'that warehouse'}; if it was moved, move "
        "all of it, including its folder catalogs/",
        warehouse=engine.address,
        identity=expected_identity,
    )
