"""Executions that write to channels without a binding: inserts, compactions, drops, seals and publications.

They take the same steps as the execution of a binding: begin, stage, commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nova_assets.catalog.catalog import Catalog
from nova_assets.crash_points import crash_point
from nova_assets.execution.lease import heartbeat
from nova_assets.execution.retries import commit_resolving_outcome
from nova_assets.execution.staging import Staging
from nova_assets.model.commit import Commit, CommitRequest
from nova_assets.model.execution import BeginRequest, Execution
from nova_assets.model.partitions import WHOLE


class ChannelWriter:
    """Begins and commits executions without a binding.

    Args:
        lease: seconds that other processes leave an execution alone after its last heartbeat.
        get_owner: returns the owner id of new executions.
    """

    def __init__(self, catalog: Catalog, staging: Staging, lease: float, get_owner: Callable[[], str]) -> None:
        self.catalog = catalog
        self.staging = staging
        self.lease = lease
        self.get_owner = get_owner

    @contextmanager
    def write(self, *channels: str, scope: str = WHOLE, purpose: str = "commit") -> Iterator[Execution]:
        """Begin an execution, and renew its lease while the body stages and commits.

        If the body raises, the execution is aborted, and its staged files are deleted.

        Args:
            scope, purpose: as for ``begin``.
        """
        execution = self.begin(*channels, scope=scope, purpose=purpose)
        try:
            with heartbeat(self.catalog, execution, self.lease):
                yield execution
        except BaseException as error:
            self.staging.abort_and_delete_staged(execution, error)
            raise

    def begin(self, *channels: str, scope: str = WHOLE, purpose: str = "commit") -> Execution:
        """Open an execution. It pins the heads, holds no lock, and is swept like any other execution.

        Args:
            scope: scope of the first channel.
            purpose: the kind of change, for the channel's timeline.
        """
        crash_point("begin.before")
        execution = self.catalog.executions.begin(
            BeginRequest(
                uuid.uuid4().hex,
                binding=None,
                pinned_channels=channels,
                owner=self.get_owner(),
                lease_seconds=self.lease,
                scope_by_channel={channels[0]: scope},
                purpose=purpose,
            )
        )
        crash_point("begin.after")
        return execution

    def commit(self, request: CommitRequest) -> Commit:
        """Commit a request, and resolve an unknown outcome (R7)."""
        crash_point("commit.before")
        commit = commit_resolving_outcome(self.catalog, self.staging.warehouse_check, request)
        crash_point("commit.after")
        return commit
