"""What came of reading a file of which some records may be damaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from nova_assets.formats.file import SHOWN


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that is not what the channel holds; or a whole file, which has no line then.

    Args:
        line: of the file, from 1; of files without lines, the number of the record.
        reason: for people: what is wrong.
        raw: the record as it stands in the file, as far as it can be shown.
    """

    reason: str
    line: int | None = None
    raw: str | None = None

    @staticmethod
    def of_bytes(reason: str, line: int, raw: bytes) -> Refused:
        text = raw[: SHOWN * 4].decode("utf-8", "backslashreplace")
        return Refused(reason, line, text if len(text) <= SHOWN else text[:SHOWN] + "...")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rows of a file, and what of it was refused.

    Args:
        table: in the declared types.
        numbers: of the lines, row by row.
    """

    table: pa.Table
    numbers: Sequence[int]
    refused: tuple[Refused, ...] = ()
