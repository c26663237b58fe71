"""Pages of the documentation that explain errors, and where the documentation is."""

from __future__ import annotations

import os
from pathlib import Path

GENERAL_PAGE = "reference#errors"
"""Page for errors that no other page explains: the table of all codes."""

PAGE_BY_CODE = {
    "NOVA-SQL": "guides/sql",
    "NOVA-QUERY-REFUSED": "guides/sql#one-query-in-a-workflowette",
    "NOVA-INPUTS-MISSING": "guides/sql#ticks",
    "NOVA-SETTINGS": "reference#settings",
    "NOVA-SCHEMA-MISMATCH": "concepts#schemas",
    "NOVA-BAD-KEY": "concepts#merge-models",
    "NOVA-BAD-RECORD": "reference#conversions",
    "NOVA-TOO-MANY-BAD-RECORDS": "guides/arrivals#accepted-and-rejected-records",
    "NOVA-SOURCE-UNAVAILABLE": "guides/arrivals",
    "NOVA-DEFINITION-REMOVED": "guides/definitions#remove",
    "NOVA-DEFINITION-NOT-FOUND": "guides/definitions",
    "NOVA-GROUP-SEALED": "guides/arrivals#complete-days",
    "NOVA-TABLE-TAKEN": "guides/publishing",
    "NOVA-TABLE-UNAVAILABLE": "guides/publishing",
    "NOVA-PARTITION": "concepts#partitions",
    "NOVA-UNREPRESENTABLE-CHANGE": "concepts#merge-models",
    "NOVA-VERSION-NOT-FOUND": "concepts#channels-and-blocks",
    "NOVA-BLOCK-COLLECTED": "concepts#maintenance",
    "NOVA-EXECUTION-IN-PROGRESS": "concepts#one-run",
    "NOVA-EXECUTION-NOT-LIVE": "concepts#one-run",
    "NOVA-COMMIT-CONFLICT": "concepts#one-run",
    "NOVA-COMMIT-OUTCOME-UNKNOWN": "guides/catalog#when-the-catalog-does-not-answer",
    "NOVA-TASK-FAILED": "tutorial#5-when-something-fails",
    "NOVA-CHECK-FAILED": "guides/checks",
    "NOVA-CATALOG-UNAVAILABLE": "guides/catalog#when-the-catalog-does-not-answer",
    "NOVA-CATALOG-VERSION": "guides/catalog#older-versions",
    "NOVA-COPY-UNDECIDED": "guides/catalog#copies",
    "NOVA-WAREHOUSE-MISMATCH": "guides/object-stores#which-warehouse-it-is",
    "NOVA-FILE-MISSING": "guides/repair#damage-that-nova-cannot-repair",
    "NOVA-FILE-ALTERED": "guides/repair#files-that-were-altered",
    "NOVA-TIMELINE-DIFFERS": "guides/service#positions",
    "NOVA-STORAGE-FAILED": "guides/service#where-views-are-kept",
    "NOVA-SERVICE-REFUSED": "guides/service#access",
    "NOVA-SERVICE-BUSY": "guides/service#limits",
    "NOVA-BAD-TOKEN": "guides/service#access",
    "NOVA-NOT-ALLOWED": "guides/service#access",
    "NOVA-NOTIFICATION-FAILED": "guides/notifications#delivery",
    "NOVA-REQUEST-REFUSED": "guides/service#limits",
    "NOVA-REQUEST-TIMED-OUT": "guides/service#limits",
}
"""Error code -> page below ``docs/`` without its suffix, and the heading on that page."""


def help_url(code: str) -> str | None:
    """Address of the page that explains an error; None if it is not known where the documentation is."""
    page, _, heading = PAGE_BY_CODE.get(code, GENERAL_PAGE).partition("#")
    anchor = f"#{heading}" if heading else ""
    site = os.environ.get("NOVA_DOCS_URL") or _documentation_url()
    if site:
        return f"{site.rstrip('/')}/{page}/{anchor}"
    file = Path(__file__).parents[1] / "docs" / f"{page}.md"  # exists in a checkout, and not in an installed package
    return file.as_uri() + anchor if file.is_file() else None


def _documentation_url() -> str | None:
    """Address under ``Documentation`` in ``[project.urls]`` of pyproject.toml; None if there is none."""
    from importlib import metadata

    try:
        entries = metadata.metadata("nova-assets").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return None
    urls = dict(entry.split(", ", 1) for entry in entries if ", " in entry)
    return urls.get("Documentation")
