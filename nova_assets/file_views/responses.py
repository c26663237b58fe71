"""Answers of views as JSON, and their decoding in a client. File lists are passed through without being parsed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from nova_assets.file_views.channel_view import ChannelView
from nova_assets.file_views.view_entries import (
    Descriptions,
    EncodedBlock,
    StoreDescription,
    block_from_header,
    decode_json,
    encode_block,
    encode_description,
)
from nova_assets.model.block import Block, DataFile
from nova_assets.model.reads import ChangeUnion, DeltaChain, Read, SnapshotAsInserts, SnapshotDiff
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History, TimelinePosition
from nova_assets.plan import modes

Link = tuple[str, str]
"""Action and commit of an instant, which lead from one timeline position to the next."""


@dataclass(frozen=True, slots=True)
class TimelineProof:
    """Proof that an answer continues the asker's timeline.

    Args:
        position: position of the view.
        links: instants from the asker's position to the view's position, oldest first.
    """

    position: TimelinePosition
    links: tuple[Link, ...] = ()

    def continues_from(self, known_position: TimelinePosition) -> bool:
        """Whether the links lead from a position to the view's position."""
        for action, commit in self.links:
            known_position = known_position.with_instant(action, commit)
        return known_position == self.position


def encode_files(view: ChannelView, scope: str, at: int | None, proof: TimelineProof) -> bytes:
    """Answer with the files of a snapshot, by block: the newest base of each partition, and the deltas after it."""
    history, encoded_blocks = view.excerpt(scope, at, back_to=view.header.head if at is None else at)
    read = modes.snapshot(history)
    return _encode_object(
        {**_answer_fields(scope, history, proof), "kind": "snapshot"},
        {
            "blocks": _encode_array(
                _encode_block_answer(encoded_blocks[b.id]) for b in _blocks_of_sources(read.bases, read.deltas)
            )
        },
    )


def encode_changed_files(view: ChannelView, scope: str, since: int, at: int | None, proof: TimelineProof) -> bytes:
    """Answer with the files that contain the changes between two numbers.

    The answer has parts for different partitions. A ``chain`` part lists deltas. A ``diff`` part, used if a base lies
    in between, lists the blocks of the older and of the newer snapshot. A ``snapshot`` part lists the blocks of a
    snapshot whose rows all count as inserts.
    """
    return _encode_changes(*view.excerpt(scope, at, since=since), since, proof)


def encode_changed_files_of_history(history_without_view: History, since: int, proof: TimelineProof) -> bytes:
    """Like ``encode_changed_files``, for a history from the catalog."""
    encoded_blocks = {
        b.id: _encoded_block(b, lambda what: encode_description(what)[0]) for b in history_without_view.blocks
    }
    return _encode_changes(history_without_view, encoded_blocks, since, proof)


def _encode_changes(
    loaded_history: History, encoded_blocks: Mapping[str, EncodedBlock], since: int, proof: TimelineProof
) -> bytes:
    parts = []
    for change_kind, old, new in _changed_parts(modes.changes(loaded_history, since)):
        blocks = {
            "old": _encode_array(_encode_block_answer(encoded_blocks[b.id]) for b in old),
            "new": _encode_array(_encode_block_answer(encoded_blocks[b.id]) for b in new),
        }
        parts.append(_encode_object({"how": change_kind}, blocks))
    answer_fields = {**_answer_fields(loaded_history.scope, loaded_history, proof), "kind": "changes", "since": since}
    return _encode_object(answer_fields, {"parts": _encode_array(parts)})


def encode_history(
    view: ChannelView, scope: str, at: int | None, since: int, back_to: int, proof: TimelineProof
) -> bytes:
    """Answer with the history that a plan needs; ``decode_history`` reads it."""
    loaded_history, encoded_blocks = view.excerpt(scope, at, since, back_to)
    return _encode_history(
        view.schema_and_merge_digests(loaded_history.head),
        loaded_history,
        [encoded_blocks[b.id] for b in loaded_history.blocks],
        view.descriptions,
        proof,
    )


def encode_history_without_view(history_without_view: History, proof: TimelineProof) -> bytes:
    """Like ``encode_history``, for a history from the catalog."""
    encoded_descriptions: dict[str, bytes] = {}

    def store_description(description: Any) -> str:
        digest, text = encode_description(description)
        encoded_descriptions[digest] = text
        return digest

    def store_optional(optional: Any) -> str | None:
        return None if optional is None else store_description(optional.as_json())

    encoded_blocks = [_encoded_block(block, store_description) for block in history_without_view.blocks]
    digests = (
        store_optional(history_without_view.schema),
        store_description(history_without_view.merge.as_json()),
        store_optional(history_without_view.last_merge),
    )
    return _encode_history(digests, history_without_view, encoded_blocks, Descriptions(encoded_descriptions.get), proof)


def _encoded_block(block: Block, store_description: StoreDescription) -> EncodedBlock:
    header_line, _, files_line = encode_block(block, store_description).partition(b"\n")
    return EncodedBlock(block, header_line, files_line)


