"""The inbox of a source."""

from __future__ import annotations

from pathlib import Path

from nova_assets.errors import NotSupported
from nova_assets.model.file_source import Files
from nova_assets.sources.folder import FolderInbox
from nova_assets.sources.inbox import Inbox


def open_inbox(source: Files, root: Path, *, watch: bool = False) -> Inbox:
    """The inbox of a source.

    Args:
        root: from where a relative location goes.
        watch: have a folder's changes told from now on.

    Raises:
        SourceUnavailable: it does not answer.
        NotSupported: boto3 is not installed.
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
