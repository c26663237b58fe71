"""Files of the test collections of Apache ORC and Parquet that pyarrow ships."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from nova_assets_tests.foreign_files.foreign_file import ForeignFile
from nova_assets_tests.foreign_files.orc_and_avro_files import read_pyorc
from nova_assets_tests.foreign_files.parquet_files import read_duckdb

_FOLDER = Path(pa.__file__).parent / "tests" / "data"


def shipped_files() -> Iterator[ForeignFile]:
    for path in sorted([*_FOLDER.rglob("*.orc"), *_FOLDER.rglob("*.parquet")]):
        read = read_pyorc if path.suffix == ".orc" else read_duckdb
        yield ForeignFile(f"shipped {path.name}", path.suffix, partial(shutil.copyfile, path), read)
