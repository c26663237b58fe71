"""Addresses of warehouses and files: paths of this machine, ``file:``, ``s3:`` and ``hdfs:``. Parsed here alone.

An address that is not understood in every part is refused before anything is opened: a part that is passed over would
lead two libraries to two places.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from nova_assets.errors import NotSupported, SettingsError
from nova_assets.settings import is_url

Scheme = Literal["", "s3", "hdfs"]

EXPECTED = "a path, a file:// URL, s3://BUCKET/PREFIX or hdfs://NAMENODE:PORT/PATH"

_URL = re.compile(r"([^:]*):(//)?(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_NAMENODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?")
_SEGMENT = re.compile(r"[\w.=+,@!~:()' -]+")
"""Characters of names in stores that everybody takes for themselves: no library decodes or interprets them."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a warehouse is.

    Args:
        scheme: empty for a path of this machine.
        authority: the bucket, or the namenode with its port.
        path: below it, without a slash at either end; of this machine, absolute.
    """

    scheme: Scheme
    authority: str
    path: str

    def __str__(self) -> str:
        return self.path if not self.scheme else f"{self.scheme}://{self.authority}/{self.path}".rstrip("/")


def parse_address(text: str) -> Address:
    """The address that a text means.

    Raises:
        SettingsError: a part of it is not understood.
        NotSupported: it is of another kind.
    """
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise _refused("holds a control character", repr(text))
    if not is_url(text):
        if not text.strip():
            raise _refused("is empty", repr(text))
        return Address("", "", str(Path(text).expanduser().absolute()))
    match = _URL.fullmatch(text)
    assert match is not None
    scheme, rest = match[1].lower(), match[3]
    if scheme not in ("file", "s3", "hdfs"):
        hint = {"s3a": "s3://", "s3n": "s3://", "webhdfs": "hdfs://"}.get(scheme)
        raise NotSupported(
            f"the warehouse {scheme}:// is of a kind that is not known",
            expected=EXPECTED,
            next=f"write {hint}..."
            if hint
            else "set NOVA_WAREHOUSE to a folder; one that is mounted on every machine of a cluster will do",
        )
    if match[2] is None and scheme != "file":
        raise _refused(f"lacks the slashes of {scheme}://", repr(text))
    for mark, name in (("?", "a query"), ("#", "a fragment")):
        if mark in rest:
            raise _refused(f"holds {mark!r}, which begins {name} in an address", _without_credentials(text))
    if scheme == "file":
        return _file(text, rest, match[2] is not None)
    return _remote("s3" if scheme == "s3" else "hdfs", rest, text)


def split_address(address: str) -> tuple[str, str, str]:
    """Scheme, bucket or namenode, and name of a file in a store. Every character after the bucket is the name's."""
    scheme, _, rest = address.partition("://")
    authority, _, name = rest.partition("/")
    return scheme, authority, name


def _file(text: str, rest: str, with_host: bool) -> Address:
    host, slash, path = rest.partition("/") if with_host else ("", "/", rest.lstrip("/"))
    if host not in ("", "localhost") or not slash or not path:
        raise _refused("names no path of this machine", repr(text))
    return Address("", "", str(Path(f"/{unquote(path)}")))


def _remote(scheme: Literal["s3", "hdfs"], rest: str, text: str) -> Address:
    authority, _, path = rest.partition("/")
    if "@" in authority:
        raise _refused(
            "holds credentials, or a user",
            _without_credentials(text),
            "give them by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or HADOOP_USER_NAME",
        )
    if not (_BUCKET if scheme == "s3" else _NAMENODE).fullmatch(authority):
        raise _refused(f"names no {'bucket' if scheme == 's3' else 'namenode'}", repr(text))
    path = path.rstrip("/")
    if scheme == "hdfs" and not path:
        raise _refused("names no folder", repr(text))
    for segment in path.split("/") if path else ():
        if segment in ("", ".", "..") or not _SEGMENT.fullmatch(segment) or segment != segment.strip():
            raise _refused(f"has a part that stores and libraries read differently: {segment!r}", repr(text))
    return Address(scheme, authority, path)


def _without_credentials(text: str) -> str:
    return repr(re.sub(r"//[^/]*@", "//***@", text))


def _refused(why: str, found: str, next: str = "set NOVA_WAREHOUSE to another address") -> SettingsError:
    return SettingsError(f"the warehouse's address {why}", found=found, expected=EXPECTED, next=next)
