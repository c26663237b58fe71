"""Input file: its display name and its decompressed bytes.

Input files come from outside. Their decompressed size and the length of their lines are therefore limited.
"""

from __future__ import annotations

import csv
import errno
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from nova_assets.errors import BadRecord, EmptyInput, SourceUnavailable
from nova_assets.nova_error import NovaError

READ_ERRORS = (pa.ArrowException, OSError, EOFError, zlib.error, csv.Error, UnicodeError, ArithmeticError)
"""Errors that pyarrow and Python raise for a damaged file or a file of another format."""

_ENVIRONMENT_ERRNOS = frozenset(
    {errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.ETIMEDOUT}
)
"""Error numbers caused by the machine or the storage and not by the file."""

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}

MAX_LINE_BYTES = 64 << 20
"""Maximum length of a line in bytes."""

MAX_RECORD_CHARACTERS = 10_000
"""Maximum number of characters kept of a refused record."""

TRUNCATION_SUFFIX = "..."
"""Suffix of a record's text that was truncated."""


class FileTooLarge(OSError):
    """A file is larger than allowed when decompressed."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A local input file.

    Args:
        path: local path.
        name: display name, if it differs from the path. Its last suffix determines the compression.
        max_bytes: maximum decompressed size in bytes; None for no limit.
    """

    path: Path
    name: str = ""
    max_bytes: int | None = None

    @property
    def display_name(self) -> str:
        return self.name or str(self.path)

    @property
    def compression(self) -> str | None:
        return COMPRESSIONS.get(Path(self.display_name).suffix.lower())

    def open(self) -> Any:
        """Open the decompressed bytes as a buffered stream.

        Reading from the stream raises OSError or EOFError for a damaged file, and FileTooLarge beyond ``largest``.
        """
        if self.compression == "gzip":
            raw: Any = gzip.GzipFile(self.path, "rb")
        elif self.compression == "zstd":
            raw = io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(self.path)), "zstd"))
        else:
            raw = io.BufferedReader(io.FileIO(self.path))
        return raw if self.max_bytes is None else io.BufferedReader(_SizeLimitedStream(raw, self.max_bytes))


class _SizeLimitedStream(io.RawIOBase):
    """Stream that raises FileTooLarge beyond a number of bytes."""

    def __init__(self, stream: Any, max_bytes: int) -> None:
        self.stream = stream
        self.max_bytes = max_bytes
        self.bytes_left = max_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        count: int = self.stream.readinto(into)
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise FileTooLarge(f"more than {self.max_bytes} bytes after decompression")
        return count

    def close(self) -> None:
        self.stream.close()
        super().close()


class Line(NamedTuple):
    """One line of a file, without its line end.

    Args:
        number: line number, from 1.
        raw: bytes of the line.
        is_truncated: whether the line in the file is longer than ``raw``.
    """

    number: int
    raw: bytes
    is_truncated: bool = False


def read_lines(stream: Any, max_bytes: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Lines of a stream. A line longer than ``max_bytes`` bytes is truncated."""
    number = 0
    while raw := stream.readline(max_bytes + 1):
        number += 1
        is_truncated = len(raw) > max_bytes and not raw.endswith(b"\n")
        if is_truncated:
            while (rest := stream.readline(max_bytes)) and not rest.endswith(b"\n"):
                pass
        yield Line(number, raw.rstrip(b"\r\n"), is_truncated)


def bad_record_error(file: InputFile, message: str, **fields: Any) -> BadRecord:
    """Error for a file with bad content."""
    return BadRecord(f"{file.display_name}: {message}", file=file.display_name, **fields)


def unreadable_file_error(file: InputFile, error: BaseException) -> NovaError:
    """Error for a file that cannot be read to its end: SourceUnavailable for a machine failure, else BadRecord."""
    if isinstance(error, OSError) and error.errno in _ENVIRONMENT_ERRNOS:
        return SourceUnavailable(f"{file.display_name} cannot be read now", found=str(error), next="it is tried again")
    if isinstance(error, PermissionError):
        return bad_record_error(
            file, "this user may not read the file", found=str(error), next="grant read access; then: nova replay"
        )
    if isinstance(error, EOFError) or "truncated" in str(error).lower():
        cause = ": it is truncated"
    else:
        cause = ": it is damaged" if isinstance(error, OSError | zlib.error) else ""
    return bad_record_error(
        file,
        f"the file cannot be read to its end{cause}",
        found=str(error),
        next="fetch the file again",
        line=None,
    )


def empty_file_error(file: InputFile) -> EmptyInput:
    return EmptyInput(
        f"{file.display_name} is empty",
        found=f"{file.path.stat().st_size} bytes without a record",
        expected="at least one record (for CSV, a header line)",
        file=file.display_name,
    )


def preview_text(raw: bytes, max_characters: int = 80) -> str:
    """Quoted and shortened text of some bytes, for error messages."""
    text = raw.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= max_characters else text[: max_characters - 3] + "...")


@contextmanager
def name_file_in_nova_errors(file_name: str) -> Iterator[None]:
    """Context for reading a file: errors name the file, unless they do already."""
    try:
        yield
    except NovaError as error:
        if error.what.startswith(file_name):
            raise
        raise type(error)(
            f"{file_name}: {error.what}",
            found=error.found,
            expected=error.expected,
            next=error.next,
            **{**error.fields, "file": file_name},
        ) from error
