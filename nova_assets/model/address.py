"""Addresses of warehouses and files: local paths, ``file:``, ``s3:`` and ``hdfs:``. Only this module parses them.

An address with any unsupported part is rejected before anything is opened. If that part were ignored, two libraries
could resolve the address to different places.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from nova_assets.errors import NotSupported, SettingsError
from nova_assets.settings import is_warehouse_url

Scheme = Literal["", "s3", "hdfs"]

EXPECTED_ADDRESS = "a path, a file:// URL, s3://BUCKET/PREFIX or hdfs://NAMENODE:PORT/PATH"

_URL = re.compile(r"([^:]*):(//)?(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_NAMENODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?")
_PATH_SEGMENT = re.compile(r"[\w.=+,@!~:()' -]+")
"""Characters of object names that every library takes literally, without decoding or interpretation."""


@dataclass(frozen=True, slots=True)
class Address:
    """Location of a warehouse.

    Args:
        scheme: empty for a local path.
        authority: the bucket, or the namenode with its port.
        path: path below the authority, without a slash at either end; for a local path, the absolute path.
    """

    scheme: Scheme
    authority: str
    path: str

    def __str__(self) -> str:
        return self.path if not self.scheme else f"{self.scheme}://{self.authority}/{self.path}".rstrip("/")


def parse_address(text: str) -> Address:
    """Address from its text.

    Raises:
        SettingsError: a part of the address is invalid.
        NotSupported: the scheme is not supported.
    """
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise _invalid_address_error("holds a control character", repr(text))
    if not is_warehouse_url(text):
        if not text.strip():
            raise _invalid_address_error("is empty", repr(text))
        return Address("", "", str(Path(text).expanduser().absolute()))
    match = _URL.fullmatch(text)
    assert match is not None
    scheme, rest = match[1].lower(), match[3]
    if scheme not in ("file", "s3", "hdfs"):
        hint = {"s3a": "s3://", "s3n": "s3://", "webhdfs": "hdfs://"}.get(scheme)
        raise NotSupported(
            f"the scheme {scheme}:// of the warehouse is not supported",
            expected=EXPECTED_ADDRESS,
            next=f"write {hint}..."
            if hint
            else "set NOVA_WAREHOUSE to a folder; on a cluster, to a folder that every machine mounts",
        )
    if match[2] is None and scheme != "file":
        raise _invalid_address_error(f"lacks the slashes of {scheme}://", repr(text))
    for character, begins in (("?", "a query"), ("#", "a fragment")):
        if character in rest:
            raise _invalid_address_error(
                f"holds {character!r}, which begins {begins} in an address", _mask_credentials(text)
            )
    if scheme == "file":
        return _parse_file_url(text, rest, match[2] is not None)
    return _parse_store_url("s3" if scheme == "s3" else "hdfs", rest, text)


def split_store_address(file_address: str) -> tuple[str, str, str]:
    """Scheme, bucket or namenode, and name of a file in a store. Everything after the bucket belongs to the name."""
    scheme, _, rest = file_address.partition("://")
    authority, _, name = rest.partition("/")
    return scheme, authority, name


def _parse_file_url(url: str, after_scheme: str, has_authority: bool) -> Address:
    host, slash, path = after_scheme.partition("/") if has_authority else ("", "/", after_scheme.lstrip("/"))
    if host not in ("", "localhost") or not slash or not path:
        raise _invalid_address_error("names no path of this machine", repr(url))
    return Address("", "", str(Path(f"/{unquote(path)}")))


def _parse_store_url(scheme: Literal["s3", "hdfs"], after_scheme: str, url: str) -> Address:
    authority, _, path = after_scheme.partition("/")
    if "@" in authority:
        raise _invalid_address_error(
            "holds credentials, or a user",
            _mask_credentials(url),
            "give them by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or HADOOP_USER_NAME",
        )
    if not (_BUCKET if scheme == "s3" else _NAMENODE).fullmatch(authority):
        raise _invalid_address_error(f"names no {'bucket' if scheme == 's3' else 'namenode'}", repr(url))
    path = path.rstrip("/")
    if scheme == "hdfs" and not path:
        raise _invalid_address_error("names no folder", repr(url))
    for segment in path.split("/") if path else ():
        if segment in ("", ".", "..") or not _PATH_SEGMENT.fullmatch(segment) or segment != segment.strip():
            raise _invalid_address_error(
                f"has a part that stores and libraries read differently: {segment!r}", repr(url)
            )
    return Address(scheme, authority, path)


def _mask_credentials(url: str) -> str:
    return repr(re.sub(r"//[^/]*@", "//***@", url))


def _invalid_address_error(
    problem: str, actual: str, next_step: str = "set NOVA_WAREHOUSE to another address"
) -> SettingsError:
    return SettingsError(f"the warehouse's address {problem}", found=actual, expected=EXPECTED_ADDRESS, next=next_step)
