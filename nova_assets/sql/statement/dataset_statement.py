"""Parsing of dataset statements: everything that one statement declares by itself, without schemas of other
datasets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from nova_assets.errors import DefinitionError
from nova_assets.model.names import check_name
from nova_assets.sql.parse.dialect import DIALECT, For, parse_statement
from nova_assets.sql.query.resolved_query import mark_calls
from nova_assets.sql.query.scans import Scan, mark_scans
from nova_assets.sql.statement.dataset_options import QUERY_START_TOKENS, DatasetOptions, parse_options
from nova_assets.sql.statement.header import StatementHeader, parse_header
from nova_assets.sql.text import SqlText, depth_change


@dataclass(frozen=True)
class DatasetStatement:
    """A parsed dataset statement.

    Args:
        name: the dataset's name: the target of INSERT, or the name of the file.
        text: the statement as written.
        kind: ``base`` if each run replaces what the scope wrote before (INSERT OVERWRITE), ``delta`` if it adds rows.
        scans: the places where the query reads datasets.
        has_calls: whether the query calls table functions.
        called_functions: lower-case names of the called functions that are not built into SQL.
        header_hash: hash of the header. Equal headers have equal hashes.
        query_start: character offset at which the query begins.
        description: the comment before the statement.
        owner: the contact, from a line ``owner: ...`` of that comment.
        options: how the dataset is brought up to date, as far as the statement says so.
        load_tree: loads the syntax tree of the statement.
        load_header: loads the header.
    """

    name: str
    text: SqlText
    kind: Literal["base", "delta"]
    scans: tuple[Scan, ...]
    has_calls: bool
    called_functions: frozenset[str]
    header_hash: str
    query_start: int = 0
    description: str = ""
    owner: str = ""
    options: DatasetOptions = field(default_factory=DatasetOptions)
    load_tree: Callable[[], exp.Expr] = field(kw_only=True, compare=False, repr=False)
    load_header: Callable[[], StatementHeader] = field(kw_only=True, compare=False, repr=False)

    @cached_property
    def header(self) -> StatementHeader:
        """The scopes, and the partitions that they write."""
        return self.load_header()

    @cached_property
    def query(self) -> exp.Query:
        """The SELECT query of the statement."""
        return _split_statement(self.text, self.load_tree()).query

    @property
    def meaning(self) -> str:
        """Hash of all that the rows depend on. Layout, comments, checks and the case of names and keywords do not
        matter.
        """
        frozen = self.text.sql[slice(*self.options.frozen_span)] if self.options.frozen_span is not None else ""
        texts = (self.options.blank_out(self.text).sql, frozen)
        return hashlib.sha256(repr([_words(text) for text in texts]).encode()).hexdigest()[:16]

    @property
    def reads(self) -> tuple[str, ...]:
        """The datasets and channels that the query reads, in order of first mention."""
        return tuple(dict.fromkeys(s.dataset for s in self.scans))


def parse_without_options(text: SqlText) -> exp.Expr:
    """Syntax tree of a dataset statement without its options. Raises SqlError."""
    return parse_statement(parse_options(text).blank_out(text))


def parse_dataset_statement(text: SqlText, statement: exp.Expr | None = None) -> DatasetStatement:
    """Parse a dataset statement.

    Args:
        statement: the syntax tree of the text without its options, if it is parsed already.

    Raises:
        SqlError: the text holds no query, or the header or an option is invalid.
    """
    statement = parse_without_options(text) if statement is None else statement
    options = parse_options(text)
    parts = _split_statement(text, statement)
    head = parse_header(text, parts.for_node, parts.partition)
    description, owner = comment_and_owner(statement)
    marked_query = parts.query.copy()
    return DatasetStatement(
        _check_dataset_name(text, parts.name, statement),
        text,
        parts.kind,
        mark_scans(text, marked_query),
        bool(mark_calls(text, marked_query)),
        frozenset(n.name.lower() for n in marked_query.find_all(exp.Anonymous)),
        head.syntax_hash,
        _query_start(text, options) if parts.has_insert or options.span else 0,
        description,
        owner,
        options,
        load_tree=lambda: statement,
        load_header=lambda: head,
    )


def _words(sql: str) -> list[str]:
    """The words and signs of a text as written, without comments. Names and keywords are in lower case."""
    words = (sql[token.start : token.end + 1] for token in DIALECT.tokenize(sql))
    return [word.lower() if word.isidentifier() else word for word in words]


def _check_dataset_name(text: SqlText, dataset_name: str, statement: exp.Expr) -> str:
    """The dataset's name, validated. Raises SqlError if the name is invalid."""
    try:
        return check_name(dataset_name, "the dataset")
    except DefinitionError as error:
        where = statement.find(exp.Insert)
        raise text.error(
            f"{error.what}: {dataset_name!r}", None if where is None else where.this, expected=error.expected
        ) from None


