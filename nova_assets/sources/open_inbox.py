"""Factory of inboxes: a folder or an S3 bucket."""

from __future__ import annotations

from pathlib import Path

from nova_assets.errors import NotSupported
from nova_assets.model.file_source import Files
from nova_assets.sources.folder import FolderInbox
from nova_assets.sources.inbox import Inbox


def open_inbox(source: Files, root: Path, *, watch: bool = False) -> Inbox:
    """Open the inbox of a source.

    Args:
        source: declaration of the files.
        root: folder to which a relative location refers.
        watch: watch a folder for changes from now on.

    Raises:
        SourceUnavailable: the source does not answer.
        NotSupported: the source is in S3, and boto3 is not installed.
    """
    if source.scheme == "file":
        return FolderInbox(source, root / Path(source.location).expanduser(), watch=watch)
    try:
        from nova_assets.sources.s3_bucket import S3Inbox
    except ModuleNotFoundError as error:
        raise NotSupported(
            f"files from {source.location} are read with boto3, which is not installed",
            found=str(error),
            next="pip install 'nova-assets[s3]'",
        ) from error
    return S3Inbox(source)
