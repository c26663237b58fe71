"""Identity of a catalog's warehouse. The catalog stores it, and a marker file in the warehouse repeats it.

Without the identity, a process with another ``warehouse`` setting would commit blocks that nobody else can read. The
marker is the file ``catalogs/<catalog id>``. It moves with the warehouse.
"""

from __future__ import annotations

import uuid

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import CopyUndecided, WarehouseMismatch, WarehouseUnavailable
from nova_assets.model.engine import Engine


def check_warehouse_identity(catalog: Catalog, engine: Engine) -> None:
    """Check with one request that the warehouse belongs to the catalog.

    A warehouse that does not answer passes. Later reads and writes then raise the error.

    Raises:
        WarehouseMismatch: the warehouse belongs to another catalog.
    """
    identity, address = catalog.identity.warehouse()
    try:
        found_identity = engine.warehouse.read_catalog_marker(catalog.identity.get())
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
    catalog_id = catalog.identity.get()
    identity, address = catalog.identity.warehouse()
    found_identity = engine.warehouse.read_catalog_marker(catalog_id)
    matches = _is_warehouse_of_catalog(catalog, engine, found_identity)
    if matches and (identity is None or not found_identity):
        # The catalog decides first, so that concurrent processes write the same marker.
        identity, address = catalog.identity.adopt_warehouse(
            identity or found_identity or uuid.uuid4().hex, engine.warehouse.address
        )
        if found_identity != identity and (
            address == engine.warehouse.address or catalog.identity.newest_listed_file() is not None
        ):
            engine.warehouse.write_catalog_marker(catalog_id, identity)
        matches = engine.warehouse.read_catalog_marker(catalog_id) == identity
    if not matches:
        raise _warehouse_mismatch_error(catalog, engine, identity, address, found_identity)


class WarehouseCheck:
    """Check before each commit that the warehouse with the catalog's blocks is in place. It may be unmounted, moved or
    replaced at any time, and blocks in an empty mount point would be lost.
    """

    def __init__(self, catalog: Catalog, engine: Engine) -> None:
        self.catalog = catalog
        self.engine = engine
        self._catalog_id: str | None = None
        self._identity: str | None = None
        self._is_decided = False

    def check(self) -> None:
        """Compare the marker in the warehouse with the identity that the catalog knows.

        A warehouse that was never written to passes.

        Raises:
            CopyUndecided: the catalog is a copy, and the warehouse is still that of the original. The original would
                take the new files for orphans.
            WarehouseMismatch: another warehouse, or none, is in place; or another copy of the catalog has claimed the
                warehouse.
            WarehouseUnavailable: the marker cannot be read.
        """
        if self._catalog_id is None:
            self._catalog_id = self.catalog.identity.get()
        if not self._is_decided:
            check_is_no_copy_beside_original(self.catalog, self.engine)
            self._is_decided = True
        found_identity = self.engine.warehouse.read_catalog_marker(self._catalog_id)
        if found_identity is not None and found_identity == self._identity:
            return
        self._identity, address = self.catalog.identity.warehouse()  # ``nova doctor --claim`` changes it
        if self._identity is None or found_identity == self._identity:
            return
        if not _is_warehouse_of_catalog(self.catalog, self.engine, found_identity):
            raise _warehouse_mismatch_error(self.catalog, self.engine, self._identity, address, found_identity)

    def check_may_delete(self, action: str) -> None:
        """Check that this catalog owns the warehouse, before files are deleted or moved there.

        Raises:
            CopyUndecided, WarehouseMismatch, WarehouseUnavailable.
        """
        check_is_no_copy(self.catalog, action)
        self.check()


def claim_warehouse(catalog: Catalog, engine: Engine) -> None:
    """Make this catalog the only one that may write to its warehouse and delete there.

    The warehouse gets a new identity, which other copies of the catalog do not know. Their commits fail from then on.
    The marker is written first: after a failure, the call can be repeated.

    Raises:
        WarehouseMismatch: the warehouse does not hold the newest file of the catalog.
        WarehouseUnavailable: the warehouse cannot be written.
    """
    identity, address = catalog.identity.warehouse()
    catalog_id, new_identity = catalog.identity.get(), None if identity is None else uuid.uuid4().hex
    newest_file = catalog.identity.newest_listed_file()
    if newest_file is not None and engine.warehouse.file_size(newest_file) is None:
        raise _warehouse_mismatch_error(
            catalog, engine, identity, address, engine.warehouse.read_catalog_marker(catalog_id)
        )
    if new_identity is not None:
        engine.warehouse.write_catalog_marker(catalog_id, new_identity)
    catalog.identity.claim_warehouse(new_identity)


def check_is_no_copy_beside_original(catalog: Catalog, engine: Engine) -> None:
    """Check that no undecided copy writes to the warehouse of the original.

    Raises:
        CopyUndecided.
    """
    if catalog.identity.warehouse()[1] == engine.warehouse.address:
        check_is_no_copy(catalog, "nothing is committed")


def check_is_no_copy(catalog: Catalog, action: str) -> None:
    """Check that no other copy of the catalog may own the warehouse.

    Args:
        action: what would be done, for the message.

    Raises:
        CopyUndecided.
    """
    original = catalog.identity.copied_from()
    if original is not None:
        raise CopyUndecided(
            f"this catalog is a copy, so {action}",
            found=f"a copy of {original}, which may need the files",
            expected="one catalog that owns the warehouse",
            next="if the original is gone, or shall stop: nova doctor --claim; to keep both, copy the warehouse, too, "
            "and set NOVA_WAREHOUSE to the copy first",
        )


def _is_warehouse_of_catalog(catalog: Catalog, engine: Engine, found_identity: str | None) -> bool:
    """Whether the warehouse belongs to the catalog, by its marker.

    If the marker is lost, or was written by an older version, the newest committed file decides.
    """
    identity, address = catalog.identity.warehouse()
    if found_identity:
        return identity in (None, found_identity)
    listed = catalog.identity.newest_listed_file()
    if listed is not None:
        return engine.warehouse.file_size(listed) is not None
    return identity is None or address == engine.warehouse.address


def _warehouse_mismatch_error(
    catalog: Catalog,
    engine: Engine,
    expected_identity: str | None,
    expected_address: str | None,
    found_identity: str | None,
) -> WarehouseMismatch:
    file = f"catalogs/{catalog.identity.get()}"
    known = f" (first at {expected_address})" if expected_address else ""
    return WarehouseMismatch(
        f"{engine.warehouse.address} is not the warehouse of this catalog",
        found=f"{found_identity!r} in {file}" if found_identity else f"neither {file} nor the last committed file",
        expected=f"the warehouse that holds the catalog's blocks{known}"
        + (f", with {expected_identity!r} in {file}" * bool(expected_identity)),
        next="check that the warehouse is mounted, or set NOVA_WAREHOUSE to "
        f"{expected_address or 'that warehouse'}; if it was moved, move all of it, including its folder catalogs/"
        + "; if another copy of this catalog has claimed it, nova doctor --claim takes it back"
        * bool(found_identity),
        warehouse=engine.warehouse.address,
        identity=expected_identity,
    )