def make_header_tree(dataset_statement: DatasetStatement) -> exp.Expr:
    """Syntax tree of the header without the query, as input for ``header_from_tree``."""
    parts = _split_statement(dataset_statement.text, dataset_statement.load_tree())
    for_arguments = parts.for_node.args if parts.for_node is not None else {}
    header_parts = {key: [n.copy() for n in for_arguments.get(key) or ()] for key in ("generators", "lets")}
    return For(this=parts.partition.copy() if parts.partition is not None else exp.Null(), **header_parts)


def header_from_tree(text: SqlText, header_tree: exp.Expr) -> StatementHeader:
    """The header from its syntax tree. Raises ValueError if the tree is no header."""
    if not isinstance(header_tree, For):
        raise ValueError("no head")
    return parse_header(text, header_tree, header_tree.this if isinstance(header_tree.this, exp.Partition) else None)


@dataclass(frozen=True)
class _StatementParts:
    """The parts of a dataset statement."""

    name: str
    kind: Literal["base", "delta"]
    for_node: For | None
    has_insert: bool
    partition: exp.Partition | None
    query: exp.Query


def _split_statement(text: SqlText, statement: exp.Expr) -> _StatementParts:
    for_node = statement if isinstance(statement, For) else None
    insert = for_node.this if for_node is not None else statement
    if for_node is not None and not isinstance(insert, exp.Insert):
        raise text.error(
            "FOR is followed by a query without INSERT",
            insert,
            expected="FOR ... INSERT OVERWRITE name PARTITION (column, ...) SELECT ...",
        )
    query = insert.expression if isinstance(insert, exp.Insert) else insert
    if not isinstance(query, exp.Query):
        raise text.error(
            "is not a query", insert, expected="SELECT ..., or FOR ... INSERT OVERWRITE name ... SELECT ..."
        )
    table = insert.this if isinstance(insert, exp.Insert) else None
    adds = isinstance(insert, exp.Insert) and not insert.args.get("overwrite")
    return _StatementParts(
        _dataset_name(text, table),
        "delta" if adds else "base",
        for_node,
        isinstance(insert, exp.Insert),
        _partition_clause(text, table, for_node),
        _unwrap_query(query),
    )


def _unwrap_query(query: exp.Query) -> exp.Query:
    unwrapped = query.unnest()
    return unwrapped if isinstance(unwrapped, exp.Query) else query


def _dataset_name(text: SqlText, insert_target: exp.Expr | None) -> str:
    if insert_target is None:
        return Path(text.name).stem
    if (
        not isinstance(insert_target, exp.Table)
        or insert_target.args.get("db") is not None
        or not isinstance(insert_target.this, exp.Identifier)
    ):
        raise text.error("INSERT does not name a dataset", insert_target, expected="a name, and PARTITION (...)")
    return insert_target.name


def _partition_clause(text: SqlText, insert_target: exp.Expr | None, for_node: For | None) -> exp.Partition | None:
    clause = None if insert_target is None else insert_target.args.get("partition")
    if for_node is not None and clause is None:
        raise text.error(
            "all scopes write the same partition", insert_target, expected="PARTITION (column, ...) after the name"
        )
    return clause if isinstance(clause, exp.Partition) else None


def _query_start(text: SqlText, options: DatasetOptions) -> int:
    """Character offset of the query, after INSERT, the name, PARTITION (...) and the options."""
    if options.span is not None:
        return options.span[1]
    depth, inserting, partition = 0, False, False
    for token in DIALECT.tokenize(text.sql):
        if not inserting:
            inserting = token.token_type == TokenType.INSERT
        elif depth == 0 and (
            token.token_type in QUERY_START_TOKENS or (token.token_type == TokenType.L_PAREN and not partition)
        ):
            return int(token.start)
        if inserting:
            depth += depth_change(token)
            partition = token.token_type == TokenType.PARTITION
    raise AssertionError("an INSERT without a query is none")


def comment_and_owner(statement: exp.Expr) -> tuple[str, str]:
    """The comment before a statement, and the owner that the comment names."""
    first = next((n for n in statement.walk() if n.comments), None) if not statement.comments else statement
    lines = [line.strip() for c in (first.comments if first is not None else None) or () for line in c.splitlines()]
    owner = next((line.partition(":")[2].strip() for line in lines if line.lower().startswith("owner:")), "")
    return "\n".join(line for line in lines if not line.lower().startswith("owner:")).strip(), owner
