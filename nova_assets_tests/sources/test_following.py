"""``store.follow``: files are ingested soon after they have arrived."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nova_assets.sources.folder import FolderInbox
from nova_assets_tests.sources.landing import Landing, row

pytestmark = pytest.mark.slow


def test_a_file_that_changed_just_before_the_folder_was_watched_is_announced_when_it_has_settled(
    tmp_path: Path,
) -> None:
    landing = Landing(tmp_path)
    landing.put("a.json", row(1), old=0)
    source = landing.channel.source
    assert source is not None
    inbox = FolderInbox(source, landing.folder, watch=True)
    with closing(landing.store), closing(inbox):
        assert list(inbox.list_arrivals(datetime.now(UTC), None)) == [], "it is less than a second old"
        until = time.monotonic() + 20
        while not inbox.poll(10) and time.monotonic() < until:
            time.sleep(0.1)
        assert [a.path for n in inbox.poll(10) for a in n.arrivals] == ["a.json"]


def test_files_from_before_and_after_the_start_are_taken(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("old.json", row(1))
    landing.put("new.json", row(2), old=0)
    with closing(landing.store), closing(landing.store.follow("actions", every=0.1, look_every=5.0)) as following:
        files = next(following).files
        landing.put("later.json", row(3), old=0)
        while files < 3:
            files += next(following).files
        assert landing.ids() == [1, 2, 3]
