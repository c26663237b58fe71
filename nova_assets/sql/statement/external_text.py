"""Text of ``CREATE EXTERNAL TABLE``: written for a new source, and edited where the columns of a source have changed.

An edit changes only the columns concerned. The header, the comments outside the columns, and all other clauses stay as
their author wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

from nova_assets.errors import NotSupported
from nova_assets.model.schema import Field, quote_identifier
from nova_assets.plan.source_columns import ColumnChange
from nova_assets.sql.text import SqlText


@dataclass(frozen=True, slots=True)
class ExternalStatement:
    """Parts of a new statement.

    Args:
        columns: all columns, with the partition columns.
        using: ``parquet``, ``orc`` or ``jdbc``.
        options: options of a database, in their order; empty for files.
        location: folder or address of the files; None for a database.
        done: name of the file that marks a complete partition.
    """

    name: str
    columns: Sequence[Field]
    partition_columns: Sequence[str]
    using: str
    options: Mapping[str, str]
    location: str | None = None
    done: str | None = None


def render_external_statement(statement: ExternalStatement) -> str:
    """The statement as text."""
    columns = ",\n".join(f"  {quote_identifier(f.name)} {str(f.type).upper()}" for f in statement.columns)
    lines = [f"CREATE EXTERNAL TABLE {quote_identifier(statement.name)} (", columns, ")", f"USING {statement.using}"]
    if statement.options:
        options = ",\n".join(f"  {name} {_literal(value)}" for name, value in statement.options.items())
        lines += ["OPTIONS (", options, ")"]
    if statement.partition_columns:
        lines.append(f"PARTITIONED BY ({', '.join(map(quote_identifier, statement.partition_columns))})")
    if statement.location is not None:
        lines.append(f"LOCATION {_literal(statement.location)}")
    if statement.done is not None:
        lines.append(f"TBLPROPERTIES ('done' = {_literal(statement.done)})")
    return "\n".join(lines) + "\n"


def edit_columns(text: SqlText, changes: Sequence[ColumnChange]) -> str:
    """The text of a statement whose columns follow changes of its source.

    Raises:
        NotSupported: the column list cannot be told from the rest of the text, or would be empty.
    """
    begin, end = _column_list_span(text)
    columns = [_WrittenColumn.parse(text.sql[a:b]) for a, b in _split_at_commas(text, begin, end)]
    for change in changes:
        at = next((n for n, c in enumerate(columns) if c.name.lower() == change.column.lower()), None)
        if change.kind == "added":
            columns.append(_added_column(change, columns[-1] if columns else None))
        elif at is None:
            raise _no_columns_error(text, f"column {change.column!r} is declared outside the column list")
        elif change.kind == "dropped":
            columns.pop(at)
        else:
            columns[at] = columns[at].with_type(str(change.actual).upper())
    if not columns:
        raise _no_columns_error(text, "no column is left")
    tail = text.sql[begin:end][len(text.sql[begin:end].rstrip()) :]
    return text.sql[:begin] + ",".join(c.text.rstrip() for c in columns) + tail + text.sql[end:]


@dataclass(frozen=True, slots=True)
class _WrittenColumn:
    """One column as written, with the spaces before it.

    Args:
        type_span: character range of the type within the text.
    """

    text: str
    name: str
    type_span: tuple[int, int]

    @staticmethod
    def parse(text: str) -> _WrittenColumn:
        tokens = _tokens(text)
        after_type = next(
            (n for n, t in enumerate(tokens) if n > 0 and t.text.upper() in ("COMMENT", "NOT", "NULL")), len(tokens)
        )
        return _WrittenColumn(text, tokens[0].text, (tokens[1].start, tokens[after_type - 1].end + 1))

    def with_type(self, type_: str) -> _WrittenColumn:
        begin, end = self.type_span
        return _WrittenColumn(self.text[:begin] + type_ + self.text[end:], self.name, (begin, begin + len(type_)))


def _added_column(change: ColumnChange, previous: _WrittenColumn | None) -> _WrittenColumn:
    """A new column, with the spaces of the column before it."""
    spaces = " " if previous is None else previous.text[: len(previous.text) - len(previous.text.lstrip())] or " "
    return _WrittenColumn.parse(f"{spaces}{quote_identifier(change.column)} {str(change.actual).upper()}")


def _column_list_span(text: SqlText) -> tuple[int, int]:
    """Character range between the parentheses of the columns."""
    tokens = _tokens(text.sql)
    words = [t.text.upper() for t in tokens]
    for n in range(len(tokens) - 4):
        if words[n : n + 3] == ["CREATE", "EXTERNAL", "TABLE"] and tokens[n + 4].token_type == TokenType.L_PAREN:
            closing = _closing_parenthesis(tokens, n + 4)
            if closing is not None:
                return tokens[n + 4].end + 1, closing.start
    raise _no_columns_error(text, "no list of columns after CREATE EXTERNAL TABLE and a name")


def _closing_parenthesis(tokens: Sequence[Token], opening: int) -> Token | None:
    depth = 0
    for token in tokens[opening:]:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0:
            return token
    return None


def _split_at_commas(text: SqlText, begin: int, end: int) -> list[tuple[int, int]]:
    """Character ranges of the columns. Commas within types do not separate columns."""
    spans, start, depth = [], begin, 0
    for token in _tokens(text.sql):
        if not begin <= token.start < end:
            continue
        depth += (token.token_type in (TokenType.L_PAREN, TokenType.LT)) - (
            token.token_type in (TokenType.R_PAREN, TokenType.GT)
        )
        if token.token_type == TokenType.COMMA and depth == 0:
            spans.append((start, token.start))
            start = token.end + 1
    return [*spans, (start, end)]


def _tokens(sql: str) -> list[Token]:
    return list(Spark().tokenize(sql))


def _literal(text: str) -> str:
    """A string constant of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _no_columns_error(text: SqlText, reason: str) -> NotSupported:
    return NotSupported(
        f"the columns in {text.name} cannot be updated",
        found=reason,
        expected="CREATE EXTERNAL TABLE name (column TYPE, ...)",
        next=f"edit {text.name} by hand",
    )
