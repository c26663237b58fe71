"""What kinds of files are read."""

from __future__ import annotations

from typing import Literal

Format = Literal["json", "csv", "parquet", "orc", "avro", "text"]
"""``json`` is one object per line, or one array of objects; ``text`` has a row per line, of one column."""
