"""``nova timeline``: draw the timeline of a channel and list its instants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.cursors import _cursor_json
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import TableGrid, block_json, escape_unprintable, format_iso_time
from nova_assets.model.binding import Binding
from nova_assets.model.partitions import is_in_scope
from nova_assets.model.timeline import Instant
from nova_assets.plan.timeline_chart import ConsumerLane, TimelineChart, build_chart, cursors_of_unrun_bindings
from nova_assets.store.channel_registry import timeline_table

_COLUMN_WIDTHS = (4, 2)
"""Possible widths of a sequence number's column. The chart uses the widest at which all numbers fit."""

_MIN_NUMBERS = 10
"""Minimum number of sequence numbers in a chart, even if long names leave no room for them."""

_MAX_CHAINED_ROWS = 4
"""Maximum number of lines for overlapping chained deltas."""

_LEGEND = {
    "■": "■ base",
    "□": "□ compacted base",
    "×": "× partition dropped",
    "─": "─▶ delta",
    "═": "═▶ chained deltas",
    "·": "· collected",
    "●": "● read up to here",
    "╍": "╍ in some partitions",
    "┄": "┄ unread",
}

_NO_CONSUMER_TEXT = "no consumer has a cursor on it"


class _LabelledRow(NamedTuple):
    """Line of the chart: the label at its left, the drawing, and a remark at its right."""

    label: str
    drawing: str
    remark: str = ""


