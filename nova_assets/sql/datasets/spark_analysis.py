"""Validation of datasets by Spark's parser and analyser, without running them. Answers are cached by everything that
determines them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from nova_assets.errors import EngineUnavailable, SqlError
from nova_assets.model.engine import Engine
from nova_assets.model.schema import Schema
from nova_assets.nova_error import NovaError
from nova_assets.sql.datasets.analysis_cache import hash_with_code_version, statement_hash
from nova_assets.sql.datasets.dataset_query import DatasetQuery
from nova_assets.sql.datasets.disk_cache import DiskCache, DiskCacheSession
from nova_assets.sql.query.spark_confirmation import check_spark_columns


@dataclass(frozen=True)
class SparkAnalysis:
    """The results of a validation by Spark.

    Args:
        newly_analysed: datasets that Spark analysed now.
        cached: datasets whose result came from the cache.
        error_by_dataset: the error of each dataset that Spark rejects or for which Spark derives other columns.
        skip_reason_by_dataset: dataset -> the reason why Spark could not analyse it.
    """

    newly_analysed: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    error_by_dataset: Mapping[str, SqlError] = field(default_factory=dict)
    skip_reason_by_dataset: Mapping[str, str] = field(default_factory=dict)

    @property
    def confirmed(self) -> list[str]:
        """Datasets for which Spark derives the same columns as nova's own rules."""
        return [name for name in (*self.newly_analysed, *self.cached) if name not in self.error_by_dataset]


def analyse_with_spark(
    queries: Sequence[DatasetQuery],
    get_engine: Callable[[], Engine],
    spark_config: Mapping[str, str],
    disk_cache: DiskCache,
) -> SparkAnalysis:
    """Validate datasets with Spark: whether Spark accepts each query and derives the same columns.

    Spark analyses a dataset once for each combination of text, input schemas, Spark version and configuration. Nothing
    runs, and no input is read.

    Args:
        get_engine: starts the engine. Called only if a result is not cached.
        spark_config: configuration of the Spark session.
        disk_cache: cache of the results.
    """
    newly_analysed, cached_datasets, error_by_dataset, skip_reason_by_dataset = (
        list[str](),
        list[str](),
        dict[str, SqlError](),
        dict[str, str](),
    )
    unavailable_reason = ""
    with disk_cache.open_session() as session:
        for dataset in queries:
            key = _analysis_key(dataset, spark_config)
            schema = _cached_schema(session, key)
            try:
                if schema is not None:
                    cached_datasets.append(dataset.name)
                elif unavailable_reason:
                    skip_reason_by_dataset[dataset.name] = unavailable_reason
                    continue
                else:
                    schema = dataset.spark_schema(get_engine())
                    newly_analysed.append(dataset.name)
                    session.put(key, {"schema": schema.as_json()}, b"")
                check_spark_columns(dataset.query, dataset.schema, schema)
            except SqlError as error:
                error_by_dataset[dataset.name] = error
            except NovaError as error:
                skip_reason_by_dataset[dataset.name] = error.what
                unavailable_reason = error.what if isinstance(error, EngineUnavailable) else ""
    return SparkAnalysis(tuple(newly_analysed), tuple(cached_datasets), error_by_dataset, skip_reason_by_dataset)


def _analysis_key(query: DatasetQuery, spark_config: Mapping[str, str]) -> bytes:
    """Hash of everything that determines Spark's answer."""
    schemas = [f"{name} {schema}" for name, schema in query.query.schemas.items()]
    functions = json.dumps(dict(query.graph.function_types), sort_keys=True)
    settings = json.dumps(dict(spark_config), sort_keys=True)
    text = statement_hash(query.statement.text).hex()
    return hash_with_code_version("spark", _installed_spark_version(), settings, text, functions, *schemas)


def _cached_schema(session: DiskCacheSession, key: bytes) -> Schema | None:
    found = session.get(key)
    try:
        return None if found is None else Schema.from_json(found["schema"])
    except (KeyError, TypeError, NovaError):
        return None


def _installed_spark_version() -> str:
    """Version of the installed Spark package, so that a cached answer needs no session."""
    for package in ("pyspark", "pyspark-client"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""
