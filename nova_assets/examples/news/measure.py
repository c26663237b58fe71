"""How good the extracted articles are, where somebody knows the true text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from nova_assets.examples.news.text import words


@dataclass(frozen=True)
class Shares:
    """Word counts of one page or of many (they add up).

    Args:
        article: words of the true article.
        kept: those of them that the extracted text has, too.
        rest: words of the page that are not the article's: navigation, footer, but also title, date and author
            where the true text is the body alone.
        left: those of them that the extracted text still has.
    """

    article: int = 0
    kept: int = 0
    rest: int = 0
    left: int = 0

    def __add__(self, other: Shares) -> Shares:
        return Shares(
            self.article + other.article, self.kept + other.kept, self.rest + other.rest, self.left + other.left
        )

    @property
    def kept_share(self) -> float:
        """The share of the article's words that was kept; 1 where there is no article."""
        return self.kept / self.article if self.article else 1.0

    @property
    def removed_share(self) -> float:
        """The share of the other words that was removed; 1 where there were none."""
        return 1 - self.left / self.rest if self.rest else 1.0


def shares(tagged: Iterable[tuple[str, bool]], truth: str) -> Shares:
    """Compare a page's blocks, each with whether it was tagged as template, with the true article.

    Words are compared as bags: what counts is how often each occurs, not where.
    """
    page: Counter[str] = Counter()
    extracted: Counter[str] = Counter()
    for text, template in tagged:
        found = words(text)
        page.update(found)
        if not template:
            extracted.update(found)
    article = Counter(words(truth))
    return Shares(
        article=article.total(),
        kept=(article & extracted).total(),
        rest=(page - article).total(),
        left=(extracted - article).total(),
    )


@dataclass(frozen=True)
class PairsFound:
    """Near-duplicate pairs found, beside those that somebody else found.

    Args:
        found: how many we report.
        expected: how many the truth reports.
        both: how many are in both.
    """

    found: int
    expected: int
    both: int

    @property
    def precision(self) -> float:
        return self.both / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        return self.both / self.expected if self.expected else 1.0


def compare_pairs(found: Iterable[tuple[str, str]], expected: Iterable[tuple[str, str]]) -> PairsFound:
    """Compare two sets of pairs; the order of names within a pair does not matter."""
    ours = {tuple(sorted(pair)) for pair in found}
    theirs = {tuple(sorted(pair)) for pair in expected}
    return PairsFound(len(ours), len(theirs), len(ours & theirs))
