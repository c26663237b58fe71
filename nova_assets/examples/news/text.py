"""From a page's HTML to its text blocks.

A block is a run of text that a browser would set apart: a paragraph, a list item, a heading, a table cell. Blocks are
what template detection counts and what template tagging tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lxml import etree, html

# Elements whose text nobody reads on the page.
_UNREAD = frozenset({"head", "script", "style", "noscript", "template", "svg", "iframe", "object"})

# Elements that flow inside a line of text; every other element starts a block and ends it.
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark math q rp rt ruby s samp "
    "small span strike strong sub sup time tt u var wbr".split()
)

_WORD = re.compile(r"\w+")


def blocks(page: str | None) -> list[str]:
    """The text blocks of a page, in reading order, with white space collapsed.

    Broken HTML is repaired the way browsers do. A page without text (or no page at all) has no blocks.
    """
    if not page or not page.strip():
        return []
    # As bytes: lxml refuses a str that carries an encoding declaration of its own.
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    root = etree.fromstring(page.encode("utf-8", errors="replace"), parser)
    if root is None:
        return []
    return [text for text in (" ".join(run.split()) for run in _runs(root)) if text]


def words(text: str) -> list[str]:
    """The words of a text, lower-cased and without punctuation: the unit of shingles and of every share we report."""
    return _WORD.findall(text.lower())


def _runs(root: etree._Element) -> Iterator[str]:
    """The raw text between two block boundaries, one piece after another."""
    run: list[str] = []
    unread_depth = 0
    for event, element in etree.iterwalk(root, events=("start", "end")):
        unread = element.tag in _UNREAD
        boundary = element.tag not in _INLINE
        if boundary and run:
            yield "".join(run)
            run = []
        if event == "start":
            unread_depth += unread
            text = element.text
        else:
            unread_depth -= unread
            text = element.tail
        if text and not unread_depth:
            run.append(text)
    if run:
        yield "".join(run)
