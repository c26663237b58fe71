"""A dataset as its author writes it: one statement, and what it says by itself, before anything else is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from nova_assets.errors import DefinitionError
from nova_assets.model.names import check_name
from nova_assets.sql.parse.dialect import DIALECT, For, parsed
from nova_assets.sql.query.query import Scan, calls_in, scans_of
from nova_assets.sql.statement.header import Head, head_of
from nova_assets.sql.text import Text

_BEGINNINGS = (TokenType.SELECT, TokenType.WITH, TokenType.FROM)


@dataclass(frozen=True)
class Written:
    """A statement, read.

    Args:
        name: of the dataset: what it is INSERTed into, or the name of its file.
        text: as written.
        kind: ``base`` where it replaces what a scope wrote before (INSERT OVERWRITE), ``delta`` where it adds to it.
        scans: what it reads.
        calls: whether it calls functions as tables.
        named: the functions that it calls and that SQL does not know, in small letters.
        scopes: what its head is known by: those that are alike have the same.
        begin: where in the text the query begins.
        description: the comment before it.
        owner: who is asked about it: a line ``owner: ...`` of that comment.
        parse: gives the statement.
        think: gives the head.
    """

    name: str
    text: Text
    kind: Literal["base", "delta"]
    scans: tuple[Scan, ...]
    calls: bool
    named: frozenset[str]
    scopes: str
    begin: int = 0
    description: str = ""
    owner: str = ""
    parse: Callable[[], exp.Expr] = field(kw_only=True, compare=False, repr=False)
    think: Callable[[], Head] = field(kw_only=True, compare=False, repr=False)

    @cached_property
    def head(self) -> Head:
        """Its scopes, and the partitions that they write."""
        return self.think()

    @cached_property
    def query(self) -> exp.Query:
        """What is selected."""
        return _parts(self.text, self.parse()).query

    @property
    def reads(self) -> tuple[str, ...]:
        """The datasets that it reads, in order of first mention."""
        return tuple(dict.fromkeys(s.dataset for s in self.scans))


def written(text: Text, statement: exp.Expr | None = None) -> Written:
    """What a text says.

    Args:
        statement: of the text, where it was parsed already.

    Raises:
        SqlError: it is no query; or its head says what cannot be.
    """
    statement = parsed(text) if statement is None else statement
    parts = _parts(text, statement)
    head = head_of(text, parts.loop, parts.partition)
    description, owner = said(statement)
    scanned = parts.query.copy()
    return Written(
        _checked(text, parts.name, statement),
        text,
        parts.kind,
        scans_of(text, scanned),
        bool(calls_in(text, scanned)),
        frozenset(n.name.lower() for n in scanned.find_all(exp.Anonymous)),
        head.said,
        _begin(text) if parts.inserts else 0,
        description,
        owner,
        parse=lambda: statement,
        think=lambda: head,
    )


def _checked(text: Text, name: str, statement: exp.Expr) -> str:
    """The name of a dataset. Raises SqlError where it is none."""
    try:
        return check_name(name, "the dataset")
    except DefinitionError as error:
        where = statement.find(exp.Insert)
        raise text.error(
            f"{error.what}: {name!r}", None if where is None else where.this, expected=error.expected
        ) from None


def scopes_of(one: Written) -> exp.Expr:
    """All that a head says, without its query, for ``head_from``."""
    parts = _parts(one.text, one.parse())
    loop = parts.loop.args if parts.loop is not None else {}
    heads = {key: [n.copy() for n in loop.get(key) or ()] for key in ("generators", "lets")}
    return For(this=parts.partition.copy() if parts.partition is not None else exp.Null(), **heads)


def head_from(text: Text, scopes: exp.Expr) -> Head:
    """A head, from what it says. Raises ValueError where that is none."""
    if not isinstance(scopes, For):
        raise ValueError("no head")
    return head_of(text, scopes, scopes.this if isinstance(scopes.this, exp.Partition) else None)


@dataclass(frozen=True)
class _Parts:
    """Of a statement."""

    name: str
    kind: Literal["base", "delta"]
    loop: For | None
    inserts: bool
    partition: exp.Partition | None
    query: exp.Query


def _parts(text: Text, statement: exp.Expr) -> _Parts:
    loop = statement if isinstance(statement, For) else None
    insert = loop.this if loop is not None else statement
    if loop is not None and not isinstance(insert, exp.Insert):
        raise text.error(
            "scopes stand before a query that writes nothing",
            insert,
            expected="FOR ... INSERT OVERWRITE name PARTITION (column, ...) SELECT ...",
        )
    query = insert.expression if isinstance(insert, exp.Insert) else insert
    if not isinstance(query, exp.Query):
        raise text.error("is no query", insert, expected="SELECT ..., or FOR ... INSERT OVERWRITE name ... SELECT ...")
    table = insert.this if isinstance(insert, exp.Insert) else None
    adds = isinstance(insert, exp.Insert) and not insert.args.get("overwrite")
    return _Parts(
        _name(text, table),
        "delta" if adds else "base",
        loop,
        isinstance(insert, exp.Insert),
        _partition(text, table, loop),
        _unwrapped(query),
    )


def _unwrapped(query: exp.Query) -> exp.Query:
    found = query.unnest()
    return found if isinstance(found, exp.Query) else query


def _name(text: Text, table: exp.Expr | None) -> str:
    if table is None:
        return Path(text.name).stem
    if (
        not isinstance(table, exp.Table)
        or table.args.get("db") is not None
        or not isinstance(table.this, exp.Identifier)
    ):
        raise text.error("it is inserted into what is no dataset", table, expected="a name, and PARTITION (...)")
    return table.name


def _partition(text: Text, table: exp.Expr | None, loop: For | None) -> exp.Partition | None:
    found = None if table is None else table.args.get("partition")
    if loop is not None and found is None:
        raise text.error(
            "scopes write one and the same partition", table, expected="PARTITION (column, ...) after the name"
        )
    return found if isinstance(found, exp.Partition) else None


def _begin(text: Text) -> int:
    """Where the query begins: behind INSERT, the name and PARTITION (...)."""
    depth, inserting, partition = 0, False, False
    for token in DIALECT.tokenize(text.sql):
        if not inserting:
            inserting = token.token_type == TokenType.INSERT
        elif depth == 0 and (
            token.token_type in _BEGINNINGS or (token.token_type == TokenType.L_PAREN and not partition)
        ):
            return int(token.start)
        if inserting:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            partition = token.token_type == TokenType.PARTITION
    raise AssertionError("an INSERT without a query is none")


def said(statement: exp.Expr) -> tuple[str, str]:
    """The comment before a statement, and the owner that it names."""
    first = next((n for n in statement.walk() if n.comments), None) if not statement.comments else statement
    lines = [line.strip() for c in (first.comments if first is not None else None) or () for line in c.splitlines()]
    owner = next((line.partition(":")[2].strip() for line in lines if line.lower().startswith("owner:")), "")
    return "\n".join(line for line in lines if not line.lower().startswith("owner:")).strip(), owner
