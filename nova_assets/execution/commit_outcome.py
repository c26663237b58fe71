"""Commits whose outcome is certain: after a lost connection, the outcome is looked up (R7)."""

from __future__ import annotations

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import CatalogUnavailable, CommitConflict, CommitOutcomeUnknown
from nova_assets.execution.warehouse_identity import WarehouseCheck
from nova_assets.model.commit import Commit, CommitRequest


def commit_resolving_outcome(catalog: Catalog, warehouse_check: WarehouseCheck, request: CommitRequest) -> Commit:
    """Commit. An unknown outcome is looked up under a lock before anything else is done (R7).

    Raises:
        WarehouseMismatch, WarehouseUnavailable: the blocks are not in the warehouse of the catalog.
        CommitConflict: a requirement is not met, or the look-up found that nothing was committed.
        CommitOutcomeUnknown: the catalog does not answer the look-up.
    """
    warehouse_check.check()
    try:
        return catalog.commits.commit(request)
    except CommitOutcomeUnknown as unknown:
        try:
            commit = catalog.commits.commit_or_abort(request.execution_id)
        except CatalogUnavailable as error:
            raise unknown from error
        if commit is None:
            raise CommitConflict(
                "the connection was lost during COMMIT, and nothing was committed",
                reason="connection",
                execution_id=request.execution_id,
            ) from None
        return commit
