"""Formats of input files."""

from __future__ import annotations

from typing import Literal

Format = Literal["json", "csv", "parquet", "orc", "avro", "text"]
"""``json`` is one object per line, or one array of objects; ``text`` gives one row per line, in a single column."""
