"""Which file systems are recognised as a network's, from what the system says of its mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nova_assets.catalog.database.file_system import network_file_system

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid shared:5 - proc proc rw
30 22 0:40 / /srv/share rw,relatime shared:7 master:3 - nfs4 server:/export rw,vers=4.2
31 30 254:1 / /srv/share/local rw,relatime - xfs /dev/vdb rw
32 22 0:41 / /home/ann/my\\040files rw - fuse.sshfs ann@host: rw,user_id=0
33 22 0:42 / /vm rw - virtiofs shared rw
34 22 0:43 / /media/disk rw - fuseblk /dev/sdb1 rw
35 22 0:44 / /twice rw - ext4 /dev/vdc rw
36 22 0:45 / /twice rw - cifs //server/twice rw
37 22 0:46 / /lustre rw - lustre mgs@tcp:/fs rw
38 22 0:47 / /fuse rw - fuse.bindfs /data rw
malformed line
"""


@pytest.mark.parametrize(
    ("path", "file_system"),
    [
        ("/", None),
        ("/data/catalog.db", None),
        ("/srv/share", "nfs4"),
        ("/srv/share/nova/catalog.db", "nfs4"),
        ("/srv/shared/catalog.db", None),
        ("/srv/share/local/catalog.db", None),
        ("/srv/share/local/../catalog.db", "nfs4"),
        ("/home/ann/my files/catalog.db", "fuse.sshfs"),
        ("/home/ann/my/catalog.db", None),
        ("/vm/catalog.db", None),
        ("/media/disk/catalog.db", None),
        ("/twice/catalog.db", "cifs"),
        ("/lustre/catalog.db", "lustre"),
        ("/fuse/catalog.db", None),
    ],
)
def test_the_longest_mount_point_decides(path: str, file_system: str | None) -> None:
    assert network_file_system(Path(path), MOUNTS) == file_system


def test_a_link_into_a_network_is_followed(tmp_path: Path) -> None:
    (tmp_path / "remote").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "remote")
    mounts = MOUNTS + f"40 22 0:50 / {os.path.realpath(tmp_path)}/remote rw - ceph mon:/ rw\n"
    assert network_file_system(tmp_path / "link" / "catalog.db", mounts) == "ceph"
    assert network_file_system(tmp_path / "catalog.db", mounts) is None


def test_without_mounts_nothing_is_known(tmp_path: Path) -> None:
    assert network_file_system(tmp_path, "") is None


def test_the_system_under_the_tests_answers(tmp_path: Path) -> None:
    assert network_file_system(tmp_path) in (None, "nfs", "nfs4", "9p", "ceph", "cifs")
