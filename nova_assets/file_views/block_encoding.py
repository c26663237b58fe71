"""Encoding of blocks as bytes: one line about the block, and one line with its files.

Descriptions that many blocks share, such as a schema, are stored once, under their hash. The files are stored in the
format of the answers, so that answering needs no parsing.
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
from nova_assets.model.external_files import ExternalFolder
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.merge import MergeModel, merge_model_from_json
from nova_assets.model.schema import Schema

StoreDescription = Callable[[Any], str]
"""Stores a description, and returns its hash."""


class ViewDamaged(Exception):
    """Stored data differs from what was written."""


class decode_errors_as_damage:
    """Context manager that converts decoding errors to ViewDamaged."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyError | TypeError | ValueError | AttributeError):
            raise ViewDamaged(f"{type(error).__name__}: {error}") from error


def decode_json(encoded: bytes) -> Any:
    """Decode JSON. Raises ViewDamaged."""
    with decode_errors_as_damage():
        return orjson.loads(encoded)


class Descriptions:
    """Descriptions by hash. Each is read once per object, and decoded once per process."""

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
        """Description as JSON. Raises ViewDamaged if it is missing."""
        if digest not in self._cache:
            encoded = self._read_description(digest)
            if encoded is None:
                raise ViewDamaged(f"the description {digest} is missing")
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
    """Hash and JSON of a description."""
    encoded = orjson.dumps(description, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(encoded).hexdigest()[:24], encoded


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """A block of a view, with its encoded lines.

    Args:
        block: the block without its files.
        header_line: encoded line about the block.
        files_line: encoded line with its files.
    """

    block: Block
    header_line: bytes
    files_line: bytes

    def block_with_files(self) -> Block:
        """Block with its decoded files."""
        with decode_errors_as_damage():
            files = tuple(DataFile.from_json(f) for f in decode_json(self.files_line))
        return replace(self.block, manifest=replace(self.block.manifest, files=files))


def encode_block(block: Block, store_description: StoreDescription) -> bytes:
    """Encode a block with its files."""
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
        "keeps_all": manifest.drops_no_rows,
        "schema": store_description(manifest.schema.as_json()),
        "merge": store_description(block.merge.as_json()),
        "layout": None if manifest.layout is None else store_description(manifest.layout.as_json()),
        "outside": None if manifest.external_folder is None else manifest.external_folder.as_json(),
        "partition": block.partition,
        **({} if block.channel_merge is None else {"channel_merge": store_description(block.channel_merge.as_json())}),
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
    """Whether JSON can represent a value. Other bounds of a range are omitted, as if unknown."""
    return not isinstance(value, float) or math.isfinite(value)


def decode_block(channel: str, encoded: bytes, descriptions: Descriptions) -> EncodedBlock:
    """Decode a block encoded by ``encode_block``."""
    header_line, _, files_line = encoded.partition(b"\n")
    with decode_errors_as_damage():
        return EncodedBlock(block_from_header(channel, decode_json(header_line), descriptions), header_line, files_line)


def block_from_header(channel: str, header: Mapping[str, Any], descriptions: Descriptions) -> Block:
    """Block without its files, from its decoded header line."""
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
        descriptions.merge(header.get("channel_merge")),
    )
