"""What views answer, for the description alone: they write it themselves (``views/answers``)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from nova_assets.service.shapes.blocks import FileShape


class KeptBlock(BaseModel):
    """A block of a view, and its files. ``schema``, ``merge`` and ``layout`` are hashes."""

    model_config = ConfigDict(extra="allow")
    block: dict[str, Any]
    files: list[FileShape]


class SnapshotFiles(BaseModel):
    """The files of a snapshot: of each partition the newest base, and the deltas that lead on. ``links`` lead from the
    position that was given to the one that is answered."""

    channel: str
    partition: str
    at: int
    position: str
    links: list[list[str]]
    kind: Literal["snapshot"]
    blocks: list[KeptBlock]


class ChangedPart(BaseModel):
    """How some partitions changed: by a ``chain`` of deltas, by whatever is in a ``snapshot``, or by the ``diff`` of
    what there was and what there is."""

    how: Literal["chain", "diff", "snapshot"]
    old: list[KeptBlock]
    new: list[KeptBlock]


class ChangedFiles(BaseModel):
    """The files that tell what changed after ``since``, up to ``at``."""

    channel: str
    partition: str
    at: int
    since: int
    position: str
    links: list[list[str]]
    kind: Literal["changes"]
    parts: list[ChangedPart]


class HistoryShape(BaseModel):
    """What a plan needs of a channel."""

    model_config = ConfigDict(extra="allow")
    channel: str
    scope: str
    head: int
    position: str
    links: list[list[str]]
    blocks: list[KeptBlock]
