"""The database backend for the URL of a catalog."""

from __future__ import annotations

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from nova_assets.catalog.database.backend import DatabaseBackend
from nova_assets.catalog.database.postgres import PostgresBackend
from nova_assets.catalog.database.sqlite import SqliteBackend
from nova_assets.errors import CatalogUnavailable


def open_backend(url: str, masked_url: str, statement_timeout: float) -> DatabaseBackend:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return SqliteBackend(parsed)
        if parsed.get_backend_name() == "postgresql":
            return PostgresBackend(parsed, masked_url, statement_timeout)
    except (ArgumentError, NoSuchModuleError) as error:
        raise CatalogUnavailable(
            f"the catalog's URL cannot be read: {masked_url}", found=str(error).split("\n")[0], expected=_EXPECTED_URLS
        ) from error
    except ValueError:  # invalid port; its text may be part of a password
        raise CatalogUnavailable(
            f"the catalog's URL cannot be read: {masked_url}",
            found="a port that is not a number",
            expected=_EXPECTED_URLS,
        ) from None
    except ModuleNotFoundError as error:
        raise CatalogUnavailable(
            "the driver for PostgreSQL is not installed", found=str(error), next="pip install 'nova-assets[postgres]'"
        ) from error
    raise CatalogUnavailable(
        f"the catalog's URL names an unknown kind of database: {masked_url}", expected=_EXPECTED_URLS
    )


_EXPECTED_URLS = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"
