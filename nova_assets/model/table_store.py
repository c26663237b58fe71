"""Protocol of a store in which a published folder lies: an object store, or HDFS."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol


class TableStore(Protocol):
    """Objects by address. No operation renames or links objects, because object stores can do neither.

    All methods raise OSError if the store does not answer.
    """

    def read(self, address: str) -> bytes | None:
        """Content of an object; None if it does not exist."""

    def open(self, address: str) -> Any:
        """Open an object for random access. Raises FileNotFoundError."""

    def write(self, address: str, data: bytes) -> None:
        """Write an object. In an object store, readers see the old content or the new content, and nothing between."""

    def write_all(self, objects: Iterable[tuple[str, bytes]]) -> None:
        """Write several objects concurrently."""

    def delete(self, addresses: Iterable[str]) -> None:
        """Delete objects. Missing objects are ignored."""

    def list(self, address: str) -> list[str]:
        """Addresses of all objects below an address. Only writers and maintenance use it, never a read (R16)."""
