"""Inputs of a task in SQL: one for each dataset and read mode that its query scans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nova_assets.model.edge import Consumes
from nova_assets.sql.query.scans import Mode, Scan

_EDGE_MODE_BY_SCAN_MODE: Mapping[Mode, str] = {"all": "all", "whole": "all", "new": "new", "old": "old"}


def consumed_edges(scans: Iterable[Scan]) -> tuple[Consumes, ...]:
    """Input edges of the scans, one for each dataset and mode. Scans of the same dataset in the same mode share an
    edge.
    """
    found = {
        (name := input_name(s)): Consumes(s.dataset, _EDGE_MODE_BY_SCAN_MODE[s.mode], name, by_name=True)  # type: ignore[arg-type]
        for s in scans
    }
    return tuple(found.values())


def input_by_frame(scans: Iterable[Scan]) -> Mapping[str, str]:
    """Name of each scan's frame in the SQL -> the name of its input."""
    return {f"scan_{s.number}": input_name(s) for s in scans}


def input_name(scan: Scan) -> str:
    return scan.dataset if scan.mode == "all" else f"{scan.mode}_{scan.dataset}"
