"""File systems of networks, on which a SQLite catalog is not safe.

SQLite's write-ahead log needs memory that all processes share, and locks that all of them see. A network's file system
offers neither between hosts: processes on two hosts would overwrite each other's commits.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOUNT_INFO = Path("/proc/self/mountinfo")

_NETWORK_FILE_SYSTEMS = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "coda", "ncpfs", "davfs"),
        *("ceph", "glusterfs", "lustre", "beegfs", "gpfs", "orangefs", "ocfs2", "gfs2", "quobyte"),
    }
)
"""Types of mounts. virtiofs is missing on purpose: the folder of the host that it shares is a local one."""

_NETWORK_FUSE_FILE_SYSTEMS = frozenset(
    {
        *("sshfs", "glusterfs", "ceph", "s3fs", "s3backer", "goofys", "mount-s3", "gcsfuse", "blobfuse", "blobfuse2"),
        *("rclone", "davfs", "davfs2", "juicefs", "moosefs", "seaweedfs", "smbnetfs", "hadoop-fuse-dfs", "alluxio"),
    }
)
"""Types of FUSE mounts, after ``fuse.``."""

_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")


def network_file_system(path: Path, mountinfo: str | None = None) -> str | None:
    """Type of the network's file system that holds a path, such as ``nfs4``; None if it is local or unknown.

    Opens nothing below the path.

    Args:
        path: a file or folder, which need not exist.
        mountinfo: content of ``/proc/self/mountinfo``. By default, it is read. Without it, the result is None.
    """
    if mountinfo is None:
        try:
            mountinfo = _MOUNT_INFO.read_bytes().decode(errors="surrogateescape")
        except OSError:
            return None
    mount_type = _mount_type(os.path.realpath(path), mountinfo)
    if mount_type in _NETWORK_FILE_SYSTEMS:
        return mount_type
    kind, _, name = mount_type.partition(".")
    return mount_type if kind in ("fuse", "fuseblk") and name in _NETWORK_FUSE_FILE_SYSTEMS else None


def _mount_type(real_path: str, mountinfo: str) -> str:
    """File system type of the mount that holds a path: the longest mount point, and of equal ones the last."""
    longest, mount_type = -1, ""
    for line in mountinfo.split("\n"):
        mount, separator, source = line.partition(" - ")
        fields = mount.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount_point = _OCTAL_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
        holds_path = real_path == mount_point or real_path.startswith(mount_point.rstrip("/") + "/")
        if holds_path and len(mount_point) >= longest:
            longest, mount_type = len(mount_point), source.split(" ", 1)[0]
    return mount_type
