"""What is inserted: the batches of each channel, from a seed, as lists of rows.

The pages are of invented sites whose frames change now and then; a story may be told again elsewhere, and a page may be
gone. The customers and orders are changes of two tables: rows put and rows deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from typing import Any, Literal

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """One block for a channel; on a keyed one, rows with ``_deleted``."""

    rows: Sequence[Row]
    kind: Literal["base", "delta"] = "delta"


_FIRST_CRAWL = datetime(2024, 3, 1, 6, 0, tzinfo=UTC)
_SITES = ("gazette.example", "hilltop.example", "quay.example")
_REDESIGN = 7
"""Batches after which a site looks different."""

_WORDS = (
    "harbour lighthouse council ferry baker tide pier market library surveyor bench tram cellar clock bridge weather "
    "station garden well fair storm repairs meeting letter autumn morning lantern rope sail village"
).split()
_CITIES = ("Aarhus", "Bergen", "Cork", "Delft", "Espoo")
_CUSTOMERS = 40


def batches(seed: int, channel: str, count: int) -> list[Batch]:
    """The first batches of a channel."""
    makers: Mapping[str, Callable[[Random], Iterator[Batch]]] = {
        "articles": _articles,
        "customers": _customers,
        "orders": _orders,
    }
    return list(islice(makers[channel](Random(f"{seed}/{channel}")), count))


def _articles(chance: Random) -> Iterator[Batch]:
    """Crawls: at each, some pages are new, some are known ones in another version, some are gone."""
    told: list[str] = []
    pages: dict[str, str] = {}
    crawl = 0
    while True:
        batch: dict[str, Row] = {}
        for n in range(chance.randint(3, 8)):
            site = chance.choice(_SITES)
            url = chance.choice(sorted(pages)) if pages and chance.random() < 0.2 else f"https://{site}/{crawl}-{n}"
            site = pages.setdefault(url, site)
            title, html = None, None
            if chance.random() > 0.1:
                story = chance.choice(told) if told and chance.random() < 0.3 else _story(chance)
                told.append(story)
                title, html = story.split(".")[0], _page(site, crawl // _REDESIGN, story)
            at = _FIRST_CRAWL + timedelta(hours=crawl)
            batch[url] = {"site": site, "url": url, "crawled_at": at, "title": title, "html": html}
        yield Batch(list(batch.values()))
        crawl += 1


def _story(chance: Random) -> str:
    return " ".join(f"{' '.join(chance.choices(_WORDS, k=6)).capitalize()}." for _ in range(chance.randint(2, 5)))


def _page(site: str, design: int, story: str) -> str:
    text = "".join(f"<p>{line}.</p>" for line in story.split(". "))
    return (
        f"<html><body><div>{site}, design {design}</div><ul><li>Town</li><li>Sea</li></ul>"
        f"{text}<footer>Owned by the readers of {site}</footer></body></html>"
    )


def _customers(chance: Random) -> Iterator[Batch]:
    """Customers come, move to another city, and go; one may go and come again in one batch. Now and then the whole
    table comes anew."""
    known: dict[int, str] = {}
    while True:
        if known and chance.random() < 0.1:
            known = {id: chance.choice([city, *_CITIES]) for id, city in known.items() if chance.random() < 0.9}
            yield Batch([{"customer": id, "city": city} for id, city in known.items()], "base")
            continue
        rows: list[Row] = []
        for id in chance.sample(range(_CUSTOMERS), chance.randint(4, 10)):
            gone = known.pop(id, None) if chance.random() < 0.3 else None
            if gone is not None:
                rows.append({"customer": id, "city": None, "_deleted": True})
            if gone is None or chance.random() < 0.3:
                known[id] = chance.choice(_CITIES)
                rows.append({"customer": id, "city": known[id], "_deleted": False})
        yield Batch(rows)


def _orders(chance: Random) -> Iterator[Batch]:
    """Orders are placed, changed and cancelled. One whose customer is not there waits in vain."""
    known: list[int] = []
    placed = 0
    while True:
        rows: list[Row] = []
        for order in chance.sample(known, min(len(known), chance.randint(0, 4))):
            if chance.random() < 0.5:
                rows.append({"order": order, "customer": None, "amount": None, "_deleted": True})
                known.remove(order)
            else:
                rows.append(_order(chance, order))
        for _ in range(chance.randint(2, 6)):
            rows.append(_order(chance, placed))
            known.append(placed)
            placed += 1
        yield Batch(rows)


def _order(chance: Random, order: int) -> Row:
    customer, amount = chance.randrange(_CUSTOMERS), chance.randint(1, 500)
    return {"order": order, "customer": customer, "amount": amount, "_deleted": False}