def render_chart_lines(full_chart: TimelineChart, width: int, max_name_length: int | None = None) -> list[str]:
    """Lines of the chart: one for the bases, one for the deltas, and one for each consumer. No terminal library draws
    blocks over sequence numbers (decision 0044).

    Args:
        full_chart: chart with all sequence numbers. If it does not fit, only the newest numbers are drawn.
        width: preferred maximum width of a line in characters.
        max_name_length: maximum length of a consumer's name; None for no limit.
    """
    labels = {lane: _shorten_text(escape_unprintable(lane.consumer), max_name_length) for lane in full_chart.lanes}
    margin = max(len("chained"), *map(len, labels.values()), 0) + 2
    available_width = width - margin - max((len(lane.label) for lane in full_chart.lanes), default=0) - 3
    column_width = next((c for c in _COLUMN_WIDTHS if full_chart.numbers * c <= available_width), _COLUMN_WIDTHS[-1])
    visible_chart = full_chart
    if full_chart.numbers * column_width > available_width:
        extra_margin = max(0, len(f"… 1–{full_chart.head}") + 2 - margin)
        margin, visible_chart = (
            margin + extra_margin,
            full_chart.newest_only(max((available_width - extra_margin) // column_width, _MIN_NUMBERS)),
        )
    rows = [
        _LabelledRow(visible_chart.left_out_label, _draw_axis(visible_chart, column_width)),
        *_draw_block_rows(visible_chart, column_width),
    ]
    rows += [
        _LabelledRow(labels[lane], _draw_consumer_row(lane, visible_chart, column_width), lane.label)
        for lane in full_chart.lanes
    ]
    row_width = visible_chart.numbers * column_width + 1
    lines = [f"{label:<{margin}}{row:<{row_width}}  {remark}".rstrip() for label, row, remark in rows]
    return [_format_title(visible_chart), "", *lines, "", *_legend_lines(rows, visible_chart, width)]


def _format_title(chart: TimelineChart) -> str:
    scope_text = f" {escape_unprintable(chart.scope)}" if chart.scope else ""
    return f"{chart.channel}{scope_text}: head {chart.head}"


def _legend_lines(labelled_rows: Sequence[_LabelledRow], chart: TimelineChart, width: int) -> list[str]:
    """Legend of the marks that occur in the rows."""
    used_marks = {mark for _, row, _ in labelled_rows for mark in row}
    lines = [""]
    for text in (
        *(t for mark, t in _LEGEND.items() if mark in used_marks),
        *(() if chart.lanes else (_NO_CONSUMER_TEXT,)),
    ):
        if lines[-1] and len(lines[-1]) + 2 + len(text) > width:
            lines.append("")
        lines[-1] += ("  " if lines[-1] else "") + text
    return lines


def _draw_axis(chart: TimelineChart, column_width: int) -> str:
    """Axis with sequence numbers. Each number ends at its column."""
    row = _blank_row(chart, column_width)
    for n in chart.axis_numbers((len(str(chart.head)) + 2) / column_width):
        text, end = str(n), (n - chart.start) * column_width + 1
        if end >= len(text):
            row[end - len(text) : end] = text
    return "".join(row)


def _draw_block_rows(chart: TimelineChart, column_width: int) -> Iterator[_LabelledRow]:
    """Lines of bases, deltas and chained deltas. Overlapping chained deltas are on separate lines."""
    bases, deltas = _blank_row(chart, column_width), _blank_row(chart, column_width)
    for mark, numbers in (("×", chart.dropped), ("□", chart.compacted), ("■", chart.bases)):
        for n in numbers:
            bases[(n - chart.start) * column_width] = mark
    for n in chart.collected:
        deltas[(n - chart.start) * column_width] = "·"
    for n in chart.deltas:
        _draw_arrow(deltas, n - 1, n, "─", chart, column_width)
    for label, row in (("bases", bases), ("deltas", deltas)):
        if "".join(row).strip():
            yield _LabelledRow(label, "".join(row))
    yield from _draw_chained_rows(chart, column_width)


def _draw_chained_rows(chart: TimelineChart, column_width: int) -> Iterator[_LabelledRow]:
    rows: list[list[str]] = []
    left_out = 0
    for lo, hi in chart.chained:
        begin = max(lo - chart.start, 0) * column_width + 1
        row = next((r for r in rows if not "".join(r[begin:]).strip()), None)
        if row is None and len(rows) == _MAX_CHAINED_ROWS:
            left_out += 1
            continue
        if row is None:
            rows.append(row := _blank_row(chart, column_width))
        _draw_arrow(row, lo, hi, "═", chart, column_width)
    for n, row in enumerate(rows, 1):
        remark = f"and {left_out} more" if left_out and n == len(rows) else ""
        yield _LabelledRow("chained", "".join(row), remark)


def _draw_arrow(row: list[str], lo: int, hi: int, line_character: str, chart: TimelineChart, column_width: int) -> None:
    begin, end = max(lo - chart.start, 0) * column_width + 1, (hi - chart.start) * column_width
    row[begin : end + 1] = line_character * (end - begin) + "▶"


def _draw_consumer_row(lane: ConsumerLane, chart: TimelineChart, column_width: int) -> str:
    """Line of a consumer, filled up to its cursor. A cursor left of the chart is written at the left edge."""
    row = ["┄"] * (chart.numbers * column_width + 1)
    fastest, at = ((n - chart.start) * column_width for n in (lane.fastest, lane.at))
    if fastest > max(at, 0):
        row[: fastest + 1] = "╍" * fastest + "○"
    if at >= 0:
        row[: at + 1] = "━" * at + "●"
    else:
        edge = f"◀ {lane.at} "
        row[: len(edge)] = edge
    return "".join(row)


def _blank_row(chart: TimelineChart, column_width: int) -> list[str]:
    return [" "] * (chart.numbers * column_width + 1)


def _shorten_text(text: str, max_length: int | None) -> str:
    return text if max_length is None or len(text) <= max_length else text[: max_length - 1] + "…"


PIPE_WIDTH = 80
"""Width of a drawing without a terminal."""


MAX_CONSUMER_NAME = 24
"""Maximum length of a consumer's name on a terminal."""


@click.command(cls=NovaCommand)
@click.argument("channel")
@click.option("--partition", metavar="COL=VALUE[/…]", help="One partition, or all partitions with these values.")
def timeline(deployment: Deployment, channel: str, partition: str | None) -> CommandResult:
    """Draw the bases and deltas of CHANNEL and the cursors of its consumers. Then list the instants, oldest first, with
    their blocks: B3 is a base, Δ(4→5) a delta.

    JSON: {"channel", "head", "instants": [{"action", "state", "seq", "at", "binding" or null, "commit",
    "blocks": [{"range", "kind", "lo", "hi", "rows", "deletes", "bytes", "files", ...}],
    "details": {"tasks": [{"task", "seconds", "cpu_seconds" or null, "read", "wrote", "skipped", "ways", "facts"}]}
    or other details, "rolled_back": [{"id", "partition", "folder", "files"}] that a rollback removed}],
    "partition": "" or the given partition, "collected": [numbers whose blocks were collected],
    "cursors": [{"binding", "channel", "partition", "cursor", "head", "lag", "moved_at": ISO or null}]}
    """
    with deployment.open_read_only() as store:
        instants = store.timeline(channel)
        scope = store.catalog.definitions.channel(channel).parse_scope(partition)
        outline = store.catalog.histories.outlines([channel], scope=scope)[channel]
    bindings = _project_bindings(deployment)
    chart = build_chart(outline, bindings)
    if scope:
        instants = [_keep_blocks_in_scope(i, scope) for i in instants]
        instants = [i for i in instants if i.blocks or i.rolled_back or i.state == "requested"]
    all_cursors = [*outline.cursors, *cursors_of_unrun_bindings(bindings, outline.cursors, {channel: outline.head})]
    data = {
        "channel": channel,
        "head": outline.head,
        "instants": [_instant_json(i) for i in instants],
        "partition": scope,
        "collected": list(chart.collected),
        "cursors": [_cursor_json(c) for c in all_cursors],
    }
    return CommandResult(data, lambda console: _show_timeline(console, chart, instants))


def _project_bindings(deployment: Deployment) -> tuple[Binding, ...]:
    project = deployment.load_project()
    return () if project is None else tuple(project.bindings)


def _keep_blocks_in_scope(instant: Instant, scope: str) -> Instant:
    return replace(
        instant,
        blocks=tuple(b for b in instant.blocks if is_in_scope(b.partition, scope)),
        rolled_back=tuple(b for b in instant.rolled_back if is_in_scope(b.partition, scope)),
    )


def _instant_json(instant: Instant) -> dict[str, Any]:
    return {
        "action": instant.action,
        "state": instant.state,
        "seq": instant.seq,
        "at": format_iso_time(instant.at),
        "binding": instant.binding,
        "commit": instant.commit_id,
        "blocks": [block_json(b) for b in instant.blocks],
        "details": dict(instant.details),
        "rolled_back": [b.as_json() for b in instant.rolled_back],
    }


def _show_timeline(console: Console, chart: TimelineChart, instants: list[Instant]) -> None:
    if not instants:
        channel_and_scope = f"{chart.channel} {chart.scope}".rstrip()
        console.print(f"the timeline of {channel_and_scope} is empty: no insert and no run has committed a block yet")
        return
    is_terminal = console.is_terminal
    for line in render_chart_lines(
        chart, console.width if is_terminal else PIPE_WIDTH, MAX_CONSUMER_NAME if is_terminal else None
    ):
        console.print(line, no_wrap=True, overflow="ellipsis", crop=is_terminal)
    console.print()
    console.print(TableGrid.of(timeline_table(instants)))
