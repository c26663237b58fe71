"""Results and progress have colours on a terminal, and none in a pipe, with NO_COLOR, or on a plain terminal."""

from __future__ import annotations

import io
import re
import sys

import pytest
from rich.text import Text

from nova_assets.cli.rendering import TableGrid, open_stdout_console, print_progress

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3|9)[0-7](?:;\d+)*m")


class Stream(io.StringIO):
    """Output stream that may be a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "environment", "has_colours", "has_escapes"),
    [
        (True, {"TERM": "xterm-256color"}, True, True),
        (True, {"TERM": "xterm-256color", "NO_COLOR": "1"}, False, True),
        (True, {"TERM": "dumb"}, False, False),
        (False, {"TERM": "xterm-256color"}, False, False),
        (False, {"TERM": "xterm-256color", "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}, False, False),
    ],
)
def test_colours(
    is_terminal: bool,
    environment: dict[str, str],
    has_colours: bool,
    has_escapes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out, err = Stream(is_terminal=is_terminal), Stream(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with open_stdout_console() as console:
        grid = TableGrid("check")
        grid.add_row(Text("failed", style="red"))
        console.print(grid)
    print_progress("reading orders")
    assert "failed" in out.getvalue() and (COLOUR.search(out.getvalue()) is not None) == has_colours
    assert ("\x1b" in out.getvalue()) == has_escapes
    assert ("reading orders …" in err.getvalue()) == is_terminal and ("\x1b" in err.getvalue()) == has_escapes
