"""Media types of request and response bodies."""

from __future__ import annotations

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
LINES = "application/x-ndjson"
