"""The news example's algorithms, without Spark: blocks, templates, shingles, the feed, and reading crawls."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.news import feed
from examples.news.measure import TaggedBlock, WordCounts, compare_pairs, count_words
from examples.news.shingles import find_similar_pairs, hash_shingles, resemblance, sample_shingles, shingles
from examples.news.sources import load_bundled_feed, read_folder
from examples.news.templates import TemplateBlock, Version, detect_template_blocks
from examples.news.text import split_text_blocks, split_words
from nova_assets.errors import BadRecord, EmptyInput, SchemaMismatch

MONDAY = datetime(2024, 3, 4, tzinfo=UTC)
TUESDAY = MONDAY + timedelta(days=1)


# --- blocks ---


def test_a_block_is_what_a_browser_sets_apart() -> None:
    page = "<body><h1>Tide <em>and</em> time</h1>loose words<p>One\n  paragraph,<br>two lines</p><ul><li>a<li>b</ul>"
    assert split_text_blocks(page) == ["Tide and time", "loose words", "One paragraph,", "two lines", "a", "b"]


def test_what_nobody_reads_is_no_block() -> None:
    page = "<head><title>T</title></head><body><script>x()</script><style>p {}</style><!-- c --><p>read</p> tail</body>"
    assert split_text_blocks(page) == ["read", "tail"]


@pytest.mark.parametrize("page", [None, "", "  \n", "<!-- nothing -->", "<html></html>"])
def test_a_page_without_text_has_no_blocks(page: str | None) -> None:
    assert split_text_blocks(page) == []


def test_broken_and_foreign_pages_are_read_all_the_same() -> None:
    assert split_text_blocks("<p>never closed<p>caf&eacute; &amp; 寿司 <b>bold") == ["never closed", "café & 寿司 bold"]
    assert split_text_blocks('<?xml version="1.0" encoding="latin-1"?><p>zoë</p>') == ["zoë"]
    assert split_text_blocks("no tags at all") == ["no tags at all"]


def test_words_leave_case_and_punctuation_out() -> None:
    assert split_words("Don't PANIC: ça va?") == ["don", "t", "panic", "ça", "va"]


# --- templates ---


def pages(*each: list[str], at: datetime = MONDAY, first: int = 0) -> list[Version]:
    return [Version(f"page-{first + number}", at, found) for number, found in enumerate(each)]


def found(versions: list[Version]) -> list[str]:
    return [template.block for template in detect_template_blocks(versions)]


def test_what_nearly_all_pages_carry_is_template() -> None:
    assert found(pages(["menu", "one"], ["menu", "two"], ["menu", "three"])) == ["menu"]


def test_a_phrase_that_many_articles_share_is_not() -> None:
    assert found(pages(["menu", "stock", "1"], ["menu", "stock", "2"], ["menu", "stock", "3"], ["menu", "4"])) == [
        "menu"
    ]


def test_two_pages_are_too_few_to_tell() -> None:
    assert found(pages(["menu", "same story"], ["menu", "same story"])) == []


def test_a_page_counts_once_however_many_versions_carry_the_block() -> None:
    versions = [Version("page", MONDAY + timedelta(days=day), ["its own text", f"{day}"]) for day in range(9)]
    assert found(versions + pages(["other"], first=10)) == []


def test_the_template_before_a_redesign_is_still_known() -> None:
    before = pages(["old menu", "1"], ["old menu", "2"], ["old menu", "3"])
    after = pages(
        ["new menu", "1"],
        ["new menu", "2"],
        ["new menu", "3"],
        *([["new menu", str(n)] for n in range(30)]),
        at=TUESDAY,
    )
    assert found(before + after) == ["new menu", "old menu"]


def test_sites_small_and_empty_have_no_template() -> None:
    assert detect_template_blocks([]) == []
    assert found(pages(["alone", "alone"])) == []


def test_what_speaks_for_a_template_block_is_told() -> None:
    first, second = pages(["menu"], ["menu"], ["menu"]), pages(["menu"], ["menu"], ["else"], at=TUESDAY, first=3)
    assert detect_template_blocks(first + second) == [TemplateBlock("menu", 5, 5 / 6, MONDAY, TUESDAY)]


# --- shingles ---

STORY = "The old lighthouse was painted white before sunrise on Monday"


def test_equal_shingles_give_equal_hashes_and_any_other_word_does_not() -> None:
    same = "the old lighthouse, was PAINTED white\nbefore sunrise on Monday."
    assert hash_shingles(shingles(STORY)) == hash_shingles(shingles(same))
    assert hash_shingles(shingles(STORY)) != hash_shingles(shingles(STORY.replace("white", "red")))


def test_hashes_are_the_same_on_every_machine() -> None:
    assert hash_shingles(shingles(STORY)) == "8d9c54877a09b6bf057ea655507882b2"
    assert hash_shingles(frozenset()) == "cae66941d9efbd404e4d88758ea67670"


def test_short_texts_are_one_shingle_and_empty_ones_none() -> None:
    assert len(shingles("two words")) == 1
    assert shingles("two words") != shingles("two other words")
    assert shingles(" ... ") == frozenset()
    assert len(shingles("a b c d e")) == 2


def test_resemblance_is_exact_for_short_articles() -> None:
    one, other = shingles("a b c d e f"), shingles("a b c d e g")  # abcd bcde cdef | abcd bcde cdeg
    assert resemblance(sample_shingles(one), sample_shingles(other)) == 0.5
    assert resemblance(sample_shingles(one), sample_shingles(one)) == 1.0
    assert resemblance([], []) == 0.0


def test_resemblance_of_long_articles_is_within_its_error() -> None:
    left = shingles(" ".join(f"w{n}" for n in range(3000)))
    right = shingles(" ".join(f"w{n}" for n in range(1000, 4000)))
    exact = len(left & right) / len(left | right)
    assert resemblance(sample_shingles(left), sample_shingles(right)) == pytest.approx(exact, abs=3 * 0.03)


def test_near_pairs_are_those_above_the_limit() -> None:
    texts = {"b": "a b c d e f", "a": "a b c d e g", "c": "something else altogether here", "d": ""}
    sketches = {name: sample_shingles(shingles(text)) for name, text in texts.items()}
    assert find_similar_pairs(sketches, 0.2) == {("a", "b"): 0.5}
    assert find_similar_pairs(sketches, 0.6) == {}


# --- measuring ---


def test_shares_count_words_kept_and_words_left() -> None:
    tagged = [
        TaggedBlock("Menu Sea", True),
        TaggedBlock("A title", False),
        TaggedBlock("the true story", False),
        TaggedBlock("wrongly tagged", True),
    ]
    one = count_words(tagged, "the true story wrongly tagged")
    assert (one.article_words, one.kept_article_words, one.other_words, one.remaining_other_words) == (5, 3, 4, 2)
    assert one.kept_share == 0.6
    assert one.removed_share == 0.5
    assert (one + one).kept_share == 0.6
    assert (WordCounts().kept_share, WordCounts().removed_share) == (1.0, 1.0)


def test_pairs_compare_whatever_their_order() -> None:
    both = compare_pairs([("a", "b"), ("c", "d")], [("b", "a"), ("e", "f")])
    assert (both.actual_count, both.expected_count, both.common_count, both.precision, both.recall) == (
        2,
        2,
        1,
        0.5,
        0.5,
    )


# --- the feed ---


def test_the_feed_is_the_same_every_time() -> None:
    assert feed.build_crawls() == feed.build_crawls()
    assert [len(crawl) for crawl in feed.build_crawls()] == [9, 6, 6, 6, 19, 6]


def test_the_feed_has_what_real_feeds_have() -> None:
    crawls = feed.build_crawls()
    versions = [page for crawl in crawls for page in crawl]
    gone = [page for page in versions if page.html is None]
    assert [page.url for page in gone] == [f"https://{feed.HARBOUR}/story-0-2.html"]
    by_article: dict[str | None, set[str]] = {}
    for page in versions:
        by_article.setdefault(page.article, set()).add(page.site)
    assert {feed.HARBOUR, feed.HILLTOP} in by_article.values(), "a story on both sites"
    assert any("Correction:" in (page.article or "") for page in crawls[2]), "a story that is changed"
    redesigned = {page.url for page in crawls[4]}
    assert {page.url for crawl in crawls[:4] for page in crawl if page.site == feed.HARBOUR} <= redesigned


def test_the_feed_comes_apart_into_template_and_article() -> None:
    versions = [page for crawl in feed.build_crawls() for page in crawl if page.html is not None]
    total, hashes = WordCounts(), set()
    for site in (feed.HARBOUR, feed.HILLTOP):
        here = [page for page in versions if page.site == site]
        template = {
            t.block
            for t in detect_template_blocks(Version(p.url, p.crawled_at, split_text_blocks(p.html)) for p in here)
        }
        for page in here:
            tagged = [TaggedBlock(block, block in template) for block in split_text_blocks(page.html)]
            total += count_words(tagged, page.article or "")
            hashes.add(hash_shingles(shingles(" ".join(block for block, is_template in tagged if not is_template))))
    assert total.kept_share == 1.0
    assert total.remaining_other_words == sum(len(split_words(page.title or "")) for page in versions), (
        "of the rest, only titles are left"
    )
    assert len(hashes) == len({page.article for page in versions})


# --- reading crawls ---

CRAWL = pa.table(
    {
        "url": ["https://a.example/1", "https://a.example/2"],
        "site": ["a.example"] * 2,
        "crawled_at": ["2024-03-01T23:30:00-07:00", "2024-03-02T08:00:00+02:00"],
        "title": ["One", None],
        "html": ["<p>one</p>", None],
        "crawl_seq": [0, 0],
    }
)


def write(folder: Path, name: str, table: pa.Table) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name)


def test_times_with_offsets_become_one_order(tmp_path: Path) -> None:
    write(tmp_path, "one.parquet", CRAWL)
    crawl = read_folder(tmp_path).crawls[0]
    assert crawl.articles["crawled_at"].to_pylist() == [
        datetime(2024, 3, 2, 6, 30, tzinfo=UTC),
        datetime(2024, 3, 2, 6, 0, tzinfo=UTC),
    ]
    assert crawl.started_at == datetime(2024, 3, 2, 6, 0, tzinfo=UTC)
    assert crawl.articles.column_names == ["site", "url", "crawled_at", "title", "html"]


def test_crawls_are_read_in_order_of_name_with_their_truth(tmp_path: Path) -> None:
    write(tmp_path / "crawls", "b.parquet", CRAWL.set_column(5, "crawl_seq", pa.array([1, 1])))
    write(tmp_path / "crawls", "a.parquet", CRAWL)
    truth = pa.table({"url": ["https://a.example/1"], "crawl_seq": [1], "article_text": ["one"]})
    write(tmp_path / "truth", "article_text.parquet", truth)
    (tmp_path / "truth" / "near_dup_pairs_last_crawl.csv").write_text("url_a,url_b,jaccard\nx,y,0.5\n")
    source = read_folder(tmp_path)
    assert [crawl.name for crawl in source.crawls] == ["a", "b"]
    assert source.expected is not None
    assert list(source.expected.article_by_version.values()) == ["one"]
    assert source.expected.near_pairs == {("x", "y")}
    assert read_folder(tmp_path / "crawls").expected is None


def test_a_folder_without_crawls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmptyInput, match="holds no crawls"):
        read_folder(tmp_path)
    with pytest.raises(EmptyInput, match="no such folder"):
        read_folder(tmp_path / "nowhere")


def test_bad_crawls_are_refused_by_file_and_row(tmp_path: Path) -> None:
    def refused(table: pa.Table, error: type[Exception], match: str) -> None:
        write(tmp_path, "one.parquet", table)
        with pytest.raises(error, match=match):
            read_folder(tmp_path)

    refused(CRAWL.drop_columns(["html"]), SchemaMismatch, r"one\.parquet is no crawl: it lacks html")
    refused(
        CRAWL.set_column(2, "crawled_at", pa.array(["2024-03-01", "soon"])),
        BadRecord,
        r"row 1 has no readable[^$]*'soon'",
    )
    refused(CRAWL.set_column(0, "url", pa.array([None, "x"], pa.string())), BadRecord, "row 0 has no url")
    refused(CRAWL.set_column(4, "html", pa.array([{"a": 1}, {"a": 2}])), SchemaMismatch, "other types")
    (tmp_path / "one.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(BadRecord, match="cannot be read as Parquet"):
        read_folder(tmp_path)


def test_the_own_feed_is_a_source_with_truth() -> None:
    source = load_bundled_feed()
    assert sum(crawl.articles.num_rows for crawl in source.crawls) == 52
    assert source.expected is not None
    assert len(source.expected.article_by_version) == 51
    assert source.expected.near_pairs
    assert replace(source, expected=None).expected is None
