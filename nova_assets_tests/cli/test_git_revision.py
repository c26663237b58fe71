"""Archives of other revisions: links that lead out of the archive are left out, under every supported Python."""

from __future__ import annotations

import tarfile

import pytest

from nova_assets.cli.git_revision import _links_outside


@pytest.mark.parametrize(
    ("name", "kind", "target", "is_outside"),
    [
        ("sql/a.sql", tarfile.SYMTYPE, "b.sql", False),
        ("sql/a.sql", tarfile.SYMTYPE, "../other/b.sql", False),
        ("sql/a.sql", tarfile.SYMTYPE, "../../b.sql", True),
        ("a", tarfile.SYMTYPE, "..", True),
        ("sql/a.sql", tarfile.SYMTYPE, "/etc/passwd", True),
        ("sql/a.sql", tarfile.LNKTYPE, "sql/b.sql", False),
        ("sql/a.sql", tarfile.LNKTYPE, "../b.sql", True),
        ("sql/a.sql", tarfile.REGTYPE, "", False),
    ],
)
def test_links_that_lead_out_of_the_archive(name: str, kind: bytes, target: str, is_outside: bool) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    assert _links_outside(member) == is_outside
