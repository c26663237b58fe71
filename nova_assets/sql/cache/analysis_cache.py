"""What was found out of statements before: by their text, and by what is known of all that they read.

Each is looked up by a hash that has in it the hashes of everything that it hangs on, as in a Merkle tree: the text, the
functions, and of each dataset that it reads its columns and partition columns. That one is another only where these
are: a query that is changed so that it gives the same columns leaves those that read it as they were.
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
from nova_assets.sql.cache.disk_cache import DiskCache, DiskCacheSession
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.parse.tree_encoding import decode_tree, encode_tree
from nova_assets.sql.query.query import Query, resolve_query
from nova_assets.sql.query.scans import Scan
from nova_assets.sql.query.table_function_calls import table_function_schemas
from nova_assets.sql.statement.header import StatementHeader
from nova_assets.sql.statement.statement import (
    DatasetStatement,
    header_from_tree,
    make_header_tree,
    parse_dataset_statement,
)
from nova_assets.sql.text import SqlText

_INVALID_RECORD_ERRORS = (KeyError, TypeError, ValueError, NovaError)
"""What comes of a record that is not as it was kept."""


@dataclass(frozen=True)
class DatasetAnalysis:
    """What a dataset comes to.

    Args:
        schema: of what it gives, its partition columns last.
        dimensions: how it is partitioned.
        load_query: gives its query, with every column told.
    """

    schema: Schema
    dimensions: tuple[Dimension, ...]
    load_query: Callable[[], Query]


class AnalysisCache:
    """Looks up what is known of some datasets, and keeps what is found out of others.

    Args:
        session: where it is kept.
        function_types: of users, with what they give.

    Attributes:
        hits: so many were known.
    """

    def __init__(self, session: DiskCacheSession, function_types: Mapping[str, str]) -> None:
        self.session = session
        self.hits = 0
        self.function_types = function_types
        self._function_types_json = json.dumps(dict(function_types), sort_keys=True)
        self._interface_hashes: dict[str, str] = {}

    def get_statement(self, text: SqlText) -> DatasetStatement | None:
        """What a statement says; None where it is not known."""
        key = statement_hash(text)
        record = self._get_record(key)
        try:
            return None if record is None else _statement_from_record(self.session.disk_cache, text, key, **record)
        except _INVALID_RECORD_ERRORS:
            return None

    def put_statement(self, statement: DatasetStatement) -> None:
        """Keep what a statement says."""
        record = {
            "name": statement.name,
            "kind": statement.kind,
            "scans": [asdict(s) for s in statement.scans],
            "calls": statement.calls,
            "named": sorted(statement.named),
            "scopes": statement.scopes,
            "begin": statement.begin,
            "description": statement.description,
            "owner": statement.owner,
        }
        self._put_record(statement_hash(statement.text), record, lambda: make_header_tree(statement))

    def get_analysis(
        self, statement: DatasetStatement, schemas: Mapping[str, Schema], partition_columns: Mapping[str, Sequence[str]]
    ) -> DatasetAnalysis | None:
        """What a dataset comes to; None where it is not known."""
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
        """Keep what a dataset comes to."""
        key, query = self._analysis_key(statement, schemas, partition_columns), analysis.load_query()
        if key is not None:
            record = {
                "schema": analysis.schema.as_json(),
                "dimensions": [asdict(d) for d in analysis.dimensions],
                "variables": dict(query.variables),
                "names": query.written_names,
                "bare": query.bare_variables,
            }
            self._put_record(key, record, lambda: query.tree)

    def _analysis_key(
        self, statement: DatasetStatement, schemas: Mapping[str, Schema], partition_columns: Mapping[str, Sequence[str]]
    ) -> bytes | None:
        """None where it cannot be kept: functions that stand as tables are asked what they are called with."""
        if statement.calls or not all(r in schemas for r in statement.reads):
            return None
        interface_hashes = [
            f"{r} {self._interface_hash(r, schemas[r], partition_columns.get(r, ()))}" for r in statement.reads
        ]
        return hash_with_code_version(
            "dataset", statement_hash(statement.text).hex(), self._function_types_json, *interface_hashes
        )

    def _interface_hash(self, dataset: str, schema: Schema, partition_columns: Sequence[str]) -> str:
        """What others see of a dataset, which is one and the same as long as this is used."""
        if dataset not in self._interface_hashes:
            self._interface_hashes[dataset] = hash_with_code_version(str(schema), *partition_columns).hex()
        return self._interface_hashes[dataset]

    def _get_record(self, key: bytes) -> dict[str, Any] | None:
        record = self.session.get(key)
        return record if isinstance(record, dict) else None

    def _put_record(self, key: bytes, record: Mapping[str, Any], make_tree: Callable[[], exp.Expr]) -> None:
        with suppress(TypeError):  # there is something in it that JSON has not
            self.session.put(key, record, encode_tree(make_tree()))


def _statement_from_record(
    disk_cache: DiskCache, text: SqlText, key: bytes, *, scans: Any, named: Sequence[str], **record: Any
) -> DatasetStatement:
    return DatasetStatement(
        text=text,
        scans=tuple(Scan(**{**s, "place": tuple(s["place"])}) for s in scans),
        named=frozenset(named),
        **record,
        load_tree=partial(parse_statement, text),
        load_header=partial(_load_header, disk_cache, text, key),
    )


def _load_header(disk_cache: DiskCache, text: SqlText, key: bytes) -> StatementHeader:
    tree = disk_cache.tree(key)
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
    bare: Sequence[tuple[Sequence[int], str]],
) -> Query:
    """The query that is kept; understood anew, where it is gone."""
    encoded_tree = disk_cache.tree(key)
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
    places = tuple(((begin, end), name) for (begin, end), name in bare)
    return Query(statement.text, tree, statement.scans, variables, tuple(names), places, schemas=schemas)


def statement_hash(text: SqlText) -> bytes:
    """The hash of a statement. The name of the file is that of the dataset, where it says no other."""
    return hash_with_code_version("text", Path(text.name).stem, text.sql)


def hash_with_code_version(*parts: str) -> bytes:
    """The hash of some texts, and of the code that reads statements."""
    digest = sha256(_readers())
    for data in (part.encode("utf-8", "surrogatepass") for part in parts):
        digest.update(b"%d:" % len(data) + data)
    return digest.digest()


@cache
def _readers() -> bytes:
    """What reads statements: another version of it may find out something else."""
    try:
        made = sha256(version("sqlglot").encode())
    except PackageNotFoundError:  # put there without being installed
        made = sha256()
    for room in ("nova_assets.sql", "nova_assets.model"):
        for file in _python_files_below(files(room)):
            made.update(file.read_bytes())
    return made.digest()


def _python_files_below(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _python_files_below(entry)
        elif entry.name.endswith(".py"):
            yield entry
