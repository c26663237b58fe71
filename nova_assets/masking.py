"""Masking of secrets in errors, logs, ``nova doctor``, Dagster and HTTP. No other module masks secrets.

A secret is recognised by its place: the password of an address, a parameter of an address with a secret-like name, or a
token of the service. It is also recognised by its value: the secrets in this process's settings are remembered, and
masked wherever they appear.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, unquote_plus

MASK = "***"

_SECRET_WORDS = (
    *("password", "passwd", "passphrase", "pwd", "secret", "token", "signature", "credential"),
    *("authorization", "apikey", "accesskey", "privatekey"),
)
_SECRET_NAMES = frozenset({"pass", "key", "sig", "sas", "auth"})

# A text may be one word of several megabytes, so no pattern may rescan a word from each of its letters.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}://[^\s'\"<>`]+")
_SECRET_ASSIGNMENT = re.compile(
    r"((?:password|passwd|passphrase|secret)[\w.-]{0,80})=(?!=)('[^']*'|\"[^\"]*\"|[^\s,;&'\"]+)", re.IGNORECASE
)
_TOKEN = re.compile(r"\b(nova_[0-9a-f]{16}_)[A-Za-z0-9_-]{20,}")
_BEARER = re.compile(r"\b(Bearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.I)
_PARAMETER = re.compile(r"([?&])([^=&?\s]+)=([^&]*)")
_SPARK_PARAMETER = re.compile(r"(;)([^=;\s]+)=([^;]*)")
_QUERY = re.compile(r"\?[A-Za-z_%][\w.%-]*=")
_NO_PORT = re.compile(r"^(\[[^\]]*\]|[^:/?#,\[]+):(?!\d{1,5}(?:[/?#,]|$))[^/?#]*")
_PORT = re.compile(r"\d{1,5}(?:[/?#;]|$)")
_LETTERS = re.compile(r"[a-z]*|[A-Z]*")
_MIN_SECRET_LENGTH = 6
"""Minimum length of a secret that is masked by its value. Shorter secrets occur inside too many ordinary words."""

_MIN_WORD_LENGTH = 12
"""The same for a secret of letters of one case only, which may be an ordinary word."""

_RESERVED = "!#$%&'()*+,/:;=?@[]~"
"""Characters that HTTP clients leave as they are in an address."""

_pattern_by_secret: dict[str, re.Pattern[str]] = {}


def mask(text: str) -> str:
    """Text with every secret masked."""
    if "://" in text:
        text = _ADDRESS.sub(lambda match: mask_address(match[0]), text)
    if "=" in text:
        text = _SECRET_ASSIGNMENT.sub(lambda match: f"{match[1]}={MASK}", text)
    if "nova_" in text:
        text = _TOKEN.sub(rf"\1{MASK}", text)
    text = _BEARER.sub(rf"\1{MASK}", text)
    for secret, pattern in list(_pattern_by_secret.items()):
        if secret in text:
            text = pattern.sub(MASK, text)
    return text


def mask_address(address: str) -> str:
    """Address (of a catalog, service, warehouse, Spark, ...) without its password and its secret parameters."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    user, password, place = _split_user_info(scheme, rest)
    if scheme.lower().startswith("postgresql"):  # what is no port may be a part of the password
        masked_place = _NO_PORT.sub(rf"\1:{MASK}", place)
        rest, place = rest.removesuffix(place) + masked_place, masked_place
    if password is not None:
        rest = f"{user}:{MASK}@{place}"
    elif user and scheme.lower() in ("http", "https", "sc"):  # the user part may be a token
        rest = f"{MASK}@{place}"
    if scheme.lower() == "sc":  # one of the parameters of Spark Connect is a token
        head, separator, _ = rest.partition(";")
        return f"{scheme}://{head}{f'{separator}{MASK}' if separator else ''}"
    return f"{scheme}://{_PARAMETER.sub(_mask_secret_parameter, rest)}"


def mask_setting_value(name: str, value: str) -> str:
    """Value of a Spark setting, fully masked if the name of the setting denotes a secret."""
    return MASK if is_secret_name(name) else mask(value)


