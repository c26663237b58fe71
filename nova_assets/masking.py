"""Secrets are masked here and nowhere else: for errors, logs, ``nova doctor``, Dagster and HTTP.

A secret is recognised in two ways. By its place: the password of an address, a parameter of an address that is named
like a secret, a token of the service. And by its value: whatever the settings of this process hold as a secret is
remembered, and masked wherever it appears.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, unquote_plus

MASK = "***"

_SECRET_WORDS = (
    *("password", "passwd", "passphrase", "pwd", "secret", "token", "signature", "credential"),
    *("authorization", "apikey", "accesskey", "privatekey"),
)
_SECRET_NAMES = frozenset({"pass", "key", "sig", "sas", "auth"})

# Texts may be megabytes of one word, so no pattern looks through a word from each of its letters on.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}://[^\s'\"<>`]+")
_SECRET_ASSIGNMENT = re.compile(
    r"((?:password|passwd|passphrase|secret)[\w.-]{0,80})=(?!=)('[^']*'|\"[^\"]*\"|[^\s,;&'\"]+)", re.IGNORECASE
)
_TOKEN = re.compile(r"\b(nova_[0-9a-f]{16}_)[A-Za-z0-9_-]{20,}")
_BEARER = re.compile(r"\b(Bearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.I)
_PARAMETER = re.compile(r"([?&])([^=&?\s]+)=([^&]*)")
_SPARK_PARAMETER = re.compile(r"(;)([^=;\s]+)=([^;]*)")
_QUERY = re.compile(r"\?[A-Za-z_%][\w.%-]*=")
_PORT = re.compile(r"\d{1,5}(?:[/?#;]|$)")
_LETTERS = re.compile(r"[a-z]*|[A-Z]*")
_MIN_SECRET_LENGTH = 6
"""Characters of a secret that is masked by its value; a shorter one is part of too many words."""

_pattern_by_secret: dict[str, re.Pattern[str]] = {}


def mask(text: str) -> str:
    """The text, with every secret in it masked."""
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
    """An address (of a catalog, a service, a warehouse, Spark, ...) without its password and its secret parameters."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return address
    user, password, place = _split_user_info(scheme, rest)
    if password is not None:
        rest = f"{user}:{MASK}@{place}"
    elif user and scheme.lower() in ("http", "https", "sc"):  # a token may stand where the user does
        rest = f"{MASK}@{place}"
    if scheme.lower() == "sc":  # of Spark Connect: one of its parameters is a token
        head, separator, _ = rest.partition(";")
        return f"{scheme}://{head}{f'{separator}{MASK}' if separator else ''}"
    return f"{scheme}://{_PARAMETER.sub(_mask_secret_parameter, rest)}"


def mask_setting(name: str, value: str) -> str:
    """The value of a Spark setting; all of it is masked where its name says that it is a secret."""
    return MASK if is_secret_name(name) else mask(value)


def mask_values(value: Any) -> Any:
    """The same value, with the secrets in its texts masked, however deep in lists and mappings."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(mask_values(v) for v in value)
    if type(value) is dict:
        return {name: mask_values(v) for name, v in value.items()}
    return value


def mask_exception(error: BaseException | None) -> None:
    """Mask the secrets in an exception and in all that caused it, in place: tracebacks print the whole chain.

    Only the texts that the exceptions hold are changed. ``str`` is not called: some exceptions ask another process.
    """
    todo, done = [error], set[int]()
    while todo:
        found = todo.pop()
        if found is None or id(found) in done:
            continue
        done.add(id(found))
        masked = mask_values(found.args)
        if masked != found.args:
            found.args = masked
        for name, value in [*vars(found).items(), *_hidden_attributes(found)]:
            if isinstance(value, BaseException):
                todo.append(value)
            elif (text := mask_values(value)) is not value and text != value:
                setattr(found, name, text)
        todo += [found.__cause__, found.__context__]
        if isinstance(found, BaseExceptionGroup):
            todo += found.exceptions


def is_secret_name(name: str) -> bool:
    """Whether a parameter or setting of this name holds a secret, percent-encoded or not."""
    plain = re.sub(r"[^a-z0-9]", "", unquote_plus(name).lower())
    return plain in _SECRET_NAMES or plain.endswith("key") or any(word in plain for word in _SECRET_WORDS)


def remember_secrets(*addresses: str | None, values: Mapping[str, str] | None = None) -> None:
    """Mask the secrets of these addresses and settings wherever they appear from now on in this process.

    Args:
        values: name -> value of further settings; those whose name says that they are secrets count.
    """
    found = [secret for address in addresses if address for secret in _secrets_in(address)]
    for name, value in (values or {}).items():
        found += [value] if is_secret_name(name) else list(_secrets_in(value))
    for secret in found:
        for form in {secret, unquote(secret), unquote_plus(secret)}:
            if len(form) >= _MIN_SECRET_LENGTH and not _LETTERS.fullmatch(form):
                before = r"(?<!\w)" if form[0].isalnum() else ""
                after = r"(?!\w)" if form[-1].isalnum() else ""
                _pattern_by_secret.setdefault(form, re.compile(before + re.escape(form) + after))


def get_logger(name: str) -> logging.Logger:
    """The logger of this name, whose records are masked before any handler has them. The package uses no other."""
    logger = logging.getLogger(name)
    if _MASKING not in logger.filters:
        logger.addFilter(_MASKING)
    return logger


class MaskingFilter(logging.Filter):
    """Masks the message of a record, and the exception that it tells of."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = mask(record.getMessage()), ()
        if isinstance(record.exc_info, tuple):
            mask_exception(record.exc_info[1])
        return True


_MASKING = MaskingFilter()


def _split_user_info(scheme: str, after_scheme: str) -> tuple[str, str | None, str]:
    """(user, password, the rest) of what follows ``://``. A password may hold ``/``, ``?`` or ``@`` that nobody has
    encoded, so the last ``@`` before the query counts."""
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


def _secrets_in(address: str) -> Iterator[str]:
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


def _hidden_attributes(error: BaseException) -> list[tuple[str, Any]]:
    """What an exception keeps beside its ``args`` and attributes."""
    names = ("filename", "filename2", "strerror") if isinstance(error, OSError) else ()
    return [(name, getattr(error, name)) for name in names]
