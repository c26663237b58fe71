"""Datasets put before Spark's parser and analyser without being run. Its answers are kept by what they follow from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from nova_assets.errors import EngineUnavailable, NovaError, SqlError
from nova_assets.model.engine import Engine
from nova_assets.model.schema import Schema
from nova_assets.sql.cache.analysis_cache import hash_of, hash_of_text
from nova_assets.sql.cache.disk_cache import Opened, Shelf
from nova_assets.sql.datasets.task import InScope
from nova_assets.sql.query.spark_confirmation import check_columns


@dataclass(frozen=True)
class Analysis:
    """What Spark says of some datasets.

    Args:
        asked: datasets of which it gave the columns now.
        known: datasets whose answer was kept.
        refused: the error of each dataset that it does not take, or has other columns of.
        not_asked: dataset -> the reason why it could not be asked.
    """

    asked: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    refused: Mapping[str, SqlError] = field(default_factory=dict)
    not_asked: Mapping[str, str] = field(default_factory=dict)

    @property
    def confirmed(self) -> list[str]:
        """Datasets of which Spark has the same columns as the rules."""
        return [name for name in (*self.asked, *self.known) if name not in self.refused]


def analyse(
    datasets: Sequence[InScope], engine: Callable[[], Engine], config: Mapping[str, str], shelf: Shelf
) -> Analysis:
    """Ask Spark about datasets: does it take the query, and has it the same columns.

    A dataset is asked about once for each text, schemas of its inputs, version of Spark, and configuration. Nothing is
    run, and no input is read.

    Args:
        engine: gives the engine; called only if there is something to ask.
        config: of the Spark session.
        shelf: keeps the answers.
    """
    asked, known, refused, not_asked = list[str](), list[str](), dict[str, SqlError](), dict[str, str]()
    unavailable = ""
    with shelf.opened() as kept:
        for dataset in datasets:
            key = _key(dataset, config)
            schema = _kept(kept, key)
            try:
                if schema is not None:
                    known.append(dataset.name)
                elif unavailable:
                    not_asked[dataset.name] = unavailable
                    continue
                else:
                    schema = dataset.analysed(engine())
                    asked.append(dataset.name)
                    kept.put(key, {"schema": schema.as_json()}, b"")
                check_columns(dataset.query, dataset.schema, schema)
            except SqlError as error:
                refused[dataset.name] = error
            except NovaError as error:
                not_asked[dataset.name] = error.what
                unavailable = error.what if isinstance(error, EngineUnavailable) else ""
    return Analysis(tuple(asked), tuple(known), refused, not_asked)


def _key(dataset: InScope, config: Mapping[str, str]) -> bytes:
    """Everything that Spark's answer follows from."""
    schemas = [f"{name} {schema}" for name, schema in dataset.query.schemas.items()]
    functions = json.dumps(dict(dataset.graph.functions), sort_keys=True)
    settings = json.dumps(dict(config), sort_keys=True)
    text = hash_of_text(dataset.written.text).hex()
    return hash_of("spark", _spark_version(), settings, text, functions, *schemas)


def _kept(shelf: Opened, key: bytes) -> Schema | None:
    found = shelf.said(key)
    try:
        return None if found is None else Schema.from_json(found["schema"])
    except (KeyError, TypeError, NovaError):
        return None


def _spark_version() -> str:
    """Of the package that is installed, so that a kept answer needs no session."""
    for package in ("pyspark", "pyspark-client"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""
