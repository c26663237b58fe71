"""Real logs arrive in any order, some twice, and some while nobody watches: each row is counted once."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from examples.actions.__main__ import main
from examples.actions.expected_counts import describe_count_differences

pytestmark = pytest.mark.slow

LOGS = {
    "events_cloudtrail_2023-07-10": "2900 rows, 262 actions, 262 partitions",
    "events_apache_access_2015-05": "9999 rows, 50 actions, 137 partitions",
    "events_gharchive_2015-01-01-00": "actions, ",
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("folder", LOGS)
def test_counts_equal_the_truth(folder: str, seed: int, shared_data: Path) -> None:
    said = CliRunner().invoke(main, [str(shared_data / folder), "--check", "--seed", str(seed)])
    assert said.exit_code == 0, said.output
    assert LOGS[folder] in said.output
    assert "counts by date, hour and action equal the truth" in said.output


@pytest.mark.core
def test_that_check_can_fail() -> None:
    from collections import Counter

    assert describe_count_differences(Counter({("d", 1, "a"): 2}), Counter({("d", 1, "a"): 1})) == [
        "('d', 1, 'a'): 2 instead of 1"
    ]
