"""Cache of earlier analyses of statements, keyed by the statement's text and everything that its analysis depends on.

Keys form a Merkle tree. A key contains the hashes of the text, of the functions, and of the columns and partition
columns of each input. If a changed query still has the same output columns, the cached analyses of its readers stay
valid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from sqlglot import exp

from nova_assets.model.partitions import Dimension
from nova_assets.model.schema import Schema
from nova_assets.nova_error import NovaError
from nova_assets.sql.datasets.disk_cache import DiskCache, DiskCacheSession
from nova_assets.sql.parse.tree_encoding import decode_tree, encode_tree
from nova_assets.sql.query.resolved_query import Query, resolve_query
from nova_assets.sql.query.scans import Scan
from nova_assets.sql.query.table_function_calls import table_function_schemas
from nova_assets.sql.statement.dataset_options import DatasetOptions
from nova_assets.sql.statement.dataset_statement import (
    DatasetStatement,
    header_from_tree,
    make_header_tree,
    parse_dataset_statement,
    parse_without_options,
)
from nova_assets.sql.statement.header import StatementHeader
from nova_assets.sql.text import SqlText

_INVALID_RECORD_ERRORS = (KeyError, TypeError, ValueError, NovaError)
"""Errors caused by a malformed cache record."""


@dataclass(frozen=True)
class DatasetAnalysis:
    """The analysis of a dataset.

    Args:
        schema: the output columns, partition columns last.
        dimensions: the partitioning.
        load_query: loads the query, with every column resolved.
    """

    schema: Schema
    dimensions: tuple[Dimension, ...]
    load_query: Callable[[], Query]


class AnalysisCache:
    """Cache of parsed statements and dataset analyses.

    Args:
        session: session of the disk cache.
        function_types: return types of the user-defined functions, by function name.

    Attributes:
        hits: number of analyses found in the cache.
    """

    def __init__(self, session: DiskCacheSession, function_types: Mapping[str, str]) -> None:
        self.session = session
        self.hits = 0
        self.function_types = function_types
        self._function_types_json = json.dumps(dict(function_types), sort_keys=True)
        self._interface_hashes: dict[str, str] = {}

    def get_statement(self, text: SqlText) -> DatasetStatement | None:
        """The cached parse result of a text. None if the text is not cached."""
        key = statement_hash(text)
        record = self._get_record(key)
        try:
            return None if record is None else _statement_from_record(self.session.disk_cache, text, key, **record)
        except _INVALID_RECORD_ERRORS:
            return None

    def put_statement(self, statement: DatasetStatement) -> None:
        """Cache a parsed statement."""
        record = {
            "name": statement.name,
            "kind": statement.kind,
            "scans": [asdict(s) for s in statement.scans],
            "has_calls": statement.has_calls,
            "called_functions": sorted(statement.called_functions),
            "header_hash": statement.header_hash,
            "query_start": statement.query_start,
            "description": statement.description,
            "owner": statement.owner,
            "options": asdict(statement.options),
        }
        self._put_record(statement_hash(statement.text), record, lambda: make_header_tree(statement))

    def get_analysis(
        self, statement: DatasetStatement, schemas: Mapping[str, Schema], partition_columns: Mapping[str, Sequence[str]]
    ) -> DatasetAnalysis | None:
        """The cached analysis of a dataset. None if it is not cached."""
        key = self._analysis_key(statement, schemas, partition_columns)
        record = None if key is None else self._get_record(key)
        try:
            if key is None or record is None:
                return None
            load_query = partial(
                _load_query,
                self.session.disk_cache,
                self.function_types,
                statement,
                key,
                {r: schemas[r] for r in statement.reads},
            )
            analysis = _analysis_from_record(load_query, **record)
        except _INVALID_RECORD_ERRORS:
            return None
        self.hits += 1
        return analysis

    def put_analysis(
        self,
        statement: DatasetStatement,
        schemas: Mapping[str, Schema],
        partition_columns: Mapping[str, Sequence[str]],
        analysis: DatasetAnalysis,
    ) -> None:
        """Cache the analysis of a dataset."""
        key, query = self._analysis_key(statement, schemas, partition_columns), analysis.load_query()
        if key is not None:
            record = {
                "schema": analysis.schema.as_json(),
                "dimensions": [asdict(d) for d in analysis.dimensions],
                "variables": dict(query.variables),
                "names": query.written_names,
                "variables_without_colon": query.variables_without_colon,
            }
            self._put_record(key, record, lambda: query.tree)

    def _analysis_key(
        self, statement: DatasetStatement, schemas: Mapping[str, Schema], partition_columns: Mapping[str, Sequence[str]]
    ) -> bytes | None:
        """Cache key of an analysis. None if the analysis cannot be cached: an input schema is missing, or the query
        calls table functions, whose arguments are checked on every analysis.
        """
        if statement.has_calls or not all(r in schemas for r in statement.reads):
            return None
        interface_hashes = [
            f"{r} {self._interface_hash(r, schemas[r], partition_columns.get(r, ()))}" for r in statement.reads
        ]
        return hash_with_code_version(
            "dataset", statement_hash(statement.text).hex(), self._function_types_json, *interface_hashes
        )

    def _interface_hash(self, dataset: str, schema: Schema, partition_columns: Sequence[str]) -> str:
        """Hash of the schema and partition columns of a dataset. Constant for the lifetime of this object."""
        if dataset not in self._interface_hashes:
            self._interface_hashes[dataset] = hash_with_code_version(str(schema), *partition_columns).hex()
        return self._interface_hashes[dataset]

    def _get_record(self, key: bytes) -> dict[str, Any] | None:
        record = self.session.get(key)
        return record if isinstance(record, dict) else None

    def _put_record(self, key: bytes, record: Mapping[str, Any], make_tree: Callable[[], exp.Expr]) -> None:
        with suppress(TypeError):  # not serializable as JSON
            self.session.put(key, record, encode_tree(make_tree()))


def _statement_from_record(
    disk_cache: DiskCache,
    text: SqlText,
    key: bytes,
    *,
    scans: Any,
    called_functions: Sequence[str],
    options: Mapping[str, Any],
    **record: Any,
) -> DatasetStatement:
    return DatasetStatement(
        text=text,
        scans=tuple(Scan(**{**s, "span": tuple(s["span"])}) for s in scans),
        called_functions=frozenset(called_functions),
        options=DatasetOptions.from_json(options),
        **record,
        load_tree=partial(parse_without_options, text),
        load_header=partial(_load_header, disk_cache, text, key),
    )


def _load_header(disk_cache: DiskCache, text: SqlText, key: bytes) -> StatementHeader:
    tree = disk_cache.get_tree(key)
    try:
        return parse_dataset_statement(text).header if tree is None else header_from_tree(text, decode_tree(tree))
    except ValueError:
        return parse_dataset_statement(text).header


def _analysis_from_record(
    load_query: Callable[..., Query], *, schema: Any, dimensions: Any, **query_record: Any
) -> DatasetAnalysis:
    return DatasetAnalysis(
        Schema.from_json(schema),
        tuple(Dimension(**{**d, "values": tuple(d["values"])}) for d in dimensions),
        partial(load_query, **query_record),
    )


def _load_query(
    disk_cache: DiskCache,
    function_types: Mapping[str, str],
    statement: DatasetStatement,
    key: bytes,
    schemas: Mapping[str, Schema],
    *,
    variables: Mapping[str, str],
    names: Sequence[str],
    variables_without_colon: Sequence[tuple[Sequence[int], str]],
) -> Query:
    """The cached query. If the cached tree is missing or invalid, the query is resolved again."""
    encoded_tree = disk_cache.get_tree(key)
    try:
        tree = None if encoded_tree is None else decode_tree(encoded_tree)
    except ValueError:
        tree = None
    if not isinstance(tree, exp.Query):
        return resolve_query(
            statement.text,
            statement.query,
            schemas,
            statement.header.variable_types,
            table_function_schemas(function_types),
        )
    names_by_span = tuple(((begin, end), name) for (begin, end), name in variables_without_colon)
    return Query(statement.text, tree, statement.scans, variables, tuple(names), names_by_span, schemas=schemas)


def statement_hash(text: SqlText) -> bytes:
    """Hash of a statement. The file name is part of the hash, because it names the dataset if the statement does
    not.
    """
    return hash_with_code_version("text", Path(text.name).stem, text.sql)


def hash_with_code_version(*parts: str) -> bytes:
    """Hash of some texts, combined with the version of the code that analyses statements."""
    digest = sha256(_analysis_code_hash())
    for data in (part.encode("utf-8", "surrogatepass") for part in parts):
        digest.update(b"%d:" % len(data) + data)
    return digest.digest()


@cache
def _analysis_code_hash() -> bytes:
    """Hash of the code that analyses statements. Another version of the code may derive another result."""
    try:
        digest = sha256(version("sqlglot").encode())
    except PackageNotFoundError:  # sqlglot is importable but not installed as a package
        digest = sha256()
    for room in ("nova_assets.sql", "nova_assets.model"):
        for file in _python_files_below(files(room)):
            digest.update(file.read_bytes())
    return digest.digest()


def _python_files_below(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _python_files_below(entry)
        elif entry.name.endswith(".py"):
            yield entry
