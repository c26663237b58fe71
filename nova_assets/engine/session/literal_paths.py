"""Spark frames over files by their literal paths, even if a path contains glob characters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nova_assets.engine.session.spark_config import is_connect_session
from nova_assets.engine.storage import file_io

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_GLOB_CHARACTERS = re.compile(r"[{}\[\]*?\\]")


def load_paths(reader: DataFrameReader, spark: SparkSession, paths: list[str]) -> DataFrame:
    """Frame over files by their literal paths, even if the warehouse's path contains glob characters."""
    paths = [file_io.to_spark_address(p) for p in paths]
    if is_connect_session(spark):  # Spark Connect interprets every path as a glob pattern
        return reader.load([_GLOB_CHARACTERS.sub(r"\\\g<0>", p) for p in paths])
    return reader.option("__globPaths__", "false").load(paths)
