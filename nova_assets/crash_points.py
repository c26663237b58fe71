"""Named points at which a test may kill the process. The rules R1 to R7 have to hold after a restart, too."""

from __future__ import annotations

import os
import signal

CRASH_POINTS = (
    "begin.before",  # nothing is written yet
    "begin.after",  # pins are in the catalog
    "stage.recorded",  # a staged folder is recorded in the catalog, and empty
    "stage.written",  # the files are written, their manifest is not recorded
    "task.after",  # all outputs of one task are staged
    "commit.before",  # everything is staged
    "commit.inside",  # the transaction has done everything but COMMIT
    "commit.after",  # the commit is durable, no other system is notified
    "publish.before",  # about to tell Dagster
    "publish.after",  # Dagster is notified, the catalog has not recorded it
    "sweep.before",  # about to delete a dead execution's files
    "sweep.after",  # files are gone, the catalog still lists them as staged
    "collect.marked",  # blocks are marked as collected, their files still exist
    "collect.deleted",  # the files are deleted, the catalog still lists them
    "repair.given_up",  # damaged blocks are marked as collected, nothing else is repaired
    "repair.moving",  # about to move an orphan away
    "repair.unmarked",  # a channel is to be reported to Dagster again, which still has the old events
    "repair.wiped",  # Dagster's events of a channel are deleted
    "receive.announced",  # arrivals are recorded in the catalog, no file is read
    "receive.acknowledging",  # arrivals are committed, the inbox is not notified
    "receive.acknowledged",  # the inbox is notified
    "seal.final",  # a complete group has its final form, and no seal
    "seal.put",  # the seal is committed, no other system is notified
    "edition.opened",  # an edition is opened in the catalog, the table still shows the previous one
    "edition.made",  # the edition's files are prepared, the table still shows the previous one
    "edition.exchanging",  # a folder that is taken over is about to be replaced
    "edition.shown",  # the table shows the edition, the catalog has not recorded it
    "edition.known",  # the catalog has recorded it
    "fire.before",  # a trigger is due, no firing is recorded
    "notify.delivered",  # a receiver has a notification, the catalog still lists it
    "fire.after",  # the firing is a row in the catalog, its run is not requested
)
"""Every point at which a test may kill the process with ``NOVA_CRASH_AT=name`` (``name:n`` for the n-th pass)."""

_pass_counts: dict[str, int] = {}


def crash_point(name: str) -> None:
    """Kill this process with SIGKILL if the environment names this point."""
    requested, _, nth = os.environ.get("NOVA_CRASH_AT", "").partition(":")
    if requested == name:
        _pass_counts[name] = _pass_counts.get(name, 0) + 1
        if _pass_counts[name] == int(nth or 1):
            os.kill(os.getpid(), signal.SIGKILL)
