"""Errors of the SQL parser as errors of this package, with their places in the text."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot.errors import ParseError, SqlglotError

from nova_assets.errors import SqlError
from nova_assets.sql.text import SqlText
from nova_assets.suggestions import did_you_mean, similar_names

_PARSER_CRASH_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)
"""Errors that the parser raises for some texts in addition to its own."""


@contextmanager
def convert_parser_errors(text: SqlText) -> Iterator[None]:
    """Context manager in which the parser works on a text. Every error is raised as SqlError with a place in the text,
    and the parser's log is silenced.

    Raises:
        SqlError: the parser fails.
    """
    logger = logging.getLogger("sqlglot")
    logger.addFilter(_drop_log_record)
    try:
        yield
    except ParseError as error:
        raise _sql_error_from_parse_error(text, error) from None
    except SqlglotError as error:
        what = re.sub(r"Unknown output column: (\d+)", r"there is no output column \1", _first_line(error))
        raise text.error(f"syntax error: {what}", None, expected="Spark's SQL") from None
    except RecursionError:
        raise text.error("is nested too deeply to be parsed", None, next="move parts of the query into WITH") from None
    except _PARSER_CRASH_ERRORS as error:
        what = f"cannot be parsed: the SQL parser failed ({type(error).__name__}: {_first_line(error)[:100]})"
        raise text.error(what, None, next="write the query in another way") from error
    finally:
        logger.removeFilter(_drop_log_record)


def _drop_log_record(record: logging.LogRecord) -> bool:
    return False


def _sql_error_from_parse_error(text: SqlText, error: ParseError) -> SqlError:
    details = error.errors[0] if error.errors else {}
    span = None
    if details.get("line") is not None and details.get("highlight") is not None:
        end = _character_offset(text.sql, details["line"], details["col"])
        span = (max(0, end - len(details["highlight"])), max(1, end))
    message = str(details.get("description") or _first_line(error)).split(" but got <")[0].rstrip(".")
    rejected = details.get("highlight") or "the end"
    if call := _MISSING_ARGUMENT.match(message):
        message = f"{_SIGNS.get(call[1], call[1].upper())} lacks an argument"
    elif message.startswith("Expected TYPE"):
        message = f"{rejected} is no type{did_you_mean(rejected.lower(), _TYPE_NAMES)}"
    elif message.startswith("Invalid expression"):
        before = text.sql[: span[0]] if span is not None else ""
        message = f"{rejected} does not belong here{_suggest_word_before(before) or _suggest_first_word(text)}"
    return text.error(f"syntax error: {message}", span, expected="Spark's SQL")


_SIGNS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}

_TYPE_NAMES = (
    *("boolean", "tinyint", "smallint", "int", "integer", "bigint", "float", "double", "decimal", "string"),
    *("binary", "date", "timestamp", "timestamp_ntz", "array", "map", "struct"),
)

_CLAUSE_WORDS = ("FROM", "WHERE", "GROUP", "ORDER", "HAVING", "JOIN", "LIMIT", "UNION", "QUALIFY")


def _suggest_word_before(before: str) -> str:
    """Suggestion for the word before a rejected one, if it is no clause or lacks BY; otherwise an empty text."""
    words = re.findall(r"\w+", before)
    word = words[-1].upper() if words else ""
    if word in ("GROUP", "ORDER", "PARTITION"):
        return f"; BY is missing after {word}"
    near = [] if word in _CLAUSE_WORDS else similar_names(word, _CLAUSE_WORDS, 1)
    return f"; did you mean {near[0]} instead of {words[-1]}?" if near else ""


_MISSING_ARGUMENT = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]*\.(\w+)'>")

_FIRST_WORDS = ("SELECT", "WITH", "FOR", "INSERT", "CREATE", "FROM", "VALUES", "TABLE")


def _suggest_first_word(text: SqlText) -> str:
    """Suggestion for a misspelt first word of a statement, or an empty text."""
    first = re.search(r"[A-Za-z_]+", re.sub(r"--[^\n]*|/\*.*?\*/", " ", text.sql, flags=re.DOTALL))
    if first is None or first[0].upper() in (*_FIRST_WORDS, "LET"):
        return ""
    return f"; {first[0]} begins no statement{did_you_mean(first[0], _FIRST_WORDS)}"


def _character_offset(sql: str, line: int, column: int) -> int:
    """Character offset of a column in a line of the text."""
    lines = sql.split("\n")
    return sum(len(one) + 1 for one in lines[: line - 1]) + column


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
