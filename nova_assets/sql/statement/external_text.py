"""Text of ``CREATE EXTERNAL TABLE``: written for a new source, and edited where the columns of a source have changed.

An edit changes only the columns concerned. The header, the comments outside the columns, and all other clauses stay as
their author wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token, TokenType

from nova_assets.errors import NotSupported
from nova_assets.model.schema import DataType, Field, quote_identifier
from nova_assets.plan.source_columns import ColumnChange
from nova_assets.sql.text import SqlText, closing_index


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
    columns = ",\n".join(f"  {quote_identifier(f.name)} {_type_text(f.type)}" for f in statement.columns)
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
    columns, tail = _parse_columns(text, begin, end)
    for change in changes:
        at = next((n for n, c in enumerate(columns) if c.name.lower() == change.column.lower()), None)
        if change.kind == "added":
            columns.append(_added_column(change, columns[-1] if columns else None))
        elif at is None:
            raise _no_columns_error(text, f"column {change.column!r} is declared outside the column list")
        elif change.kind == "dropped":
            columns.pop(at)
        else:
            columns[at] = columns[at].with_type(_type_text(change.actual))
    if not columns:
        raise _no_columns_error(text, "no column is left")
    written = [c.render(is_last=n == len(columns) - 1) for n, c in enumerate(columns)]
    return text.sql[:begin] + "".join(written) + tail + text.sql[end:]


@dataclass(frozen=True, slots=True)
class _WrittenColumn:
    """One column as written.

    Args:
        before: spaces and comments before the column.
        text: the column itself.
        comment: comment behind the column, on the same line, before or after the comma.
        type_span: character range of the type within ``text``.
    """

    before: str
    text: str
    comment: str
    name: str
    type_span: tuple[int, int]

    def with_type(self, type_: str) -> _WrittenColumn:
        begin, end = self.type_span
        text = self.text[:begin] + type_ + self.text[end:]
        return replace(self, text=text, type_span=(begin, begin + len(type_)))

    def render(self, is_last: bool) -> str:
        return f"{self.before}{self.text}{'' if is_last else ','}{self.comment}"


def _parse_columns(text: SqlText, begin: int, end: int) -> tuple[list[_WrittenColumn], str]:
    """The columns of a list, and the spaces behind the last one."""
    columns: list[_WrittenColumn] = []
    for first, last in _split_at_commas(text, begin, end):
        segment = text.sql[first:last]
        tokens = _tokens(segment)
        before, behind = segment[: tokens[0].start], segment[tokens[-1].end + 1 :]
        line, newline, rest = before.partition("\n")
        if columns and newline and line.strip():  # a comment behind the comma belongs to the column before
            columns[-1] = replace(columns[-1], comment=columns[-1].comment + line.rstrip())
            before = newline + rest
        columns.append(_parse_column(before, segment[tokens[0].start : tokens[-1].end + 1], behind.rstrip()))
    inside = text.sql[begin:end]
    return columns, inside[len(inside.rstrip()) :]


def _parse_column(before: str, text: str, comment: str) -> _WrittenColumn:
    tokens, depth, type_end = _tokens(text), 0, 1
    for token in tokens[1:]:
        if depth == 0 and token.text.upper() in ("COMMENT", "NOT", "NULL"):
            break
        depth += _depth_change(token)
        type_end += 1
    return _WrittenColumn(before, text, comment, tokens[0].text, (tokens[1].start, tokens[type_end - 1].end + 1))


def _added_column(change: ColumnChange, previous: _WrittenColumn | None) -> _WrittenColumn:
    """A new column, with the spaces of the column before it."""
    spaces = " " if previous is None else previous.before[len(previous.before.rstrip()) :]
    return _parse_column(spaces or " ", f"{quote_identifier(change.column)} {_type_text(change.actual)}", "")


def _column_list_span(text: SqlText) -> tuple[int, int]:
    """Character range between the parentheses of the columns."""
    tokens = _tokens(text.sql)
    words = [t.text.upper() for t in tokens]
    for n in range(len(tokens) - 4):
        if words[n : n + 3] == ["CREATE", "EXTERNAL", "TABLE"] and tokens[n + 4].token_type == TokenType.L_PAREN:
            closing = closing_index(tokens, n + 4)
            if closing is not None:
                return tokens[n + 4].end + 1, tokens[closing].start
    raise _no_columns_error(text, "no list of columns after CREATE EXTERNAL TABLE and a name")


def _split_at_commas(text: SqlText, begin: int, end: int) -> list[tuple[int, int]]:
    """Character ranges of the columns. Commas within types do not separate columns."""
    spans, start, depth = [], begin, 0
    for token in _tokens(text.sql):
        if not begin <= token.start < end:
            continue
        depth += _depth_change(token)
        if token.token_type == TokenType.COMMA and depth == 0:
            spans.append((start, token.start))
            start = token.end + 1
    return [*spans, (start, end)]


def _depth_change(token: Token) -> int:
    """1 at the beginning of a nested type, -1 at its end."""
    opens, closes = (TokenType.L_PAREN, TokenType.LT), (TokenType.R_PAREN, TokenType.GT)
    return (token.token_type in opens) - (token.token_type in closes)


def _tokens(sql: str) -> list[Token]:
    return list(Spark().tokenize(sql))


def _type_text(type_: DataType | None) -> str:
    """A type as people write it. The names of nested fields keep their case, since files are read by them."""
    text = str(type_)
    return text if "struct<" in text else text.upper()


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
