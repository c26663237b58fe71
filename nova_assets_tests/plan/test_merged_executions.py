"""Whether rows that several executions need are computed once."""

from __future__ import annotations

import pytest

from nova_assets.plan.merged_executions import RowsKey, SharedRows


@pytest.mark.parametrize(
    ("executions", "runs_python", "read_seconds", "is_shared"),
    [
        (2, False, 0.17, False),
        (20, False, 0.17, False),  # reading kept rows costs as much as reading the file
        (20, False, 1.7, True),  # rows that are merged from many blocks
        (2, True, 0.17, True),
        (20, True, 0.17, True),
    ],
)
def test_rows_are_kept_where_computing_them_costs_more(
    executions: int, runs_python: bool, read_seconds: float, is_shared: bool
) -> None:
    names = tuple(f"w{n}" for n in range(executions))
    rows = SharedRows(RowsKey(), "raw", names, 1_000_000, 17_700_000, read_seconds, runs_python)
    assert rows.is_shared is is_shared
    assert str(rows).startswith(f"raw, for {', '.join(names)}: computed {'once' if is_shared else 'by each'}")
