"""``nova token``: who may do what through the service."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand, remark
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import Grid, in_one_line, iso, moment
from nova_assets.errors import DefinitionError
from nova_assets.model.period import EXPECTED, seconds_of
from nova_assets.model.token import RIGHTS, Grants, Token, mint, name_taken, names_unknown
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


def _granting(right: str, what: str) -> Callable[[F], F]:
    return click.option(f"--{right}", multiple=True, metavar="PATTERN", help=f"{what}; may be given several times.")


@token.command(cls=NovaCommand)
@click.argument("name")
@_granting("read", "Channels that may be read")
@_granting("write", "Channels onto which data may be put")
@_granting("operate", "Channels that may be compacted, collected, dropped from, restored")
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
) -> Answer:
    """Make a token called NAME, and show its text. It is not shown again: of its secret, only a digest is kept.

    A PATTERN is a channel's name, or has wildcards: '*' is every channel, 'sales_*' those that begin so, also ones that
    are made later. Put it in quotes, or the shell replaces it by names of files. A name is given once and for all.

    \b
    JSON: {"dry_run", "token": TEXT or null, "id", "name", "read": [PATTERN], "write", "operate",
           "created_at", "expires_at", "revoked_at", "state", "unknown": [names that are no channel's yet]}
    """
    grants: Grants = {"read": read, "write": write, "operate": operate}
    with deployment.look() if dry_run else deployment.open(with_project=False) as store:
        now = store.catalog.now()
        text, made = mint(name, grants, now, _expiry(expires, now))
        channels = [s.channel.name for s in store.channels()]
        unknown = names_unknown(made.grants, channels)
        if dry_run:
            _refuse_taken(store, name)
        else:
            store.catalog.add_token(made)
    if unknown:
        known = f"; there are {', '.join(channels)}" if channels else ""
        remark(f"(no channel is called {', '.join(unknown)} yet{known})")
    told = _json(made, now)
    data = {"dry_run": dry_run, "token": None if dry_run else text, **told, "unknown": unknown}
    if dry_run:
        data["id"] = None
    return Answer(data, lambda console: _show_added(console, None if dry_run else text, made))


@token.command(cls=NovaCommand, name="list")
@click.pass_obj
def list_(deployment: Deployment) -> Answer:
    """Who has a token, what it allows, and until when; also those that allow nothing any more.

    \b
    JSON: {"tokens": [{"id", "name", "read": [PATTERN], "write": [PATTERN], "operate": [PATTERN],
           "created_at", "expires_at", "revoked_at", "state": "valid"|"expired"|"revoked"}]}
    """
    with deployment.look() as store:
        now, found = store.catalog.now(), store.catalog.tokens()
    return Answer({"tokens": [_json(t, now) for t in found]}, lambda console: _show(console, found, now))


@token.command(cls=NovaCommand)
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Say which token would be revoked; change nothing.")
@click.pass_obj
def revoke(deployment: Deployment, name: str, dry_run: bool) -> Answer:
    """Have the token called NAME allow nothing any more. A service that runs knows of it within five seconds.

    \b
    JSON: {"dry_run", "name", "revoked": whether it is by this, "state": "valid"|"expired"|"revoked"}
    """
    with deployment.look() if dry_run else deployment.open(with_project=False) as store:
        known = _token_named(store, name)
        revoked = not dry_run and store.catalog.revoke_token(name)
        state = _state(known if dry_run else _token_named(store, name), store.catalog.now())
    data = {"dry_run": dry_run, "name": name, "revoked": revoked, "state": state}
    return Answer(data, lambda console: console.print(_revoked(name, dry_run, revoked, known)))


def _revoked(name: str, dry_run: bool, revoked: bool, before: Token) -> str:
    if before.revoked_at is not None:
        return f"The token {name} was revoked already, at {moment(before.revoked_at)}."
    if dry_run:
        return f"The token {name} would be revoked; it gives {_granted(before)}."
    return f"The token {name} allows nothing any more." if revoked else f"The token {name} was revoked meanwhile."


def _token_named(store: Store, name: str) -> Token:
    found = store.catalog.tokens()
    known = next((t for t in found if t.name == name), None)
    if known is None:
        raise DefinitionError(
            f"there is no token {name!r}",
            expected=", ".join(t.name for t in found) or "one that was made by nova token add",
            next="nova token list",
        )
    return known


def _refuse_taken(store: Store, name: str) -> None:
    known = next((t for t in store.catalog.tokens() if t.name == name), None)
    if known is not None:
        raise name_taken(name, known, store.catalog.now())


def _expiry(period: str | None, now: datetime) -> datetime | None:
    if period is None:
        return None
    seconds = seconds_of(period)
    try:
        return now + timedelta(seconds=seconds or 0) if seconds else _no_period(period)
    except OverflowError:
        return _no_period(period)


def _no_period(period: str) -> datetime:
    raise DefinitionError("--expires is no period", found=repr(period), expected=EXPECTED)


def _state(t: Token, now: datetime) -> str:
    if t.revoked_at is not None:
        return "revoked"
    return "valid" if t.is_valid(now) else "expired"


def _json(t: Token, now: datetime) -> dict[str, Any]:
    return {
        "id": t.id,
        "name": t.name,
        **{right: list(t.grants.get(right, ())) for right in RIGHTS},
        "created_at": iso(t.created_at),
        "expires_at": iso(t.expires_at),
        "revoked_at": iso(t.revoked_at),
        "state": _state(t, now),
    }


def _granted(t: Token) -> str:
    return "; ".join(f"{right} {' '.join(t.grants[right])}" for right in RIGHTS if right in t.grants)


def _show_added(console: Console, text: str | None, made: Token) -> None:
    until = "" if made.expires_at is None else f", until {moment(made.expires_at)}"
    said = f"The token {made.name} {'would give' if text is None else 'gives'} {_granted(made)}{until}."
    console.print(in_one_line(said))
    if text is not None:
        console.print("Keep this: it is not shown again, and cannot be found out from what is kept.")
        console.print(f"\n  {text}", soft_wrap=True)


def _show(console: Console, found: list[Token], now: datetime) -> None:
    if not found:
        console.print("There is no token. nova token add NAME --read '*' makes one.")
        return
    grid = Grid("name", "id", "gives", "state", "made", "expires", shorten=("gives",))
    for t in found:
        grid.add(t.name, t.id, _granted(t), _state(t, now), moment(t.created_at), moment(t.expires_at))
    console.print(grid)
