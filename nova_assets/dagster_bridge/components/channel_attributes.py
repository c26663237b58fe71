"""Attributes of a channel in YAML that have fields of their own: merge model, partitions, source, seal, tables.

The fields are the arguments of ``nova.Upsert``, ``nova.daily``, ``nova.files`` and their like. A field of another kind
is an error, as it would be in Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from dagster import Model, Resolvable, Resolver
from pydantic import BaseModel

from nova_assets.dagster_bridge.components.field_error import in_field
from nova_assets.dagster_bridge.components.import_path import import_attribute
from nova_assets.errors import DefinitionError
from nova_assets.model.file_source import Files, files
from nova_assets.model.merge import Append, Custom, Keyed, MergeModel, Multiset, Upsert
from nova_assets.model.partitions import Dimension, daily, dynamic, hourly, static
from nova_assets.model.published_table import PublishedTable, hive, hive_table, iceberg
from nova_assets.model.seal import Sealing, seal
from nova_assets.suggestions import did_you_mean

T = TypeVar("T")

Columns = str | Sequence[str]

# Choices are `Literal[...] | str`: editors offer the literals, and nova's own errors suggest the right one.


def described(text: str) -> Resolver:
    """Resolver of a field with the description that editors show."""
    resolver: Resolver = Resolver.default(description=text)
    return resolver


class MergeAttributes(Resolvable, Model):
    """How the deltas of a channel merge into its bases."""

    kind: Annotated[
        Literal["append", "multiset", "upsert", "keyed", "custom"] | str,
        described(
            "append: rows are only added. multiset: rows are added, and equal rows are removed. upsert: a row replaces "
            "the row of its key. keyed: columns of a row are combined with those of its key. custom: functions."
        ),
    ]
    key: Annotated[Columns | None, described("upsert, keyed: column or columns that identify a row.")] = None
    order_by: Annotated[
        Columns | None,
        described("upsert, keyed: column or columns; of several rows of a key, the greatest wins."),
    ] = None
    combine: Annotated[
        Mapping[str, str] | None,
        described("keyed: column -> sum, min, max, bool_and or bool_or."),
    ] = None
    merge: Annotated[str | None, described("custom: package.module:function from a base and a delta to a base.")] = None
    chain: Annotated[str | None, described("custom: package.module:function from two deltas to a delta.")] = None
    diff: Annotated[str | None, described("custom: package.module:function from two bases to a delta.")] = None
    version: Annotated[str | None, described("custom: version of the functions. Change it with their meaning.")] = None

    def to_model(self) -> MergeModel:
        """The merge model. Raises FieldError."""
        choices: Mapping[str, Callable[..., MergeModel]]
        choices = {"append": Append, "multiset": Multiset, "upsert": Upsert, "keyed": Keyed, "custom": Custom}
        model = _choose("kind", self.kind, choices)
        functions = {}
        for name in ("merge", "chain", "diff"):
            if path := getattr(self, name):
                with in_field(name):
                    functions[name] = import_attribute(path)
        return call_with_attributes(model, self, f"kind: {self.kind}", **functions)


class PartitionAttributes(Resolvable, Model):
    """One dimension by which a channel is partitioned."""

    kind: Annotated[
        Literal["daily", "hourly", "static", "dynamic"] | str,
        described("daily, hourly: a partition for each day or hour. static: listed values. dynamic: values of data."),
    ]
    column: Annotated[str, described("Name of the partition column.")]
    start: Annotated[
        str | None, described("daily, hourly: the first day (YYYY-MM-DD), or the first hour (YYYY-MM-DDTHH:MM).")
    ] = None
    tz: Annotated[str | None, described("daily, hourly: name of the time zone, by default UTC.")] = None
    of: Annotated[str | None, described("daily, hourly: timestamp column from which the day or hour is derived.")] = (
        None
    )
    keep: Annotated[
        str | None, described("daily, hourly: period after which maintenance drops a partition, such as 90d.")
    ] = None
    values: Annotated[Sequence[str] | None, described("static: the values of the column.")] = None

    def to_dimension(self) -> Dimension:
        """The dimension. Raises DefinitionError."""
        choices: Mapping[str, Callable[..., Dimension]]
        choices = {"daily": daily, "hourly": hourly, "static": static, "dynamic": dynamic}
        return call_with_attributes(_choose("kind", self.kind, choices), self, f"kind: {self.kind}")


class SourceAttributes(Resolvable, Model):
    """The files that arrive for a channel. Each file is ingested exactly once."""

    location: Annotated[str, described("A folder, relative to the project's root, or s3://BUCKET/PREFIX.")]
    format: Annotated[
        str | None, described("Format of all files, such as csv, jsonl or parquet; by default each file's name tells.")
    ] = None
    pattern: Annotated[str | None, described("Only files whose path below the location matches, such as **/*.csv.")] = (
        None
    )
    queue: Annotated[str | None, described("Name or URL of the queue that announces new objects of a bucket.")] = None
    hours: Annotated[str | None, described("Folder of the files of an hour, as a strftime pattern: %Y/%m/%d/%H.")] = (
        None
    )
    tz: Annotated[str | None, described("Time zone of hours, by default UTC.")] = None
    look_back: Annotated[str | None, described("How far back the folders of hours are listed again: 24h.")] = None
    min_age: Annotated[str | None, described("A file that changed more recently is not ingested yet: 2s.")] = None
    on_extra_columns: Annotated[
        Literal["refuse", "drop"] | str | None,
        described("Columns that the channel lacks: refuse or drop."),
    ] = None
    on_replaced: Annotated[
        Literal["refuse", "take"] | str | None, described("A file that changes after it was ingested: refuse or take.")
    ] = None
    max_bad: Annotated[
        float | None, described("Most bad records in a batch: a share if below 1, otherwise a number.")
    ] = None
    max_bytes: Annotated[int | None, described("Largest decompressed file in bytes; larger ones are quarantined.")] = (
        None
    )
    batch_files: Annotated[int | None, described("Approximate number of files of a commit.")] = None
    batch_bytes: Annotated[int | None, described("Approximate size of a commit in memory, in bytes.")] = None

    def to_files(self) -> Files:
        """The source. Raises DefinitionError."""
        return call_with_attributes(files, self, "source")


class SealAttributes(Resolvable, Model):
    """When a day or an hour of a channel is complete."""

    by: Annotated[str, described("Column of a daily or hourly dimension of the channel.")]
    lateness: Annotated[
        str | None, described("Period after the end of a day or hour in which its data may still arrive: 15m.")
    ] = None
    late: Annotated[
        Literal["reopen", "quarantine"] | str | None,
        described("Rows that arrive after the seal: reopen the day or hour, or quarantine the rows."),
    ] = None

    def to_sealing(self) -> Sealing:
        """The rule. Raises DefinitionError."""
        return call_with_attributes(seal, self, "seal")


class TableAttributes(Resolvable, Model):
    """A table through which other tools read a channel."""

    kind: Annotated[
        Literal["hive", "hive_table", "iceberg"] | str,
        described("hive: a folder of Parquet files. hive_table: a folder of converted files. iceberg: a table."),
    ]
    path: Annotated[str | None, described("hive, hive_table: the folder.")] = None
    format: Annotated[str | None, described("hive_table: parquet, orc, rcfile, avro, csv or json.")] = None
    metastore: Annotated[str | None, described("hive: address of a metastore to register in: thrift://host:9083.")] = (
        None
    )
    table: Annotated[str | None, described("hive: name of the table in the metastore: shop.actions.")] = None
    partitions_per_call: Annotated[
        int | None, described("hive: number of partitions that one call registers in the metastore.")
    ] = None
    name: Annotated[str | None, described("iceberg: name of the table, with its namespace: lake.orders.")] = None
    catalog: Annotated[str | None, described("iceberg: name of the Iceberg catalog.")] = None
    every: Annotated[str | None, described("Shortest time between two published versions: 1m.")] = None

    def to_table(self) -> PublishedTable:
        """The table. Raises DefinitionError."""
        choices: Mapping[str, Callable[..., PublishedTable]] = {
            "hive": hive,
            "hive_table": hive_table,
            "iceberg": iceberg,
        }
        return call_with_attributes(_choose("kind", self.kind, choices), self, f"kind: {self.kind}")


def call_with_attributes(function: Callable[..., T], attributes: BaseModel, owner: str, **replaced: Any) -> T:
    """Call a function with the fields that the YAML sets, except ``kind``.

    Args:
        owner: what has the fields, for error messages.
        replaced: values in place of those of the YAML.

    Raises:
        FieldError: the function has no such argument, or needs another one.
    """
    given = {n: v for n, v in attributes if n != "kind" and n in attributes.model_fields_set and v is not None}
    parameters = inspect.signature(function).parameters
    for name in given:
        if name not in parameters:
            with in_field(name):
                raise DefinitionError(f"{owner} takes no {name}", expected=", ".join(parameters) or "no other field")
    missing = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in given]
    if missing:
        raise DefinitionError(f"{owner} needs {' and '.join(missing)}", found=", ".join(given) or "no other field")
    return function(**{**given, **replaced})


def _choose(field: str, name: str, choices: Mapping[str, T]) -> T:
    if name not in choices:
        with in_field(field):
            raise DefinitionError(
                f"{name!r} is unknown{did_you_mean(name, list(choices))}", expected=", ".join(choices)
            )
    return choices[name]