def _encode_history(
    digests: tuple[str | None, str, str | None],
    loaded_history: History,
    encoded_blocks: Sequence[EncodedBlock],
    descriptions: Descriptions,
    proof: TimelineProof,
) -> bytes:
    used_digests = {m for m in digests if m is not None}
    for k in encoded_blocks:
        header = decode_json(k.header_line)
        used_digests |= {m for m in (header["schema"], header["merge"], header["layout"]) if m is not None}
    fields = {
        "channel": loaded_history.channel,
        "scope": loaded_history.scope,
        "head": loaded_history.head,
        "since": loaded_history.first_answerable_version,
        "schema": digests[0],
        "merge": digests[1],
        "last_merge": digests[2],
        "numbers": {p: list(n) for p, n in loaded_history.collected_numbers.items()},
        "floors": dict(loaded_history.base_floors),
        "earlier": None
        if loaded_history.schema_at_first_version is None
        else loaded_history.schema_at_first_version.as_json(),
        **_proof_fields(proof),
    }
    encoded_by_digest = {m: descriptions.encoded_description(m) for m in sorted(used_digests)}
    return _encode_object(
        fields,
        {
            "descriptions": _encode_mapping(encoded_by_digest),
            "blocks": _encode_array(map(_encode_block_answer, encoded_blocks)),
        },
    )


def decode_history(answer: bytes) -> tuple[TimelineProof, History]:
    """Decode the answer of ``encode_history``.

    Raises:
        ViewDamaged, KeyError, TypeError, ValueError: the answer is malformed.
    """
    fields = decode_json(answer)
    encoded_descriptions = {mark: orjson.dumps(what) for mark, what in fields["descriptions"].items()}
    descriptions = Descriptions(encoded_descriptions.get)
    merge = descriptions.merge(fields["merge"])
    if merge is None:
        raise ValueError("the answer names no merge model")
    return decode_proof(fields), History(
        fields["channel"],
        fields["scope"],
        fields["head"],
        tuple(decode_block_with_files(fields["channel"], b, descriptions) for b in fields["blocks"]),
        descriptions.schema(fields["schema"]),
        merge,
        {p: tuple(n) for p, n in fields["numbers"].items()},
        fields["since"],
        descriptions.merge(fields["last_merge"]),
        dict(fields["floors"]),
        None if fields["earlier"] is None else Schema.from_json(fields["earlier"]),
    )


def decode_block_with_files(channel: str, encoded: Mapping[str, Any], descriptions: Descriptions) -> Block:
    block = block_from_header(channel, encoded["block"], descriptions)
    return replace(block, manifest=replace(block.manifest, files=tuple(map(DataFile.from_json, encoded["files"]))))


def decode_proof(fields: Mapping[str, Any]) -> TimelineProof:
    return TimelineProof(TimelinePosition.parse(fields["position"]), tuple((a, c) for a, c in fields["links"]))


def _proof_fields(proof: TimelineProof) -> dict[str, Any]:
    return {"position": str(proof.position), "links": [list(link) for link in proof.links]}


def _answer_fields(scope: str, history: History, proof: TimelineProof) -> dict[str, Any]:
    return {"channel": history.channel, "partition": scope, "at": history.head, **_proof_fields(proof)}


def _changed_parts(read: Read) -> Iterable[tuple[str, tuple[Block, ...], tuple[Block, ...]]]:
    if isinstance(read, ChangeUnion):
        for part in read.parts:
            yield from _changed_parts(part)
    elif isinstance(read, DeltaChain):
        yield "chain", (), _blocks_of_sources(read.deltas)
    elif isinstance(read, SnapshotDiff):
        yield (
            "diff",
            _blocks_of_sources(read.old.bases, read.old.deltas),
            _blocks_of_sources(read.new.bases, read.new.deltas),
        )
    elif isinstance(read, SnapshotAsInserts):
        yield "snapshot", (), _blocks_of_sources(read.snapshot.bases, read.snapshot.deltas)


def _blocks_of_sources(*source_groups: Iterable[Any]) -> tuple[Block, ...]:
    return tuple(b for sources in source_groups for b in sources if isinstance(b, Block))


def _encode_block_answer(encoded_block: EncodedBlock) -> bytes:
    return b'{"block":' + encoded_block.header_line + b',"files":' + encoded_block.files_line + b"}"


def _encode_array(items: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def _encode_mapping(encoded_by_key: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(orjson.dumps(k) + b":" + v for k, v in encoded_by_key.items()) + b"}"


def _encode_object(fields: Mapping[str, Any], encoded_fields: Mapping[str, bytes]) -> bytes:
    """JSON object of fields, some of which are already encoded."""
    return (
        orjson.dumps(fields)[:-1]
        + b"".join(b"," + orjson.dumps(k) + b":" + v for k, v in encoded_fields.items())
        + b"}"
    )
