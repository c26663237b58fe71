"""What every channel must hold, in plain Python over the inserted batches, and nothing of what is tested.

Two tables and what follows from them have one right answer. The news have one for each order of commits: a page is
tagged against the templates of its day. So their executions are gone through one by one, by what each says it has read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from examples.news import templates, text
from examples.news.shingles import hash_shingles, sample_shingles, shingles
from nova_assets_tests.soak.batches import Batch, Row

_KEYS = {"customers": "customer", "orders": "order"}


@dataclass(frozen=True, slots=True)
class Read:
    """One committed execution.

    Args:
        consumed: channel -> (cursor, head) that it read; without a cursor, all up to the head.
        numbers: channel -> the number that it took there.
    """

    binding: str
    consumed: Mapping[str, tuple[int | None, int]]
    numbers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Recompute:
    """Every channel as it must be.

    Args:
        inserted: channel -> number -> the batch that took it.
        reads: committed executions, in the order in which they were committed.
    """

    inserted: Mapping[str, Mapping[int, Batch]]
    reads: Sequence[Read]

    def channels(self) -> dict[str, list[Row]]:
        """Channel -> its rows, in no order."""
        customers, orders = self._table("customers"), self._table("orders")
        placed = [
            {**order, "city": customers[order["customer"]]["city"]}
            for order in orders.values()
            if order["customer"] in customers
        ]
        return {
            "customers": list(customers.values()),
            "orders": list(orders.values()),
            "placed": placed,
            "per_city": _per_city(placed),
            **self._news(),
        }

    def _table(self, channel: str) -> dict[int, Row]:
        """A table after all its changes: in each batch first what is deleted, then what is put."""
        key, rows = _KEYS[channel], dict[int, Row]()
        for _, batch in sorted(self.inserted[channel].items()):
            if batch.kind == "base":
                rows = {}
            for row in batch.rows:
                if row.get("_deleted"):
                    rows.pop(row[key], None)
            rows |= {row[key]: _without_mark(row) for row in batch.rows if not row.get("_deleted")}
        return rows

    def _news(self) -> dict[str, list[Row]]:
        pages = self.inserted["articles"]
        known: dict[int, list[Row]] = {0: []}  # number -> templates
        tagged: list[Row] = []
        unique: dict[str, Row] = {}
        for read in self.reads:
            if read.binding == "detect":
                seen = _rows(pages, 0, read.consumed["articles"][1])
                known[read.numbers["site_templates"]] = _templates(seen)
            elif read.binding == "dedup":
                cursor, head = read.consumed["articles"]
                new = _tagged(_rows(pages, cursor or 0, head), known[read.consumed["site_templates"][1]])
                tagged += new
                unique |= _fresh(new, unique)
        return {
            "articles": _rows(pages, 0, len(pages)),
            "site_templates": known[max(known)],
            "tagged_articles": tagged,
            "unique_articles": list(unique.values()),
            "seen": [{name: row[name] for name in ("hash", "url", "crawled_at")} for row in unique.values()],
        }


def broken_chains(reads: Iterable[Read], heads: Mapping[str, int]) -> list[str]:
    """Where a binding has not read each number of a channel once: what one execution read begins where the one before
    has ended, and the last has come to the head."""
    at: dict[tuple[str, str], int] = defaultdict(int)
    found = []
    for read in reads:
        for channel, (cursor, head) in read.consumed.items():
            if cursor is None:
                continue
            if cursor != at[read.binding, channel]:
                found.append(f"{read.binding} read {channel} from {cursor}, after {at[read.binding, channel]}")
            at[read.binding, channel] = read.numbers.get(channel, head)
    return found + [
        f"{binding} has read {channel} up to {seen} of {heads[channel]}"
        for (binding, channel), seen in at.items()
        if seen != heads[channel]
    ]


def difference(expected: Iterable[Row], found: Iterable[Row]) -> str:
    """How two multisets of rows differ; empty where they are equal."""
    wanted, there = Counter(map(_shown, expected)), Counter(map(_shown, found))
    missing, further = wanted - there, there - wanted
    if not missing and not further:
        return ""
    examples = [f"missing {r[:200]}" for r in list(missing)[:2]] + [f"further {r[:200]}" for r in list(further)[:2]]
    return f"{missing.total()} rows missing, {further.total()} further: {'; '.join(examples)}"


def _shown(row: Row) -> str:
    return repr([(name, _plain(row[name])) for name in sorted(row)])


def _plain(value: Any) -> Any:
    """A moment as it is in UTC: its zone may be an object of one library or another."""
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


def _without_mark(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "_deleted"}


def _per_city(placed: Iterable[Row]) -> list[Row]:
    orders, amount = Counter[str](), Counter[str]()
    for row in placed:
        orders[row["city"]] += 1
        amount[row["city"]] += row["amount"]
    return [{"city": city, "orders": orders[city], "amount": amount[city]} for city in orders]


def _rows(batches: Mapping[int, Batch], after: int, upto: int) -> list[Row]:
    return [row for n in range(after + 1, upto + 1) for row in batches[n].rows]


def _templates(pages: Iterable[Row]) -> list[Row]:
    versions: dict[str, list[templates.Version]] = defaultdict(list)
    for page in pages:
        if page["html"] is not None:
            version = templates.Version(page["url"], page["crawled_at"], text.split_text_blocks(page["html"]))
            versions[page["site"]].append(version)
    return [
        {"site": site, **{name: getattr(one, name) for name in ("block", "pages", "share", "first_seen", "last_seen")}}
        for site, of_site in versions.items()
        for one in templates.detect_template_blocks(of_site)
    ]


def _tagged(pages: Iterable[Row], known: Iterable[Row]) -> list[Row]:
    of_site = defaultdict(set)
    for one in known:
        of_site[one["site"]].add(one["block"])

    def blocks(page: Row) -> list[dict[str, Any]] | None:
        if page["html"] is None:
            return None
        return [{"text": b, "template": b in of_site[page["site"]]} for b in text.split_text_blocks(page["html"])]

    return [{**{n: p[n] for n in ("site", "url", "crawled_at", "title")}, "blocks": blocks(p)} for p in pages]


def _fresh(tagged: Iterable[Row], known: Mapping[str, Row]) -> dict[str, Row]:
    """Hash -> the first article with it, of those that were never seen."""
    found: dict[str, Row] = {}
    for page in sorted(tagged, key=lambda page: (page["crawled_at"], page["url"])):
        if page["blocks"] is None:
            continue
        own = "\n".join(block["text"] for block in page["blocks"] if not block["template"])
        shingled = shingles(own)
        hash = hash_shingles(shingled)
        if hash not in known and hash not in found:
            found[hash] = {
                "hash": hash,
                **{name: page[name] for name in ("crawled_at", "url", "site", "title")},
                "text": own,
                "shingles": len(shingled),
                "sketch": sample_shingles(shingled),
            }
    return found
