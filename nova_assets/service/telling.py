"""What is told of blocks, by what the caller may know: to change a channel is not to read it."""

from __future__ import annotations

from collections.abc import Iterable

from nova_assets.model.block import Block
from nova_assets.model.commit import Commit
from nova_assets.service.caller import Caller
from nova_assets.service.shapes.blocks import BlockShape, CommitShape


def blocks_for(caller: Caller, channel: str, blocks: Iterable[Block]) -> list[BlockShape]:
    """Blocks of a channel; without their content for who may not read it."""
    shapes = [BlockShape.of(b) for b in blocks]
    return shapes if caller.may("read", channel) else [s.without_content() for s in shapes]


def commit_for(caller: Caller, channel: str, commit: Commit) -> CommitShape:
    """A commit to a channel, likewise."""
    return CommitShape.of(commit).model_copy(update={"blocks": blocks_for(caller, channel, commit.blocks)})
