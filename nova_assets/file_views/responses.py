"""What views answer, as JSON, and what a client makes of that again. Files go through as they are kept, unread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from nova_assets.file_views.block_encoding import Describe, Descriptions, Kept, block_of, described, encode, loads
from nova_assets.file_views.channel_view import View
from nova_assets.model.block import Block, DataFile
from nova_assets.model.reads import Chain, Diff, Inserts, Read, Together
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History, Position
from nova_assets.plan import modes

Link = tuple[str, str]
"""The action and the commit of an instant: what leads from one position to the next."""


@dataclass(frozen=True, slots=True)
class Known:
    """What an answer says of the timeline.

    Args:
        position: where the view is.
        links: the instants from what the asker knew to there, oldest first: they prove that the one is part of the
            other.
    """

    position: Position
    links: tuple[Link, ...] = ()

    def goes_on_from(self, known: Position) -> bool:
        """Whether the links lead from one position to the other."""
        for action, commit in self.links:
            known = known.after(action, commit)
        return known == self.position


def files(view: View, scope: str, at: int | None, known: Known) -> bytes:
    """The files of a snapshot, block by block: the newest base of each partition, and the deltas that lead on."""
    history, kept = view.excerpt(scope, at, back_to=view.head.head if at is None else at)
    read = modes.snapshot(history)
    return _object(
        {**_about(scope, history, known), "kind": "snapshot"},
        {"blocks": _array(_block(kept[b.id]) for b in _sources(read.bases, read.deltas))},
    )


def changed_files(view: View, scope: str, since: int, at: int | None, known: Known) -> bytes:
    """The files that tell what changed between two numbers.

    In parts, of different partitions: the deltas of a ``chain``; or, where a base lies between, ``diff``: the blocks of
    the snapshot before, and of that after.
    """
    return _changed_files(*view.excerpt(scope, at, since=since), since, known)


def changed_files_told(found: History, since: int, known: Known) -> bytes:
    """The same, of a history that no view had."""
    kept = {b.id: _kept(b, lambda what: described(what)[0]) for b in found.blocks}
    return _changed_files(found, kept, since, known)


def _changed_files(found: History, kept: Mapping[str, Kept], since: int, known: Known) -> bytes:
    parts = []
    for how, old, new in _parts(modes.changes(found, since)):
        blocks = {"old": _array(_block(kept[b.id]) for b in old), "new": _array(_block(kept[b.id]) for b in new)}
        parts.append(_object({"how": how}, blocks))
    about = {**_about(found.scope, found, known), "kind": "changes", "since": since}
    return _object(about, {"parts": _array(parts)})


def history(view: View, scope: str, at: int | None, since: int, back_to: int, known: Known) -> bytes:
    """What a plan needs of a channel, for a client (``history_from``)."""
    found, kept = view.excerpt(scope, at, since, back_to)
    return _history(view.marks(found.head), found, [kept[b.id] for b in found.blocks], view.known, known)


def history_told(found: History, known: Known) -> bytes:
    """The same, of a history that no view had."""
    texts: dict[str, bytes] = {}

    def describe(what: Any) -> str:
        mark, text = described(what)
        texts[mark] = text
        return mark

    def marked(what: Any) -> str | None:
        return None if what is None else describe(what.as_json())

    kept = [_kept(block, describe) for block in found.blocks]
    marks = (marked(found.schema), describe(found.merge.as_json()), marked(found.last_merge))
    return _history(marks, found, kept, Descriptions(texts.get), known)


def _kept(block: Block, describe: Describe) -> Kept:
    about, _, listed = encode(block, describe).partition(b"\n")
    return Kept(block, about, listed)


def _history(
    marks: tuple[str | None, str, str | None],
    found: History,
    kept: Sequence[Kept],
    descriptions: Descriptions,
    known: Known,
) -> bytes:
    wanted = {m for m in marks if m is not None}
    for k in kept:
        about = loads(k.about)
        wanted |= {m for m in (about["schema"], about["merge"], about["layout"]) if m is not None}
    said = {
        "channel": found.channel,
        "scope": found.scope,
        "head": found.head,
        "since": found.since,
        "schema": marks[0],
        "merge": marks[1],
        "last_merge": marks[2],
        "numbers": {p: list(n) for p, n in found.numbers.items()},
        "floors": dict(found.floors),
        "earlier": None if found.earlier is None else found.earlier.as_json(),
        **_position(known),
    }
    described_by = {m: descriptions.text(m) for m in sorted(wanted)}
    return _object(said, {"descriptions": _mapping(described_by), "blocks": _array(map(_block, kept))})


def history_from(answer: bytes) -> tuple[Known, History]:
    """What ``history`` answered. Raises Damaged, KeyError, TypeError, ValueError: it is no such answer."""
    said = loads(answer)
    texts = {mark: orjson.dumps(what) for mark, what in said["descriptions"].items()}
    descriptions = Descriptions(texts.get)
    merge = descriptions.merge(said["merge"])
    if merge is None:
        raise ValueError("the answer names no merge model")
    return known_from(said), History(
        said["channel"],
        said["scope"],
        said["head"],
        tuple(block_from(said["channel"], b, descriptions) for b in said["blocks"]),
        descriptions.schema(said["schema"]),
        merge,
        {p: tuple(n) for p, n in said["numbers"].items()},
        said["since"],
        descriptions.merge(said["last_merge"]),
        dict(said["floors"]),
        None if said["earlier"] is None else Schema.from_json(said["earlier"]),
    )


def block_from(channel: str, said: Mapping[str, Any], descriptions: Descriptions) -> Block:
    block = block_of(channel, said["block"], descriptions)
    return replace(block, manifest=replace(block.manifest, files=tuple(map(DataFile.from_json, said["files"]))))


def known_from(said: Mapping[str, Any]) -> Known:
    return Known(Position.parse(said["position"]), tuple((a, c) for a, c in said["links"]))


def _position(known: Known) -> dict[str, Any]:
    return {"position": str(known.position), "links": [list(link) for link in known.links]}


def _about(scope: str, history: History, known: Known) -> dict[str, Any]:
    return {"channel": history.channel, "partition": scope, "at": history.head, **_position(known)}


def _parts(read: Read) -> Iterable[tuple[str, tuple[Block, ...], tuple[Block, ...]]]:
    if isinstance(read, Together):
        for part in read.parts:
            yield from _parts(part)
    elif isinstance(read, Chain):
        yield "chain", (), _sources(read.deltas)
    elif isinstance(read, Diff):
        yield "diff", _sources(read.old.bases, read.old.deltas), _sources(read.new.bases, read.new.deltas)
    elif isinstance(read, Inserts):
        yield "snapshot", (), _sources(read.snapshot.bases, read.snapshot.deltas)


def _sources(*some: Iterable[Any]) -> tuple[Block, ...]:
    return tuple(b for part in some for b in part if isinstance(b, Block))


def _block(kept: Kept) -> bytes:
    return b'{"block":' + kept.about + b',"files":' + kept.files + b"}"


def _array(some: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(some) + b"]"


def _mapping(some: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(orjson.dumps(k) + b":" + v for k, v in some.items()) + b"}"


def _object(said: Mapping[str, Any], raw: Mapping[str, bytes]) -> bytes:
    """An object, of which some parts are JSON already."""
    return orjson.dumps(said)[:-1] + b"".join(b"," + orjson.dumps(k) + b":" + v for k, v in raw.items()) + b"}"
