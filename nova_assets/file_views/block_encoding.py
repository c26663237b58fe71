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
from nova_assets.model.block_layout import KeyLayout
from nova_assets.model.external_files import ExternalFolder
from nova_assets.model.merge import MergeModel, merge_model_from_json
from nova_assets.model.schema import Schema

StoreDescription = Callable[[Any], str]
"""Keeps a description, and gives its hash."""


class ViewDamaged(Exception):
    """What was kept is not what was written."""


class decode_errors_as_damage:
    """What in there turns out not to be what was written is Damaged."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyError | TypeError | ValueError | AttributeError):
            raise ViewDamaged(f"{type(error).__name__}: {error}") from error


def decode_json(encoded: bytes) -> Any:
    """What JSON says. Raises Damaged."""
    with decode_errors_as_damage():
        return orjson.loads(encoded)


class Descriptions:
    """Hash -> what is described, found once, and decoded once in a process."""

    def __init__(self, read_description: Callable[[str], bytes | None]) -> None:
        self._read_description = read_description
        self._cache: dict[str, bytes] = {}

    def schema(self, digest: str | None) -> Schema | None:
        return None if digest is None else _decode_schema(digest, self.encoded_description(digest))

    def merge(self, digest: str | None) -> MergeModel | None:
        return None if digest is None else _decode_merge_model(digest, self.encoded_description(digest))

    def layout(self, digest: str | None) -> KeyLayout | None:
        return None if digest is None else _decode_layout(digest, self.encoded_description(digest))

    def encoded_description(self, digest: str) -> bytes:
        """A description, as JSON. Raises Damaged where it is not there."""
        if digest not in self._cache:
            encoded = self._read_description(digest)
            if encoded is None:
                raise ViewDamaged(f"the description {digest} is not there")
            self._cache[digest] = encoded
        return self._cache[digest]


@lru_cache(maxsize=4096)
def _decode_schema(digest: str, encoded: bytes) -> Schema:
    return Schema.from_json(orjson.loads(encoded))


@lru_cache(maxsize=4096)
def _decode_merge_model(digest: str, encoded: bytes) -> MergeModel:
    return merge_model_from_json(orjson.loads(encoded))


@lru_cache(maxsize=4096)
def _decode_layout(digest: str, encoded: bytes) -> KeyLayout:
    return KeyLayout.from_json(orjson.loads(encoded))


def encode_description(description: Any) -> tuple[str, bytes]:
    """The hash of a description, and the description."""
    encoded = orjson.dumps(description, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(encoded).hexdigest()[:24], encoded


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """A block of a view.

    Args:
        block: without its files.
        header_line: the line about it.
        files_line: the line of its files.
    """

    block: Block
    header_line: bytes
    files_line: bytes

    def block_with_files(self) -> Block:
        """The block with its files."""
        with decode_errors_as_damage():
            files = tuple(DataFile.from_json(f) for f in decode_json(self.files_line))
        return replace(self.block, manifest=replace(self.block.manifest, files=files))


def encode_block(block: Block, store_description: StoreDescription) -> bytes:
    """A block, with its files."""
    manifest = block.manifest
    header = {
        "id": block.id,
        "kind": block.kind,
        "lo": block.lo,
        "hi": block.hi,
        "origin": block.origin,
        "commit": block.commit_id,
        "rows": manifest.rows,
        "bytes": manifest.bytes,
        "deletes": manifest.deletes,
        "format": manifest.format,
        "keeps_all": manifest.keeps_all,
        "schema": store_description(manifest.schema.as_json()),
        "merge": store_description(block.merge.as_json()),
        "layout": None if manifest.layout is None else store_description(manifest.layout.as_json()),
        "outside": None if manifest.external_folder is None else manifest.external_folder.as_json(),
        "partition": block.partition,
    }
    return orjson.dumps(header) + b"\n" + orjson.dumps([_file_to_json(f) for f in manifest.files])


def _file_to_json(file: DataFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "rows": file.rows,
        "bytes": file.bytes,
        "ranges": {k: list(v) for k, v in file.ranges.items() if all(map(_is_json_representable, v))},
        "place": None if file.key_placement is None else file.key_placement.as_json(),
        "digest": file.digest,
        "footer_digest": file.footer_digest,
        **({"unpacked": file.uncompressed_bytes} if file.uncompressed_bytes else {}),
    }


def _is_json_representable(value: Any) -> bool:
    """Whether JSON can say it; a range that cannot be said is not known."""
    return not isinstance(value, float) or math.isfinite(value)


def decode_block(channel: str, encoded: bytes, descriptions: Descriptions) -> EncodedBlock:
    """A block, as ``encode`` wrote it."""
    header_line, _, files_line = encoded.partition(b"\n")
    with decode_errors_as_damage():
        return EncodedBlock(block_from_header(channel, decode_json(header_line), descriptions), header_line, files_line)


def block_from_header(channel: str, header: Mapping[str, Any], descriptions: Descriptions) -> Block:
    """The block that a line tells about, without its files."""
    schema, merge = descriptions.schema(header["schema"]), descriptions.merge(header["merge"])
    assert schema is not None and merge is not None
    outside = None if header["outside"] is None else ExternalFolder.from_json(header["outside"])
    manifest = Manifest(
        (),
        schema,
        header["deletes"],
        header["format"],
        header["keeps_all"],
        descriptions.layout(header["layout"]),
        outside,
    )
    return Block(
        header["id"],
        channel,
        header["partition"],
        header["kind"],
        header["lo"],
        header["hi"],
        manifest,
        merge,
        header["origin"],
        header["commit"],
    )
