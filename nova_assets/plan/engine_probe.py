"""Probe of a Spark Connect server: what it is asked, and how its answers are judged. Pure.

Other engines speak Spark's protocol, and compute some things in another way: a sum that overflows wraps around, or a
frame that is kept is computed again. An engine that is not known to compute as Spark does must not compute (R22). So a
server is judged by its answers, not by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FailedProbe:
    """A probe that a server has not passed.

    Args:
        probe: what the server was asked, as a noun phrase.
    """

    probe: str
    found: str
    expected: str


_VALUES: Mapping[str, tuple[str, str]] = {
    "AVG of decimals": ("AVG(d)", "1.666667"),
    "SUM of decimals of 38 digits": ("SUM(w)", "9" * 38),
    "DISTINCT of NaN, 0.0 and -0.0": ("COUNT(DISTINCT f)", "2"),
    "-0.0 in an array": ("ARRAY_POSITION(ARRAY(0.0D), -0.0D)", "1"),
    "NaN in an array": ("ARRAY_CONTAINS(ARRAY(DOUBLE('NaN')), DOUBLE('NaN'))", "true"),
    "text of a double": ("1e7D", "1.0E7"),
    "WEEKDAY of a Sunday": ("WEEKDAY(DATE'2023-12-31')", "6"),
}
"""Probe -> expression over ``_ROWS``, and its value as a text."""

_THREES = "3" * 38
_ROWS = (
    f"VALUES (1.00, {_THREES}, 0.0D), (2.00, {_THREES}, -0.0D), (2.00, {_THREES}, DOUBLE('NaN')), "
    "(NULL, NULL, DOUBLE('NaN')) AS t(d, w, f)"
)

VALUES_QUERY = (
    "SELECT "
    + ", ".join(f"CAST({expression} AS STRING) AS v{n}" for n, (expression, _) in enumerate(_VALUES.values()))
    + f" FROM {_ROWS}"
)
"""Query with one row of texts. Its number of rows is observed, too."""

OVERFLOW_QUERIES: Mapping[str, str] = {
    "a SUM that overflows": "SELECT SUM(v) FROM VALUES (9223372036854775807), (1) AS t(v)",
    "int + 1 that overflows": "SELECT v + 1 FROM VALUES (2147483647) AS t(v)",
}
"""Probe -> query that must fail."""

KEPT_FRAME = "a persisted frame that is read twice"
OBSERVED_ROWS = "observed rows of a query"


def failed_values(row: Sequence[object], observed_rows: object) -> FailedProbe | None:
    """First probe of ``VALUES_QUERY`` that failed.

    Args:
        row: the row of the query.
        observed_rows: what the observation has counted.
    """
    for (probe, (_, expected)), found in zip(_VALUES.items(), row, strict=True):
        if found != expected:
            return FailedProbe(probe, repr(found), expected)
    return None if observed_rows == 1 else FailedProbe(OBSERVED_ROWS, repr(observed_rows), "1")


def failed_overflow(probe: str, value: object, error: str | None) -> FailedProbe | None:
    """The probe of a query that must fail, if it has failed for another reason, or not at all.

    Args:
        value: the result of the query.
        error: text of the error; None if the query had a result.
    """
    if error is not None and "overflow" in error.lower():
        return None
    found = f"the value {value!r}" if error is None else error.strip().split("\n")[0][:300]
    return FailedProbe(probe, found, "an error: arithmetic overflow")


def failed_persisted_frame(first: object, second: object) -> FailedProbe | None:
    """The probe of a persisted frame, if its two reads differ."""
    return None if first == second else FailedProbe(KEPT_FRAME, f"{first!r}, then {second!r}", "the same rows twice")
