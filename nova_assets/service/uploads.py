"""Spooling of insert bodies to files, which ``decoders`` opens."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from nova_assets.errors import RequestRefused
from nova_assets.service.http.media_types import ARROW, LINES, PARQUET

_FORMAT_BY_MEDIA_TYPE = {
    ARROW: "arrow",
    PARQUET: "parquet",
    "application/x-parquet": "parquet",
    LINES: "jsonl",
    "application/jsonl": "jsonl",
    "application/jsonlines": "jsonl",
}

MAX_EXPANSION = 16
"""Maximum size of a decoded body, as a multiple of the body size limit."""

DECODE_TIME_SHARE = 0.75
"""Share of a request's time limit that decoding may take."""


def body_format(request: Request) -> str:
    """Format of a request body by its headers.

    Raises:
        RequestRefused: the type is unknown or the body is encoded (status 415).
    """
    content_type = ", ".join(request.headers.getlist("content-type"))
    encodings = request.headers.getlist("content-encoding")
    if any(e.strip().lower() != "identity" for e in encodings):
        raise RequestRefused(
            "the body has a content encoding",
            found=f"content-encoding: {', '.join(encodings)[:100]}",
            expected="a body without encoding; Parquet files and Arrow buffers may be compressed inside",
            next="send the body without Content-Encoding",
            status=415,
        )
    format_ = _FORMAT_BY_MEDIA_TYPE.get(content_type.partition(";")[0].strip().lower())
    if format_ is None:
        raise _unknown_type_error(
            "the body has an unsupported media type",
            content_type or "no Content-Type",
            ", ".join(_FORMAT_BY_MEDIA_TYPE),
        )
    return format_


class _LockedFolder(NamedTuple):
    """A folder that stays locked until the descriptor is closed."""

    path: Path
    lock_descriptor: int


class UploadSpool:
    """Temporary folder of this process for request bodies, protected by a lock on the folder.

    Folders of killed processes are deleted by the next process that creates one.
    """

    prefix = "nova-uploads-"

    def __init__(self) -> None:
        self._folder_lock = threading.Lock()
        self._locked_folder: _LockedFolder | None = None

    def ensure_folder(self) -> Path:
        """The folder. Created on first use, and again if it was deleted from outside."""
        with self._folder_lock:
            if self._locked_folder is not None and not self._locked_folder.path.is_dir():
                os.close(self._locked_folder.lock_descriptor)
                self._locked_folder = None
            if self._locked_folder is None:
                self._locked_folder = self._create_locked_folder()
            return self._locked_folder.path

    def _create_locked_folder(self) -> _LockedFolder:
        _delete_abandoned_folders(Path(tempfile.gettempdir()), self.prefix)
        folder = Path(tempfile.mkdtemp(prefix=self.prefix))
        try:
            return _LockedFolder(folder, _lock_folder(folder, fcntl.LOCK_EX))
        except OSError:
            folder.rmdir()
            raise

    def close(self) -> None:
        """Delete the folder."""
        with self._folder_lock:
            if self._locked_folder is not None:
                shutil.rmtree(self._locked_folder.path, ignore_errors=True)
                os.close(self._locked_folder.lock_descriptor)
                self._locked_folder = None


_UNLOCKED_SECONDS = 60.0
"""Age in seconds below which an unlocked folder may belong to a process that is about to lock it."""


def _delete_abandoned_folders(parent: Path, prefix: str) -> None:
    """Delete this user's folders that no process locks."""
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # the folder is locked, was deleted meanwhile, or is no folder
            descriptor = _lock_folder(folder)
            try:
                status = os.fstat(descriptor)
                if status.st_uid == os.geteuid() and status.st_mtime < time.time() - _UNLOCKED_SECONDS:
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _lock_folder(folder: Path, flock_flags: int = fcntl.LOCK_EX | fcntl.LOCK_NB) -> int:
    """Lock a folder until the returned descriptor is closed or this process ends. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, flock_flags)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@asynccontextmanager
async def spool_body(request: Request, suffix: str, spool: UploadSpool) -> AsyncIterator[Path]:
    """Request body as a temporary file. Size and time limits are enforced by the middleware."""
    with tempfile.TemporaryDirectory(dir=await run_in_threadpool(spool.ensure_folder)) as folder:
        file = Path(folder) / f"body.{suffix}"
        try:
            with file.open("wb") as out:
                async for chunk in request.stream():
                    await run_in_threadpool(out.write, chunk)
        except ClientDisconnect:
            raise RequestRefused(
                "the client disconnected before the whole body had arrived",
                next="nothing was inserted: send the request again",
                status=400,
                reason="went_away",
            ) from None
        yield file


def _unknown_type_error(what: str, found: str, expected: str) -> RequestRefused:
    return RequestRefused(what, found=found[:100], expected=expected, next="set the Content-Type", status=415)
