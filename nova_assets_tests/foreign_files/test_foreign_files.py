"""Files of other writers are read as their writers read them, or refused with the right cause; so are damaged ones.

``NOVA_FUZZ_STEPS`` (turned bits a file) and ``NOVA_FUZZ_SEED`` make longer runs and others.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_assets_tests.effort import EXHAUSTIVE, examples
from nova_assets_tests.foreign_files.examination import Report, examine
from nova_assets_tests.foreign_files.foreign_file import ForeignFile
from nova_assets_tests.foreign_files.orc_and_avro_files import avro_files, orc_files
from nova_assets_tests.foreign_files.parquet_files import parquet_files
from nova_assets_tests.foreign_files.shipped_files import shipped_files
from nova_assets_tests.foreign_files.text_files import text_files

SEED = os.environ.get("NOVA_FUZZ_SEED", "20240131")
FORMATS: dict[str, Callable[[], Iterator[ForeignFile]]] = {
    "parquet": parquet_files,
    "orc": orc_files,
    "avro": avro_files,
    "text": text_files,
    "shipped": shipped_files,
}
SOME = {"parquet": 6, "orc": 3, "avro": 4, "text": 2, "shipped": 1}


def examine_all(files: Iterable[ForeignFile], folder: Path, cuts: int, flips: int) -> None:
    report = Report()
    for number, file in enumerate(files):
        examine(file, folder / str(number), SEED, cuts, flips, report)
        shutil.rmtree(folder / str(number))
    print(f"\n{number + 1} files", *(f"{count:6} {what}" for what, count in sorted(report.counts.items())), sep="\n")
    assert not report.differences, "\n".join(report.differences)


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
def test_some_files(format_: str, tmp_path: Path) -> None:
    files = random.Random(SEED).sample(list(FORMATS[format_]()), SOME[format_])
    examine_all(files, tmp_path, cuts=1, flips=2)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("format_", [pytest.param(f, marks=EXHAUSTIVE) for f in FORMATS])
def test_all_files(format_: str, tmp_path: Path) -> None:
    examine_all(FORMATS[format_](), tmp_path, cuts=1, flips=examples(4, 4))


@pytest.mark.spark
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", [pytest.param("all", marks=EXHAUSTIVE)])
def test_all_files_of_spark(kind: str, tmp_path: Path, spark: Any) -> None:
    from nova_assets_tests.foreign_files.spark_files import spark_files

    examine_all(spark_files(spark), tmp_path, cuts=1, flips=examples(4, 4))
