"""A small generated news feed: two invented sites, crawled six times, four days apart.

The feed contains typical events of real feeds: new stories, corrections, the same story on another site and at another
address, notices that differ in a few words, a redesign, and a removed page. Every call gives the same pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape

HARBOUR = "harbour-gazette.example"
HILLTOP = "hilltop-notes.example"

_FIRST_CRAWL = datetime(2024, 3, 1, 6, 0, tzinfo=UTC)
_BETWEEN_CRAWLS = timedelta(days=4)
_CRAWLS = 6
_REDESIGN = 4
"""First crawl after the redesign of the Gazette."""


@dataclass(frozen=True)
class Page:
    """One crawled version of a page. ``html`` and ``article`` are None for a removed page."""

    site: str
    url: str
    crawled_at: datetime
    title: str | None
    html: str | None
    article: str | None


@dataclass(frozen=True)
class Story:
    """Content of a page, without the template of its site."""

    title: str
    paragraphs: tuple[str, ...]


def build_crawls() -> list[list[Page]]:
    """Pages of each crawl that are new, changed or removed since the previous crawl."""
    pages_by_crawl: list[list[Page]] = []
    published_html: dict[tuple[str, str], str] = {}
    for crawl_number in range(_CRAWLS):
        online_stories = dict(_stories_online(crawl_number))
        pages_by_crawl.append(
            [
                *_changed_pages(crawl_number, online_stories, published_html),
                *_removed_pages(crawl_number, online_stories, published_html),
            ]
        )
    return pages_by_crawl


def _changed_pages(
    crawl_number: int, online_stories: dict[tuple[str, str], Story], published_html: dict[tuple[str, str], str]
) -> Iterator[Page]:
    for (site, path), story in online_stories.items():
        html = _render(site, story, crawl_number)
        if published_html.get((site, path)) != html:
            published_html[site, path] = html
            yield Page(site, _url(site, path), _crawled_at(crawl_number), story.title, html, " ".join(story.paragraphs))


def _removed_pages(
    crawl_number: int, online_stories: dict[tuple[str, str], Story], published_html: dict[tuple[str, str], str]
) -> Iterator[Page]:
    for site, path in [address for address in published_html if address not in online_stories]:
        del published_html[site, path]
        yield Page(site, _url(site, path), _crawled_at(crawl_number), None, None, None)


def _stories_online(crawl_number: int) -> Iterator[tuple[tuple[str, str], Story]]:
    """((site, path), story) of each page that exists during a crawl."""
    for crawl in range(crawl_number + 1):
        for site in (HARBOUR, HILLTOP):
            for position in range(4 if crawl == 0 else 2):
                key = f"{site}/{crawl}/{position}"
                corrected = key == f"{HARBOUR}/0/1" and crawl_number >= 2
                taken_down = key == f"{HARBOUR}/0/2" and crawl_number >= 5
                if not taken_down:
                    yield (site, f"story-{crawl}-{position}"), _story(key, corrected)
        yield (HARBOUR, f"tides-{crawl}"), _tide_notice(crawl)
    if crawl_number >= 1:  # the other site carries the story, too
        yield (HILLTOP, "from-the-harbour"), _story(f"{HARBOUR}/0/0")
    if crawl_number >= 3:  # the same site posts it again at another address
        yield (HILLTOP, "worth-reading-again"), _story(f"{HILLTOP}/1/1")


def _url(site: str, path: str) -> str:
    return f"https://{site}/{path}.html"


def _crawled_at(crawl_number: int) -> datetime:
    return _FIRST_CRAWL + crawl_number * _BETWEEN_CRAWLS


# content of the stories

_PEOPLE = (
    "the harbour master", "a baker", "the school council", "two fishermen", "the mayor", "the night ferry's crew",
    "a retired surveyor", "the library", "our bell ringers", "the allotment society",
)  # fmt: skip
_DEEDS = (
    "reopened", "measured", "painted", "argued about", "restored", "counted", "mapped", "repaired", "photographed",
    "closed",
)  # fmt: skip
_THINGS = (
    "the old lighthouse", "the north pier", "every bench on the hill", "the tram shelter", "a flooded cellar",
    "the market clock", "the footbridge", "the weather station", "a row of lime trees", "the village well",
)  # fmt: skip
_WHEN = (
    "before sunrise on Monday", "after a long evening", "in the heavy rain", "for the third time this year",
    "while the fair was on", "without any fuss", "at the end of the season", "to everybody's surprise",
)  # fmt: skip
_REMARKS = (
    "Nobody had asked for it, and nobody complained.",
    "The costs will be known in the autumn.",
    "Neighbours brought soup and stayed to help.",
    "A second look is planned for next month.",
    "The council has taken note and will answer in writing.",
    "Visitors are asked to keep to the marked path.",
    "It had been waiting since the great storm.",
    "The plans can be read at the town hall.",
)


def _pick(choices: Sequence[str], *key: object) -> str:
    """One of the choices. The same key gives the same choice on every machine and Python."""
    digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=4).digest()
    return choices[int.from_bytes(digest, "big") % len(choices)]


def _sentence(*key: object) -> str:
    who, did = _pick(_PEOPLE, "who", *key), _pick(_DEEDS, "did", *key)
    what, when = _pick(_THINGS, "what", *key), _pick(_WHEN, "when", *key)
    return f"{who[0].upper()}{who[1:]} {did} {what} {when}."


def _paragraph(*key: object) -> str:
    return " ".join([*(_sentence(*key, line) for line in range(4)), _pick(_REMARKS, "remark", *key)])


def _story(key: str, corrected: bool = False) -> Story:
    person, thing = _pick(_PEOPLE, "title", key), _pick(_THINGS, "title", key)
    paragraphs = [_paragraph(key, position) for position in range(3)]
    if corrected:
        paragraphs.append("Correction: an earlier version of this report named the wrong day.")
    return Story(f"{person[0].upper()}{person[1:]} and {thing}", tuple(paragraphs))


def _tide_notice(crawl: int) -> Story:
    """A weekly notice, with nearly the same words every time."""
    feet = 11 + crawl
    return Story(
        f"High water in week {crawl + 1}",
        (
            f"High water at the north pier will reach {feet} feet this week, according to the harbour office.",
            "Boats should be moored with slack lines, and the lower quay stays closed one hour before and after high "
            "water. Small craft without lights must not leave the inner basin after dusk.",
            "Questions are answered at the harbour office every morning between eight and ten.",
        ),
    )


# templates of the sites


def _render(site: str, story: Story, crawl_number: int) -> str:
    if site == HILLTOP:
        frame = _HILLTOP
    else:
        frame = _HARBOUR_AFTER if crawl_number >= _REDESIGN else _HARBOUR_BEFORE
    body = "\n".join(f"<p>{escape(paragraph)}</p>" for paragraph in story.paragraphs)
    return frame.replace("TITLE", escape(story.title)).replace("BODY", body)


_HARBOUR_BEFORE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>TITLE | Harbour Gazette</title><style>body { margin: 0 }</style></head>
<body>
<div class="top"><a href="/">Harbour Gazette</a><p>All the news that comes in with the tide</p></div>
<ul class="menu">
  <li><a href="/town">Town</a></li> <li><a href="/sea">Sea</a></li> <li><a href="/letters">Letters</a></li>
</ul>
<div class="story"><h1>TITLE</h1>
BODY
</div>
<div class="foot"><p>Printed and published on the quay. Advertise with us: ask at the front desk.</p></div>
<script>document.title += " *";</script>
</body></html>
"""

_HARBOUR_AFTER = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>TITLE</title></head>
<body>
<header>
  <h2>The Gazette</h2>
  <nav><a href="/town">In town</a> | <a href="/sea">At sea</a> | <a href="/letters">Write to us</a></nav>
</header>
<main><article><h1>TITLE</h1>
BODY
</article></main>
<aside><h3>Support local news</h3><p>Join four hundred readers who keep the presses running.</p></aside>
<footer>The Gazette is owned by its readers.</footer>
</body></html>
"""

_HILLTOP = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>TITLE - Hilltop Notes</title></head>
<body>
<table><tr><td>Hilltop Notes</td><td>Observations from above the fog</td></tr></table>
<h1>TITLE</h1>
BODY
<hr>
<p>Hilltop Notes appears when there is something to say.</p>
<p>Older notes | Subscribe | About</p>
</body></html>
"""
