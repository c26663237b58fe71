"""Access tokens of the service. Tokens are created and revoked, but never changed or deleted."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Column, Connection, String, Table, insert, select, update
from sqlalchemy.exc import IntegrityError

from nova_assets.catalog.catalog_part import CatalogPart
from nova_assets.catalog.database.column_types import UtcMicroseconds
from nova_assets.catalog.tables import metadata
from nova_assets.errors import DefinitionConflict
from nova_assets.model.token import RIGHTS, Token, token_name_taken_error

tokens = Table(
    "nova_tokens",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(128), nullable=False, unique=True),
    # Hash of the secret part, which is never stored.
    Column("digest", String(64), nullable=False),
    Column("grants", JSON, nullable=False),
    Column("created_at", UtcMicroseconds, nullable=False),
    Column("expires_at", UtcMicroseconds),
    Column("revoked_at", UtcMicroseconds),
)


class Tokens(CatalogPart):
    """Stores access tokens with their rights."""

    def add(self, token: Token) -> None:
        """Store a token.

        Raises:
            DefinitionConflict: the name belongs to another token, valid or revoked.
        """
        row = {
            "id": token.id,
            "name": token.name,
            "digest": token.digest,
            "grants": {right: list(patterns) for right, patterns in token.grants.items()},
            "created_at": token.created_at,
            "expires_at": token.expires_at,
            "revoked_at": token.revoked_at,
        }
        try:
            self.database.write(lambda c: _insert_token(c, row))
        except _TokenNameTaken as error:
            raise self._name_taken_error(token.name) from error

    def get(self, token_id: str) -> Token | None:
        """Token with an id, valid or not; None if it does not exist."""
        query = select(tokens).where(tokens.c.id == token_id)
        row = self.database.read(lambda c: c.execute(query).mappings().one_or_none())
        return None if row is None else _token_from_row(row)

    def all(self) -> list[Token]:
        """All tokens, oldest first, including those that are no longer valid."""
        query = select(tokens).order_by(tokens.c.created_at, tokens.c.name)
        return [_token_from_row(row) for row in self.database.read(lambda c: c.execute(query).mappings().all())]

    def revoke(self, name: str) -> bool:
        """Revoke a token.

        Returns:
            Whether a token with that name existed and was not revoked yet.
        """
        is_valid_token = (tokens.c.name == name, tokens.c.revoked_at.is_(None))
        now = self.database.clock()
        return self.database.write(
            lambda c: c.execute(update(tokens).where(*is_valid_token).values(revoked_at=now)).rowcount > 0
        )

    def _name_taken_error(self, name: str) -> DefinitionConflict:
        existing = next((t for t in self.all() if t.name == name), None)
        return token_name_taken_error(name, existing, self.database.clock())


class _TokenNameTaken(Exception):
    """Another token has the same name."""


def _insert_token(c: Connection, row: dict[str, Any]) -> None:
    try:
        c.execute(insert(tokens).values(row))
    except IntegrityError as error:
        raise _TokenNameTaken from error


def _token_from_row(row: Any) -> Token:
    grants = {right: tuple(row["grants"][right]) for right in RIGHTS if row["grants"].get(right)}
    timestamps = (row["created_at"], row["expires_at"], row["revoked_at"])
    return Token(row["id"], row["name"], grants, *timestamps, digest=row["digest"])