def mask_nested(value: Any) -> Any:
    """Value with the secrets in its texts masked, at any depth of lists and mappings."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(mask_nested(v) for v in value)
    if type(value) is dict:
        return {name: mask_nested(v) for name, v in value.items()}
    return value


def mask_exception(error: BaseException | None) -> None:
    """Mask the secrets in an exception and its whole chain of causes, in place, since tracebacks print the chain.

    Only the texts that the exceptions hold are changed. ``str`` is not called, since some exceptions then query another
    process.
    """
    todo, done = [error], set[int]()
    while todo:
        found = todo.pop()
        if found is None or id(found) in done:
            continue
        done.add(id(found))
        masked = mask_nested(found.args)
        if masked != found.args:
            found.args = masked
        for name, value in [*vars(found).items(), *_attributes_outside_dict(found)]:
            if isinstance(value, BaseException):
                todo.append(value)
            elif (text := mask_nested(value)) is not value and text != value:
                setattr(found, name, text)
        todo += [found.__cause__, found.__context__]
        if isinstance(found, BaseExceptionGroup):
            todo += found.exceptions


def is_secret_name(name: str) -> bool:
    """Whether a parameter or setting of this name holds a secret. The name may be percent-encoded."""
    plain = re.sub(r"[^a-z0-9]", "", unquote_plus(name).lower())
    return plain in _SECRET_NAMES or plain.endswith("key") or any(word in plain for word in _SECRET_WORDS)


def remember_secrets(*addresses: str | None, values: Mapping[str, str] | None = None) -> None:
    """Mask the secrets in these addresses and settings from now on, wherever they appear in this process.

    Args:
        values: name -> value of further settings. Values with a secret-like name are secrets as a whole.
    """
    found = [secret for address in addresses if address for secret in _find_secrets(address)]
    for name, value in (values or {}).items():
        found += [value] if is_secret_name(name) else list(_find_secrets(value))
    for secret in found:
        _remember(secret)


def remember_whole_secret(secret: str) -> None:
    """Mask a text from now on, wherever it appears in this process.

    An address is a secret as a whole, such as that of a webhook, also in a list of addresses. HTTP clients quote its
    path without its host.
    """
    for address in {secret, *(secret.split() if "://" in secret else ())}:
        target = address.partition("://")[2].partition("/")[2].strip("/")
        for text in (address, target, target.partition("?")[0].strip("/"), *_find_secrets(address)):
            _remember(text)


def _remember(secret: str) -> None:
    """Mask a secret in the forms in which it may appear: as it is, with or without percent encoding."""
    encoded = (quote(secret, safe, errors="surrogateescape") for safe in ("", _RESERVED))
    for form in {secret, unquote(secret), unquote_plus(secret), *encoded}:
        if len(form) >= (_MIN_WORD_LENGTH if _LETTERS.fullmatch(form) else _MIN_SECRET_LENGTH):
            before = r"(?<!\w)" if form[0].isalnum() else ""
            after = r"(?!\w)" if form[-1].isalnum() else ""
            _pattern_by_secret.setdefault(form, re.compile(before + re.escape(form) + after))


def get_logger(name: str) -> logging.Logger:
    """Logger whose records are masked before any handler sees them. The package uses no other loggers."""
    logger = logging.getLogger(name)
    if _MASKING not in logger.filters:
        logger.addFilter(_MASKING)
    return logger


class MaskingFilter(logging.Filter):
    """Masks the message of a log record, and its exception."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = mask(record.getMessage()), ()
        if isinstance(record.exc_info, tuple):
            mask_exception(record.exc_info[1])
        return True


_MASKING = MaskingFilter()


def _split_user_info(scheme: str, after_scheme: str) -> tuple[str, str | None, str]:
    """Split the part of an address after ``://`` into (user, password, rest).

    A password may contain unencoded ``/``, ``?`` or ``@``, so the last ``@`` before the query ends it.
    """
    first = after_scheme.find("@")
    if first < 0:
        return "", None, after_scheme
    query = _QUERY.search(after_scheme, first)
    last = after_scheme.rfind("@", 0, query.start() if query else len(after_scheme))
    user, colon, password = after_scheme[:last].partition(":")
    is_port = not scheme.lower().startswith("postgres") and _PORT.match(password)
    if re.search(r"[/?#;]", user) or (colon and is_port and not _PORT.fullmatch(password)):
        return "", None, after_scheme  # the @ belongs to the path
    return user, password if colon else None, after_scheme[last + 1 :]


def _find_secrets(address: str) -> Iterator[str]:
    scheme, separator, rest = address.partition("://")
    if not separator:
        yield from (value for _, value in _SECRET_ASSIGNMENT.findall(address))
        return
    user, password, place = _split_user_info(scheme, rest)
    if password is not None:
        yield password
    elif user and scheme.lower() in ("http", "https", "sc"):
        yield user
    pattern = _SPARK_PARAMETER if scheme.lower() == "sc" else _PARAMETER
    yield from (value for _, name, value in pattern.findall(place) if is_secret_name(name))


def _mask_secret_parameter(match: re.Match[str]) -> str:
    return f"{match[1]}{match[2]}={MASK}" if is_secret_name(match[2]) else match[0]


def _attributes_outside_dict(error: BaseException) -> list[tuple[str, Any]]:
    """Texts that an exception keeps outside its ``args`` and ``__dict__``."""
    names = ("filename", "filename2", "strerror") if isinstance(error, OSError) else ()
    return [(name, getattr(error, name)) for name in names]
