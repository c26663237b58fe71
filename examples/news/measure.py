"""Quality of the extracted articles, compared with the true text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from examples.news.text import split_words


class TaggedBlock(NamedTuple):
    """A text block of a page, and whether it belongs to the template of the site."""

    text: str
    is_template: bool


@dataclass(frozen=True)
class WordCounts:
    """Word counts of one page, or the sum over many pages.

    Args:
        article_words: number of words of the true article.
        kept_article_words: number of these words that the extracted text contains.
        other_words: number of words of the page outside the article: navigation and footer. If the true text is only
            the body, also title, date and author.
        remaining_other_words: number of these other words that the extracted text still contains.
    """

    article_words: int = 0
    kept_article_words: int = 0
    other_words: int = 0
    remaining_other_words: int = 0

    def __add__(self, other: WordCounts) -> WordCounts:
        return WordCounts(
            self.article_words + other.article_words,
            self.kept_article_words + other.kept_article_words,
            self.other_words + other.other_words,
            self.remaining_other_words + other.remaining_other_words,
        )

    @property
    def kept_share(self) -> float:
        """Share of the article's words that was kept; 1 for an empty article."""
        return self.kept_article_words / self.article_words if self.article_words else 1.0

    @property
    def removed_share(self) -> float:
        """Share of the other words that was removed; 1 if there were none."""
        return 1 - self.remaining_other_words / self.other_words if self.other_words else 1.0


def count_words(tagged_blocks: Iterable[TaggedBlock], true_article: str) -> WordCounts:
    """Compare a page's blocks with the true article. Words are compared as a multiset, without their order."""
    page: Counter[str] = Counter()
    extracted: Counter[str] = Counter()
    for block in tagged_blocks:
        block_words = split_words(block.text)
        page.update(block_words)
        if not block.is_template:
            extracted.update(block_words)
    article = Counter(split_words(true_article))
    return WordCounts(
        article_words=article.total(),
        kept_article_words=(article & extracted).total(),
        other_words=(page - article).total(),
        remaining_other_words=(extracted - article).total(),
    )


@dataclass(frozen=True)
class PairAgreement:
    """Comparison of near-duplicate pairs with the expected pairs.

    Args:
        actual_count: number of pairs that the example reports.
        expected_count: number of expected pairs.
        common_count: number of pairs in both.
    """

    actual_count: int
    expected_count: int
    common_count: int

    @property
    def precision(self) -> float:
        return self.common_count / self.actual_count if self.actual_count else 1.0

    @property
    def recall(self) -> float:
        return self.common_count / self.expected_count if self.expected_count else 1.0


def compare_pairs(actual_pairs: Iterable[tuple[str, str]], expected_pairs: Iterable[tuple[str, str]]) -> PairAgreement:
    """Compare two sets of pairs. The order of the names within a pair does not matter."""
    ours = {tuple(sorted(pair)) for pair in actual_pairs}
    theirs = {tuple(sorted(pair)) for pair in expected_pairs}
    return PairAgreement(len(ours), len(theirs), len(ours & theirs))
