"""JSON shapes of file view answers, for the API description only. ``file_views/responses`` writes the answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from nova_assets.service.shapes.blocks import FileShape


class KeptBlock(BaseModel):
    """A block of a file view with its files. ``schema``, ``merge`` and ``layout`` are hashes."""

    model_config = ConfigDict(extra="allow")
    block: dict[str, Any]
    files: list[FileShape]


class SnapshotFiles(BaseModel):
    """Files of a snapshot: the newest base of each partition, and the deltas that follow it.

    ``links`` lead from the position that the caller gave to the position of the answer.
    """

    channel: str
    partition: str
    at: int
    position: str
    links: list[list[str]]
    kind: Literal["snapshot"]
    blocks: list[KeptBlock]


class ChangedPart(BaseModel):
    """Changes of some partitions: a ``chain`` of deltas, all rows of a ``snapshot``, or the ``diff`` of two states."""

    how: Literal["chain", "diff", "snapshot"]
    old: list[KeptBlock]
    new: list[KeptBlock]


class ChangedFiles(BaseModel):
    """Files that hold the changes after ``since``, up to ``at``."""

    channel: str
    partition: str
    at: int
    since: int
    position: str
    links: list[list[str]]
    kind: Literal["changes"]
    parts: list[ChangedPart]


class HistoryShape(BaseModel):
    """Part of a channel's history that a plan needs."""

    model_config = ConfigDict(extra="allow")
    channel: str
    scope: str
    head: int
    position: str
    links: list[list[str]]
    blocks: list[KeptBlock]
