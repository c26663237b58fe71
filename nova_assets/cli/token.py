"""``nova token``: add, list and revoke the tokens that grant rights on the service."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand, print_to_stderr
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import TableGrid, escape_unprintable, format_iso_time, format_time
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

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def token() -> None:
    """Who may do what through the service: nova token add NAME, list, revoke NAME.

    A token gives rights on channels, by their names or by patterns. None of the rights implies another: who may write a
    channel may not therefore read it.

    Each takes --json; add and revoke take --dry-run. See nova token add --help.

    \b
    JSON: {"id", "name", "read": [PATTERN], "write": [PATTERN], "operate": [PATTERN],
           "created_at", "expires_at", "revoked_at", "state": "valid"|"expired"|"revoked"}
    """


def _right_option(right: str, help_text: str) -> Callable[[F], F]:
    return click.option(
        f"--{right}", multiple=True, metavar="PATTERN", help=f"{help_text}; may be given several times."
    )


@token.command(cls=NovaCommand)
@click.argument("name")
@_right_option("read", "Channels that may be read")
@_right_option("write", "Channels onto which data may be put")
@_right_option("operate", "Channels that may be compacted, collected, dropped from, restored")
@click.option("--expires", metavar="PERIOD", help='From when on it allows nothing, such as "90d"; otherwise never.')
@click.option("--dry-run", is_flag=True, help="Say what the token would allow; make none.")
@click.pass_obj
def add(
    deployment: Deployment,
    name: str,
    read: tuple[str, ...],
    write: tuple[str, ...],
    operate: tuple[str, ...],
    expires: str | None,
    dry_run: bool,
) -> CommandResult:
    """Make a token called NAME, and show its text. It is not shown again: of its secret, only a digest is kept.

    A PATTERN is a channel's name, or has wildcards: '*' is every channel, 'sales_*' those that begin so, also ones that
    are made later. Put it in quotes, or the shell replaces it by names of files. A name is given once and for all.

    \b
    JSON: {"dry_run", "token": TEXT or null, "id", "name", "read": [PATTERN], "write", "operate",
           "created_at", "expires_at", "revoked_at", "state", "unknown": [names that are no channel's yet]}
    """
    grants: Grants = {"read": read, "write": write, "operate": operate}
    with deployment.open_read_only() if dry_run else deployment.open(with_project=False) as store:
        now = store.catalog.now()
        token_text, new_token = mint_token(name, grants, now, _expiry_time(expires, now))
        channels = [s.channel.name for s in store.channels()]
        unknown = unknown_channels_in_grants(new_token.grants, channels)
        if dry_run:
            _check_name_is_free(store, name)
        else:
            store.catalog.add_token(new_token)
    if unknown:
        known = f"; there are {', '.join(channels)}" if channels else ""
        print_to_stderr(f"(no channel is called {', '.join(unknown)} yet{known})")
    token_fields = _token_json(new_token, now)
    data = {"dry_run": dry_run, "token": None if dry_run else token_text, **token_fields, "unknown": unknown}
    if dry_run:
        data["id"] = None
    return CommandResult(data, lambda console: _show_new_token(console, None if dry_run else token_text, new_token))


@token.command(cls=NovaCommand, name="list")
@click.pass_obj
def list_(deployment: Deployment) -> CommandResult:
    """Who has a token, what it allows, and until when; also those that allow nothing any more.

    \b
    JSON: {"tokens": [{"id", "name", "read": [PATTERN], "write": [PATTERN], "operate": [PATTERN],
           "created_at", "expires_at", "revoked_at", "state": "valid"|"expired"|"revoked"}]}
    """
    with deployment.open_read_only() as store:
        now, found = store.catalog.now(), store.catalog.tokens()
    return CommandResult(
        {"tokens": [_token_json(t, now) for t in found]}, lambda console: _show_tokens(console, found, now)
    )


@token.command(cls=NovaCommand)
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Say which token would be revoked; change nothing.")
@click.pass_obj
def revoke(deployment: Deployment, name: str, dry_run: bool) -> CommandResult:
    """Have the token called NAME allow nothing any more. A service that runs knows of it within five seconds.

    \b
    JSON: {"dry_run", "name", "revoked": whether it is by this, "state": "valid"|"expired"|"revoked"}
    """
    with deployment.open_read_only() if dry_run else deployment.open(with_project=False) as store:
        token_before = _get_token(store, name)
        revoked = not dry_run and store.catalog.revoke_token(name)
        state = _token_state(token_before if dry_run else _get_token(store, name), store.catalog.now())
    data = {"dry_run": dry_run, "name": name, "revoked": revoked, "state": state}
    return CommandResult(data, lambda console: console.print(_format_revocation(name, dry_run, revoked, token_before)))


def _format_revocation(name: str, dry_run: bool, revoked: bool, token_before: Token) -> str:
    if token_before.revoked_at is not None:
        return f"The token {name} was revoked already, at {format_time(token_before.revoked_at)}."
    if dry_run:
        return f"The token {name} would be revoked; it gives {_format_grants(token_before)}."
    return f"The token {name} allows nothing any more." if revoked else f"The token {name} was revoked meanwhile."


def _get_token(store: Store, name: str) -> Token:
    all_tokens = store.catalog.tokens()
    matching_token = next((t for t in all_tokens if t.name == name), None)
    if matching_token is None:
        raise DefinitionError(
            f"there is no token {name!r}",
            expected=", ".join(t.name for t in all_tokens) or "one that was made by nova token add",
            next="nova token list",
        )
    return matching_token


def _check_name_is_free(store: Store, name: str) -> None:
    existing_token = next((t for t in store.catalog.tokens() if t.name == name), None)
    if existing_token is not None:
        raise token_name_taken_error(name, existing_token, store.catalog.now())


def _expiry_time(period: str | None, now: datetime) -> datetime | None:
    if period is None:
        return None
    seconds = period_seconds(period)
    try:
        return now + timedelta(seconds=seconds or 0) if seconds else _raise_invalid_period(period)
    except OverflowError:
        return _raise_invalid_period(period)


def _raise_invalid_period(period: str) -> datetime:
    raise DefinitionError("--expires is no period", found=repr(period), expected=EXPECTED_PERIOD)


def _token_state(t: Token, now: datetime) -> str:
    if t.revoked_at is not None:
        return "revoked"
    return "valid" if t.is_valid(now) else "expired"


def _token_json(t: Token, now: datetime) -> dict[str, Any]:
    return {
        "id": t.id,
        "name": t.name,
        **{right: list(t.grants.get(right, ())) for right in RIGHTS},
        "created_at": format_iso_time(t.created_at),
        "expires_at": format_iso_time(t.expires_at),
        "revoked_at": format_iso_time(t.revoked_at),
        "state": _token_state(t, now),
    }


def _format_grants(t: Token) -> str:
    return "; ".join(f"{right} {' '.join(t.grants[right])}" for right in RIGHTS if right in t.grants)


def _show_new_token(console: Console, token_text: str | None, new_token: Token) -> None:
    until = "" if new_token.expires_at is None else f", until {format_time(new_token.expires_at)}"
    summary = (
        f"The token {new_token.name} {'would give' if token_text is None else 'gives'} "
        f"{_format_grants(new_token)}{until}."
    )
    console.print(escape_unprintable(summary))
    if token_text is not None:
        console.print("Keep this: it is not shown again, and cannot be found out from what is kept.")
        console.print(f"\n  {token_text}", soft_wrap=True)


def _show_tokens(console: Console, tokens: list[Token], now: datetime) -> None:
    if not tokens:
        console.print("There is no token. nova token add NAME --read '*' makes one.")
        return
    grid = TableGrid("name", "id", "gives", "state", "made", "expires", shorten=("gives",))
    for t in tokens:
        grid.add(
            t.name, t.id, _format_grants(t), _token_state(t, now), format_time(t.created_at), format_time(t.expires_at)
        )
    console.print(grid)
