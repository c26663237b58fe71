"""``nova token``: add, list and revoke the tokens that grant rights on the service."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand, print_to_stderr
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import escape_unprintable, format_iso_time, format_time, print_table
from nova_assets.errors import DefinitionError
from nova_assets.model.period import EXPECTED_PERIOD, period_seconds
from nova_assets.model.token import (
    RIGHTS,
    Grants,
    Token,
    mint_token,
    token_name_taken_error,
    unknown_channels_in_grants,
)
from nova_assets.store.store import Store

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])


@click.group()
def token() -> None:
    """Add, list and revoke the tokens of the service: nova token add NAME, list, revoke NAME.

    A token grants rights on channels by name or pattern. No right implies another: a token with the right to write a
    channel does not allow reading it.

    Each subcommand takes --json; add and revoke take --dry-run. See nova token add --help.

    \b
    JSON: {"id", "name", "read": [PATTERN], "write": [PATTERN], "operate": [PATTERN],
           "created_at", "expires_at", "revoked_at", "state": "valid"|"expired"|"revoked"}
    """


def _channel_patterns_option(right: str, help_text: str) -> Callable[[CommandFunction], CommandFunction]:
    return click.option(
        f"--{right}", multiple=True, metavar="PATTERN", help=f"{help_text}; may be given several times."
    )


@token.command(cls=NovaCommand)
@click.argument("name")
@_channel_patterns_option("read", "Channels that the token may read")
@_channel_patterns_option("write", "Channels into which the token may insert")
@_channel_patterns_option("operate", "Channels that the token may compact, garbage-collect, drop and restore")
@click.option("--expires", metavar="PERIOD", help='Lifetime of the token, such as "90d".  [default: unlimited]')
@click.option("--dry-run", is_flag=True, help="Show the rights of the token. Create nothing.")
def add(
    deployment: Deployment,
    name: str,
    read: tuple[str, ...],
    write: tuple[str, ...],
    operate: tuple[str, ...],
    expires: str | None,
    dry_run: bool,
) -> CommandResult:
    """Create a token with this NAME and print its text once. The catalog stores only a digest of its secret.

    A PATTERN is the name of a channel, or has wildcards: '*' matches every channel, 'sales_*' all channels that begin
    with sales_, including future ones. Quote patterns, or the shell replaces them by file names. A NAME cannot be used
    again after the token is revoked.

    \b
    JSON: {"dry_run", "token": TEXT or null, "id", "name", "read": [PATTERN], "write", "operate",
           "created_at", "expires_at", "revoked_at", "state", "unknown": [names of channels that do not exist yet]}
    """
    grants: Grants = {"read": read, "write": write, "operate": operate}
    with deployment.open(with_project=False, dry_run=dry_run) as store:
        now = store.catalog.now()
        token_text, new_token = mint_token(name, grants, now, _expiry_time(expires, now))
        channels = [s.channel.name for s in store.channels()]
        unknown = unknown_channels_in_grants(new_token.grants, channels)
        if dry_run:
            _check_name_is_free(store, name)
        else:
            store.catalog.tokens.add(new_token)
    if unknown:
        existing = f"; existing channels: {', '.join(channels)}" if channels else ""
        print_to_stderr(f"(these channels do not exist yet: {', '.join(unknown)}{existing})")
    token_fields = _token_json(new_token, now)
    data = {"dry_run": dry_run, "token": None if dry_run else token_text, **token_fields, "unknown": unknown}
    if dry_run:
        data["id"] = None
    return CommandResult(data, lambda console: _show_new_token(console, None if dry_run else token_text, new_token))


@token.command(cls=NovaCommand, name="list")
def list_(deployment: Deployment) -> CommandResult:
    """List the tokens with their rights and expiry, including expired and revoked tokens.

    \b
    JSON: {"tokens": [{"id", "name", "read": [PATTERN], "write": [PATTERN], "operate": [PATTERN],
           "created_at", "expires_at", "revoked_at", "state": "valid"|"expired"|"revoked"}]}
    """
    with deployment.open_read_only() as store:
        now, all_tokens = store.catalog.now(), store.catalog.tokens.all()
    return CommandResult(
        {"tokens": [_token_json(t, now) for t in all_tokens]}, lambda console: _show_tokens(console, all_tokens, now)
    )


@token.command(cls=NovaCommand)
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Show the token that would be revoked. Change nothing.")
def revoke(deployment: Deployment, name: str, dry_run: bool) -> CommandResult:
    """Revoke the token NAME. A running service rejects it within five seconds.

    \b
    JSON: {"dry_run", "name", "revoked": whether this command revoked it, "state": "valid"|"expired"|"revoked"}
    """
    with deployment.open(with_project=False, dry_run=dry_run) as store:
        token_before = _get_token(store, name)
        revoked = not dry_run and store.catalog.tokens.revoke(name)
        state = _token_state(token_before if dry_run else _get_token(store, name), store.catalog.now())
    data = {"dry_run": dry_run, "name": name, "revoked": revoked, "state": state}
    return CommandResult(data, lambda console: console.print(_format_revocation(name, dry_run, revoked, token_before)))


def _format_revocation(name: str, dry_run: bool, revoked: bool, token_before: Token) -> str:
    if token_before.revoked_at is not None:
        return f"The token {name} was already revoked, at {format_time(token_before.revoked_at)}."
    if dry_run:
        return f"The token {name} would be revoked; it grants {_format_grants(token_before)}."
    return f"The token {name} is revoked." if revoked else f"Another command has revoked the token {name} meanwhile."


def _get_token(store: Store, name: str) -> Token:
    all_tokens = store.catalog.tokens.all()
    matching_token = next((t for t in all_tokens if t.name == name), None)
    if matching_token is None:
        raise DefinitionError(
            f"there is no token {name!r}",
            expected=", ".join(t.name for t in all_tokens) or "the name of a token; nova token add creates one",
            next="nova token list",
        )
    return matching_token


def _check_name_is_free(store: Store, name: str) -> None:
    existing_token = next((t for t in store.catalog.tokens.all() if t.name == name), None)
    if existing_token is not None:
        raise token_name_taken_error(name, existing_token, store.catalog.now())


def _expiry_time(period: str | None, now: datetime) -> datetime | None:
    if period is None:
        return None
    seconds = period_seconds(period)
    if not seconds:
        raise _invalid_period_error(period)
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        raise _invalid_period_error(period) from None


def _invalid_period_error(period: str) -> DefinitionError:
    return DefinitionError("--expires is not a period", found=repr(period), expected=EXPECTED_PERIOD)


def _token_state(token_record: Token, now: datetime) -> str:
    if token_record.revoked_at is not None:
        return "revoked"
    return "valid" if token_record.is_valid(now) else "expired"


def _token_json(token_record: Token, now: datetime) -> dict[str, Any]:
    return {
        "id": token_record.id,
        "name": token_record.name,
        **{right: list(token_record.grants.get(right, ())) for right in RIGHTS},
        "created_at": format_iso_time(token_record.created_at),
        "expires_at": format_iso_time(token_record.expires_at),
        "revoked_at": format_iso_time(token_record.revoked_at),
        "state": _token_state(token_record, now),
    }


def _format_grants(token_record: Token) -> str:
    return "; ".join(
        f"{right} {' '.join(token_record.grants[right])}" for right in RIGHTS if right in token_record.grants
    )


def _show_new_token(console: Console, token_text: str | None, new_token: Token) -> None:
    expiry_text = "" if new_token.expires_at is None else f", until {format_time(new_token.expires_at)}"
    summary = (
        f"The token {new_token.name} {'would grant' if token_text is None else 'grants'} "
        f"{_format_grants(new_token)}{expiry_text}."
    )
    console.print(escape_unprintable(summary))
    if token_text is not None:
        console.print("Keep this text: it is not shown again and cannot be recovered.")
        console.print(f"\n  {token_text}", soft_wrap=True)


def _show_tokens(console: Console, tokens: list[Token], now: datetime) -> None:
    rows = [
        (t.name, t.id, _format_grants(t), _token_state(t, now), format_time(t.created_at), format_time(t.expires_at))
        for t in tokens
    ]
    columns = ("name", "id", "grants", "state", "created", "expires")
    empty = "There are no tokens. nova token add NAME --read '*' creates one."
    print_table(console, columns, rows, shorten=("grants",), empty=empty)
