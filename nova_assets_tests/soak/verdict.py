"""What must hold when all is quiet: every channel is right, every firing has its end, and no file lies about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nova_assets_tests.soak.batches import Batch, Row
from nova_assets_tests.soak.recompute import Recompute, broken_chains, difference
from nova_assets_tests.soak.records import Records


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Args:
        what: for people.
        problems: what is wrong with it; none, when all is well.
        said: figures, when all is well.
    """

    what: str
    problems: tuple[str, ...]
    said: str = ""


def verdict(
    records: Records,
    warehouse: Path,
    inserted: Mapping[str, list[Batch]],
    read: Callable[[str], Iterable[Row]],
) -> Iterator[Finding]:
    """Every finding.

    Args:
        inserted: channel -> its batches, in the order in which they were given.
        read: channel -> its rows, as a user reads them.
    """
    yield from _channels(records, inserted, read)
    yield from books(records, warehouse)


def books(records: Records, warehouse: Path) -> Iterator[Finding]:
    """What must hold of any deployment that is at rest, whatever its channels hold."""
    yield _reads(records)
    yield from _firings(records)
    yield _executions(records)
    yield from _files(records, warehouse)


def key_of(channel: str, nth: int) -> str:
    """The idempotency key of a batch."""
    return f"{channel}-{nth}"


# every channel equals the recompute


def _channels(
    records: Records, inserted: Mapping[str, list[Batch]], read: Callable[[str], Iterable[Row]]
) -> Iterator[Finding]:
    numbered: dict[str, dict[int, Batch]] = {}
    for channel, batches in inserted.items():
        numbers, head = records.inserted(channel), records.heads()[channel]
        given = {key_of(channel, nth): batch for nth, batch in enumerate(batches)}
        numbered[channel] = {numbers[key]: batch for key, batch in given.items() if key in numbers}
        problems = [f"batch {key} is not there" for key in given if key not in numbers]
        problems += [f"number {n} is of no batch" for n in range(1, head + 1) if n not in numbered[channel]]
        yield Finding(f"{channel}: each batch once", tuple(problems), f"{len(batches)} batches")
    if any(len(numbered[c]) != len(inserted[c]) for c in inserted):
        return  # there is nothing to compare with
    for channel, expected in Recompute(numbered, records.reads()).channels().items():
        found = list(read(channel))
        wrong = difference(expected, found)
        yield Finding(f"{channel} equals the recompute", (wrong,) if wrong else (), f"{len(found)} rows")


def _reads(records: Records) -> Finding:
    reads = records.reads()
    problems = broken_chains(reads, records.heads())
    numbers: dict[str, list[int]] = {}
    for row in records.rows("SELECT channel, seq FROM nova_numbers ORDER BY channel, seq"):
        numbers.setdefault(row["channel"], []).append(row["seq"])
    for channel, head in records.heads().items():
        if numbers.get(channel, []) != list(range(1, head + 1)):
            problems.append(f"the numbers of {channel} are {numbers.get(channel)}, up to {head}")
    return Finding("each number is given once and read once", tuple(problems), f"{len(reads)} commits of bindings")


# every firing ends as promised


def _firings(records: Records) -> Iterator[Finding]:
    firings = records.rows("SELECT * FROM nova_firings ORDER BY binding, partition, n")
    executions = "SELECT firing_id FROM nova_executions WHERE state = 'committed' AND firing_id IS NOT NULL"
    commits = records.column(executions)
    for binding in dict.fromkeys(f["binding"] for f in firings):
        own = [f for f in firings if f["binding"] == binding]
        problems = [p for n, f in enumerate(own, start=1) for p in _firing_problems(f, n, commits.count(f["id"]))]
        committed, abandoned = (sum(f["state"] == s for f in own) for s in ("committed", "abandoned"))
        again = sum(f["attempt"] > 1 for f in own)
        said = f"{committed} committed, {abandoned} abandoned, {again} of them after several runs"
        yield Finding(f"{binding}: each firing has one end", tuple(problems), said)


def _firing_problems(firing: Mapping[str, object], n: int, commits: int) -> Iterator[str]:
    what = f"firing {firing['n']} ({firing['state']}, attempt {firing['attempt']})"
    if firing["n"] != n:
        yield f"{what} comes where {n} should"
    if firing["state"] == "committed" and commits != 1:
        yield f"{what} has {commits} commits"
    elif firing["state"] == "abandoned" and (commits or not firing["why"]):
        yield f"{what} has {commits} commits, and was abandoned because of {firing['why']!r}"
    elif firing["state"] not in ("committed", "abandoned"):
        yield f"{what} has not ended"


def _executions(records: Records) -> Finding:
    """Each has ended, with one commit or with none."""
    query = (
        "SELECT e.id, e.binding, e.state, e.commit_id, e.error, count(c.id) AS commits, max(c.id) AS made"
        " FROM nova_executions e LEFT JOIN nova_commits c ON c.execution_id = e.id GROUP BY e.id"
    )
    found = records.rows(query)
    problems = []
    for e in found:
        right = e["commits"] == 1 and e["made"] == e["commit_id"] if e["state"] == "committed" else e["commits"] == 0
        if e["state"] not in ("committed", "aborted") or not right:
            who = f"execution {e['id']} of {e['binding'] or 'an insert, or upkeep'}"
            problems.append(f"{who} is {e['state']} with {e['commits']} commits ({e['error']})")
    aborted = sum(e["state"] == "aborted" for e in found)
    said = f"{len(found) - aborted} committed, {aborted} aborted"
    return Finding("each execution has ended, with one commit or none", tuple(problems), said)


# the warehouse holds what the catalog says


def _files(records: Records, warehouse: Path) -> Iterator[Finding]:
    files = (p for p in warehouse.rglob("*") if p.is_file() and p.parent != warehouse / "catalogs")
    there = {p.relative_to(warehouse).as_posix(): p.stat().st_size for p in files}
    query = "SELECT f.path, f.bytes FROM nova_files f JOIN nova_blocks b ON b.id = f.block_id WHERE b.collected_at IS "
    of_blocks = {r["path"]: r["bytes"] for r in records.rows(query + "NULL")}
    waiting = {r["path"]: r["bytes"] for r in records.rows(query + "NOT NULL")}
    listed = {**waiting, **of_blocks}
    problems = [f"{path} is listed and not there" for path in sorted(listed.keys() - there.keys())]
    problems += [f"{path} is there and not listed" for path in sorted(there.keys() - listed.keys())]
    problems += [
        f"{path} has {there[path]} bytes, not {size}" for path, size in listed.items() if there.get(path, size) != size
    ]
    said = f"{len(of_blocks)} files of blocks, {len(waiting.keys() - of_blocks.keys())} that wait for their grace"
    yield Finding("the warehouse holds what the catalog lists", tuple(problems), said)
    staged = [f"{r['folder']} for {r['port']} of execution {r['execution_id']}" for r in records.rows(_STAGED)]
    empty = [f"{p.relative_to(warehouse)} is empty" for p in warehouse.glob("blocks/*") if not any(p.iterdir())]
    yield Finding("nothing is staged, and no folder is empty", (*staged, *empty))


_STAGED = "SELECT folder, port, execution_id FROM nova_staged"
