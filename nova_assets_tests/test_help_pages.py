"""Errors name the page of the documentation that explains them, and the page exists."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from nova_assets import errors, help_pages
from nova_assets.cli.main import cli
from nova_assets.settings import Settings

DOCS = Path(__file__).resolve().parents[1] / "docs"


def subclasses(error_class: type[errors.NovaError]) -> Iterator[type[errors.NovaError]]:
    yield error_class
    for subclass in error_class.__subclasses__():
        yield from subclasses(subclass)


CODES = {e.code for e in subclasses(errors.NovaError) if e.__module__ == errors.__name__}


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as Python-Markdown and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", sorted({help_pages.GENERAL_PAGE, *help_pages.PAGE_BY_CODE.values()}))
def test_pages_and_headings_exist(page: str) -> None:
    file, _, heading = page.partition("#")
    assert (DOCS / f"{file}.md").is_file()
    assert not heading or heading in anchors(DOCS / f"{file}.md")


def test_every_code_of_the_table_is_an_error_and_the_general_page_has_every_code() -> None:
    assert set(help_pages.PAGE_BY_CODE) <= CODES
    listed = set(re.findall(r"`(NOVA-[A-Z-]+)`", (DOCS / "reference.md").read_text().partition("\n## Errors\n")[2]))
    assert listed == CODES - {"NOVA-ERROR"}


def test_the_address_is_that_of_the_setting_or_the_project_or_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NOVA_DOCS_URL", raising=False)
    urls = Message()
    monkeypatch.setattr(metadata, "metadata", lambda name: urls)
    error = errors.FileAltered("a file has changed")
    assert error.help_url == (DOCS / "guides/repair.md").as_uri() + "#files-that-were-altered"
    monkeypatch.setattr(help_pages, "__file__", str(tmp_path / "nova_assets" / "help_pages.py"))
    assert error.help_url is None
    urls["Project-URL"] = "Documentation, https://docs.example.org/nova"
    assert error.help_url == "https://docs.example.org/nova/guides/repair/#files-that-were-altered"
    monkeypatch.setenv("NOVA_DOCS_URL", "https://wiki.example.org/")
    assert error.help_url == "https://wiki.example.org/guides/repair/#files-that-were-altered"
    assert errors.NovaError("no").help_url == "https://wiki.example.org/reference/#errors"


def test_the_command_prints_the_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOVA_DOCS_URL", "https://wiki.example.org")
    monkeypatch.setenv("NOVA_PROJECT", "nowhere")
    url = "https://wiki.example.org/reference/#settings"
    assert CliRunner().invoke(cli, ["channels"]).stderr.splitlines()[-1] == f"  Read more: {url}"
    assert json.loads(CliRunner().invoke(cli, ["channels", "--json"]).stderr)["help_url"] == url


def test_the_table_of_settings_is_that_of_the_code() -> None:
    """Each variable is one that nova reads, and each number is the default."""
    page = (DOCS / "reference.md").read_text()
    found = {m[1]: (m[2], m[3]) for m in re.finditer(r"^\| `(\w+)` \| (?:`(NOVA_\w+)`|none) \| ([^|]+) \|", page, re.M)}
    described = {f.name: f for f in dataclasses.fields(Settings) if f.name not in ("root", "sources")}
    assert found.keys() == described.keys()
    for name, (variable, default) in found.items():
        assert variable == (None if name == "notify" else f"NOVA_{name.upper()}")
        if isinstance(described[name].default, float):
            assert float(default) == described[name].default, name
