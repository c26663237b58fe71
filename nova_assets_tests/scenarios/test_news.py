"""The news example, as a newcomer runs it: on its own feed, and on real crawls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def news(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m nova_assets.examples.news`` in a folder of its own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("NOVA_")}
    command = [sys.executable, "-m", "nova_assets.examples.news", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=800)


@pytest.mark.long
def test_the_demo_says_what_each_execution_did_and_how_to_look_at_it(tmp_path: Path) -> None:
    done = news(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout
    assert "crawl_0" in said and "crawl_5" in said
    assert "→ unique_articles Δ(5→6)" in said, said
    assert "make ui" in said and "dagster dev" in said
    assert (tmp_path / ".nova" / "news" / "catalog.db").is_file()
    again = news(tmp_path)
    assert again.returncode == 0, again.stderr[-3000:]


@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_real_crawls_one_by_one_at_once_and_in_random_batches_give_the_same_articles(
    shared_data: Path, tmp_path: Path
) -> None:
    done = news(tmp_path, str(shared_data / "news_orc"), "--check")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "one_by_one 184, all_at_once 184, random_1 184, random_2 184, random_3 184" in done.stdout
    assert "Invariants: all hold." in done.stdout
