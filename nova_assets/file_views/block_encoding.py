"""Blocks as bytes, and back: a line about the block, and a line of its files.

What many blocks have in common, such as a schema, is kept once, under its hash. The files are written as they are
answered, so that whoever is asked for them need not look into them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import orjson

from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.block_layout import Layout
from nova_assets.model.external_files import Outside
from nova_assets.model.merge import MergeModel, model_from_json
from nova_assets.model.schema import Schema

Describe = Callable[[Any], str]
"""Keeps a description, and gives its hash."""


class Damaged(Exception):
    """What was kept is not what was written."""


class understood:
    """What in there turns out not to be what was written is Damaged."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyError | TypeError | ValueError | AttributeError):
            raise Damaged(f"{type(error).__name__}: {error}") from error


def loads(text: bytes) -> Any:
    """What JSON says. Raises Damaged."""
    with understood():
        return orjson.loads(text)


class Descriptions:
    """Hash -> what is described, found once, and decoded once in a process."""

    def __init__(self, find: Callable[[str], bytes | None]) -> None:
        self._find = find
        self._found: dict[str, bytes] = {}

    def schema(self, mark: str | None) -> Schema | None:
        return None if mark is None else _schema(mark, self.text(mark))

    def merge(self, mark: str | None) -> MergeModel | None:
        return None if mark is None else _merge(mark, self.text(mark))

    def layout(self, mark: str | None) -> Layout | None:
        return None if mark is None else _layout(mark, self.text(mark))

    def text(self, mark: str) -> bytes:
        """A description, as JSON. Raises Damaged where it is not there."""
        if mark not in self._found:
            found = self._find(mark)
            if found is None:
                raise Damaged(f"the description {mark} is not there")
            self._found[mark] = found
        return self._found[mark]


@lru_cache(maxsize=4096)
def _schema(mark: str, text: bytes) -> Schema:
    return Schema.from_json(orjson.loads(text))


@lru_cache(maxsize=4096)
def _merge(mark: str, text: bytes) -> MergeModel:
    return model_from_json(orjson.loads(text))


@lru_cache(maxsize=4096)
def _layout(mark: str, text: bytes) -> Layout:
    return Layout.from_json(orjson.loads(text))


def described(what: Any) -> tuple[str, bytes]:
    """The hash of a description, and the description."""
    text = orjson.dumps(what, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()[:24], text


@dataclass(frozen=True, slots=True)
class Kept:
    """A block of a view.

    Args:
        block: without its files.
        about: the line about it.
        files: the line of its files.
    """

    block: Block
    about: bytes
    files: bytes

    def whole(self) -> Block:
        """The block with its files."""
        with understood():
            files = tuple(DataFile.from_json(f) for f in loads(self.files))
        return replace(self.block, manifest=replace(self.block.manifest, files=files))


def encode(block: Block, describe: Describe) -> bytes:
    """A block, with its files."""
    m = block.manifest
    about = {
        "id": block.id,
        "kind": block.kind,
        "lo": block.lo,
        "hi": block.hi,
        "origin": block.origin,
        "commit": block.commit_id,
        "rows": m.rows,
        "bytes": m.bytes,
        "deletes": m.deletes,
        "format": m.format,
        "keeps_all": m.keeps_all,
        "schema": describe(m.schema.as_json()),
        "merge": describe(block.merge.as_json()),
        "layout": None if m.layout is None else describe(m.layout.as_json()),
        "outside": None if m.outside is None else m.outside.as_json(),
        "partition": block.partition,
    }
    return orjson.dumps(about) + b"\n" + orjson.dumps([_file(f) for f in m.files])


def _file(file: DataFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "rows": file.rows,
        "bytes": file.bytes,
        "ranges": {k: list(v) for k, v in file.ranges.items() if all(map(_is_said, v))},
        "place": None if file.place is None else file.place.as_json(),
        "digest": file.digest,
        "footer_digest": file.footer_digest,
        **({"unpacked": file.unpacked} if file.unpacked else {}),
    }


def _is_said(value: Any) -> bool:
    """Whether JSON can say it; a range that cannot be said is not known."""
    return not isinstance(value, float) or math.isfinite(value)


def decode(channel: str, text: bytes, known: Descriptions) -> Kept:
    """A block, as ``encode`` wrote it."""
    about, _, files = text.partition(b"\n")
    with understood():
        return Kept(block_of(channel, loads(about), known), about, files)


def block_of(channel: str, about: Mapping[str, Any], known: Descriptions) -> Block:
    """The block that a line tells about, without its files."""
    schema, merge = known.schema(about["schema"]), known.merge(about["merge"])
    assert schema is not None and merge is not None
    outside = None if about["outside"] is None else Outside.from_json(about["outside"])
    manifest = Manifest(
        (), schema, about["deletes"], about["format"], about["keeps_all"], known.layout(about["layout"]), outside
    )
    return Block(
        about["id"],
        channel,
        about["partition"],
        about["kind"],
        about["lo"],
        about["hi"],
        manifest,
        merge,
        about["origin"],
        about["commit"],
    )
