"""Text blocks of an HTML page.

A block is a piece of text that a browser shows separately: a paragraph, a list item, a heading, a table cell. Template
detection counts blocks, and template tagging tags blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lxml import etree, html

# Elements whose text is not visible on the page.
_INVISIBLE = frozenset({"head", "script", "style", "noscript", "template", "svg", "iframe", "object"})

# Elements inside a line of text. Every other element starts and ends a block.
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark math q rp rt ruby s samp "
    "small span strike strong sub sup time tt u var wbr".split()
)

_WORD = re.compile(r"\w+")


def split_text_blocks(page: str | None) -> list[str]:
    """Text blocks of a page, in reading order, with collapsed white space.

    Broken HTML is repaired as in browsers. A page without text, or None, has no blocks.
    """
    if not page or not page.strip():
        return []
    # As bytes: lxml refuses a str that carries an encoding declaration of its own.
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    root = etree.fromstring(page.encode("utf-8", errors="replace"), parser)
    if root is None:
        return []
    return [text for text in (" ".join(run.split()) for run in _text_runs(root)) if text]


def split_words(text: str) -> list[str]:
    """Words of a text, in lower case and without punctuation. Shingles and all shares count these words."""
    return _WORD.findall(text.lower())


def _text_runs(root: etree._Element) -> Iterator[str]:
    """Raw texts between block boundaries, in order."""
    run: list[str] = []
    invisible_depth = 0
    for event, element in etree.iterwalk(root, events=("start", "end")):
        invisible = element.tag in _INVISIBLE
        boundary = element.tag not in _INLINE
        if boundary and run:
            yield "".join(run)
            run = []
        if event == "start":
            invisible_depth += invisible
            text = element.text
        else:
            invisible_depth -= invisible
            text = element.tail
        if text and not invisible_depth:
            run.append(text)
    if run:
        yield "".join(run)
