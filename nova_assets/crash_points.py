"""Named points at which a test may kill the process: everything must be right after that, too (R1 to R7)."""

from __future__ import annotations

import os
import signal

CRASH_POINTS = (
    "begin.before",  # nothing is written yet
    "begin.after",  # pins are in the catalog
    "stage.recorded",  # a staged folder is known to the catalog, and empty
    "stage.written",  # its files are there, their manifest is not
    "task.after",  # one task is staged whole
    "commit.before",  # everything is staged
    "commit.inside",  # the transaction has done everything but COMMIT
    "commit.after",  # durable; nobody else has heard
    "publish.before",  # about to tell Dagster
    "publish.after",  # Dagster has heard, the catalog does not know it
    "sweep.before",  # about to delete a dead execution's files
    "sweep.after",  # files are gone, the catalog still lists them as staged
    "collect.marked",  # blocks are collected, their files are there
    "collect.deleted",  # their files are gone, the catalog still lists them
    "repair.given_up",  # damaged blocks are marked as collected, nothing else is mended
    "repair.moving",  # about to move an orphan away
    "repair.unmarked",  # Dagster is to hear of a channel again, and still has what it had
    "repair.wiped",  # Dagster has nothing of a channel
    "receive.announced",  # arrivals are known to the catalog, nothing of them is read
    "receive.acknowledging",  # they are committed, the inbox does not know it
    "receive.acknowledged",  # it does
    "seal.final",  # a group that is complete has its final form, and no seal
    "seal.put",  # it has one, and nobody has heard
    "edition.opened",  # an edition is opened in the catalog, its table does not show it
    "edition.made",  # it is made, and not shown yet
    "edition.exchanging",  # a folder that is taken over is about to give way
    "edition.shown",  # the table shows it, the catalog does not know it
    "edition.known",  # it does
    "fire.before",  # a trigger is due, no firing says so yet
    "fire.after",  # the firing is a row in the catalog, its run is not requested
)
"""Every place at which a test may kill the process, by ``NOVA_CRASH_AT=name`` (or ``name:n`` for the n-th passing)."""

_pass_counts: dict[str, int] = {}


def crash_point(name: str) -> None:
    """Die here, as by SIGKILL, if the environment asks for it."""
    requested, _, nth = os.environ.get("NOVA_CRASH_AT", "").partition(":")
    if requested == name:
        _pass_counts[name] = _pass_counts.get(name, 0) + 1
        if _pass_counts[name] == int(nth or 1):
            os.kill(os.getpid(), signal.SIGKILL)
