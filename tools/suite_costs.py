"""Measures what the tests spend their time on: a pytest plugin that tells worker seconds by room and by cause.

    python -m pytest -p tools.suite_costs [--costs-file FILE] [-n 2] ...

A room is a folder of ``nova_assets_tests``. In each process that runs tests, a thread looks every 10 ms at the stack of
the thread that runs them. It charges the time since its last look to the test and to one cause. ``RULES`` says which.

CPU seconds are those of the process and of the children that it has waited for. The JVM of a worker ends after the last
test, so its CPU seconds are missing. A worker that crashes reports nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

# Under their own names, because tests replace `time.sleep` and `time.perf_counter`.
from time import clock_gettime, perf_counter, pthread_getcpuclockid
from types import CodeType, FrameType
from typing import Any

import pytest

INTERVAL_SECONDS = 0.01
IDLE_CPU_SHARE = 0.2
"""A thread that sleeps, and used less of a CPU than this since the last look, is waiting."""

MAX_TABLE_WIDTH = 165
MIN_ROOM_SHARE = 0.01
MOST_EXPENSIVE_FILES = 25
OUTSIDE_TESTS = "outside tests"
"""Room of what a process does before, between and after its tests: collection, and waiting for the next test."""


class Reach(Enum):
    """Which frames of a stack a rule may match."""

    ANYWHERE = auto()
    INNER = auto()
    """Frames inside the innermost owner."""
    OWNER = auto()
    """Only the innermost owner. Frames outside it called the owner, and do not spend the time."""


@dataclass(frozen=True)
class Rule:
    """Assigns stacks to a cause.

    Args:
        path: regular expression that is searched for in the file name of a code object.
        functions: regular expression that matches the whole qualified name of a function.
        may_wait: charge a thread that sleeps to "waiting" instead.
    """

    cause: str
    path: str
    functions: str = ".*"
    reach: Reach = Reach.INNER
    may_wait: bool = False

    def matches(self, code: CodeType) -> bool:
        return bool(re.search(self.path, code.co_filename)) and bool(re.fullmatch(self.functions, code.co_qualname))


JVM, PROCESSES = "starting and stopping JVMs", "starting, awaiting processes"
POSTGRES_DATABASES = "PostgreSQL databases"
RUNNING_SPARK, PLANNING_SPARK = "running Spark statements", "planning Spark statements"
DAGSTER_STORAGES, DAGSTER_RUNS = "Dagster: instances, storages", "Dagster: runs, definitions"
IMPORTING, OPENING_STORES, WAITING, OTHER = "importing", "opening stores", "waiting", "other"

SPARK_ACTIONS = (
    r".*\.(collect|toPandas|_to_pandas|toArrow|_collect_as_arrow|toLocalIterator|count|isEmpty|first|head|take|tail|show"
    r"|_show_string|foreach\w*|checkpoint|localCheckpoint|start|toTable|processAllAvailable|awaitTermination"
    r"|awaitAnyTermination|_?execute\w*|load_stream|_load_stream_without_unbatching)"
    r"|Observation\.get|StreamingQuery\.stop"
    r"|DataFrameWriter\.(save|saveAsTable|insertInto|parquet|json|csv|orc|text|xml|jdbc)"
    r"|DataFrameWriterV2\.(create|replace|createOrReplace|append|overwrite|overwritePartitions)"
    r"|_load_from_socket|_create_local_socket|local_connect_and_auth"
)

# Of the rules that match a stack, the first one counts.
RULES = (
    Rule(JVM, r"/pyspark/java_gateway\.py$", "launch_gateway", Reach.ANYWHERE),
    Rule(JVM, r"/pyspark/core/context\.py$", r"SparkContext\.(__init__|_\w*init\w*|stop)", Reach.ANYWHERE),
    Rule(JVM, r"/pyspark/sql/session\.py$", r"SparkSession\.(__init__|stop)", Reach.ANYWHERE),
    Rule(POSTGRES_DATABASES, r"/nova_assets_tests/(postgres|pgbouncer)\.py$", reach=Reach.ANYWHERE),
    Rule(POSTGRES_DATABASES, r"/psycopg/", r".*\b_?connect(_gen)?", Reach.ANYWHERE),
    Rule(PROCESSES, r"/subprocess\.py$", reach=Reach.ANYWHERE),
    Rule(
        PROCESSES, r"/multiprocessing/(process|popen_\w+|forkserver|spawn|connection|queues)\.py$", reach=Reach.ANYWHERE
    ),
    Rule("browser", r"/playwright/", reach=Reach.ANYWHERE),
    # Alembic imports migrations, and runs them while it imports `env.py`.
    Rule(OPENING_STORES, r"/nova_assets/catalog/(schema_version\.py$|migrations/)", reach=Reach.ANYWHERE),
    Rule(DAGSTER_STORAGES, r"/dagster/_core/storage/(.*/)?alembic/", reach=Reach.ANYWHERE),
    Rule(IMPORTING, r"<frozen importlib\._bootstrap|/importlib/"),
    Rule(IMPORTING, r"", "<module>", Reach.OWNER),
    Rule(RUNNING_SPARK, r"/pyspark/", SPARK_ACTIONS),
    Rule(PLANNING_SPARK, r"/(pyspark|py4j)/"),
    Rule(OPENING_STORES, r"/nova_assets/wiring/open_store\.py$", reach=Reach.ANYWHERE),
    Rule("PostgreSQL statements", r"/psycopg(_\w+)?/"),
    Rule(
        DAGSTER_STORAGES, r"/dagster/_core/(instance|storage)|/nova_assets_tests/quick_storages\.py$", reach=Reach.OWNER
    ),
    # Helpers of storages and of runs alike: the frames outside them tell.
    Rule(DAGSTER_RUNS, r"site-packages/(dagster/_(utils|serdes|check|record|vendored)|dagster_shared)/", may_wait=True),
    Rule(DAGSTER_RUNS, r"site-packages/dagster(_\w+)?/", reach=Reach.OWNER, may_wait=True),
    Rule("SQLAlchemy and SQLite", r"/(sqlalchemy|sqlite3)/"),
    # Their functions wait for threads that compute.
    Rule("pyarrow and pandas", r"site-packages/(pyarrow|pandas|numpy)/"),
    Rule("generating examples", r"/hypothesis/", reach=Reach.OWNER, may_wait=True),
    Rule("pytest", r"/(_pytest|pluggy|xdist|execnet)/|/pytest_timeout\.py$", reach=Reach.OWNER, may_wait=True),
    Rule("nova_assets", r"/nova_assets/", reach=Reach.OWNER, may_wait=True),
    Rule("tests", r"/(nova_assets_tests|benchmarks)/", reach=Reach.OWNER, may_wait=True),
    Rule(OTHER, r"", may_wait=True),
)


class Classifier:
    """Finds the rule of a stack. Remembers those of each code object, by its id, because to hash one is slow."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[CodeType, int]] = {}  # with the code object, so that no other one gets its id

    def rule_of(self, frame: FrameType | None) -> Rule:
        """The first rule that matches the stack of this innermost frame."""
        best, has_passed_owner = len(RULES) - 1, False
        while frame is not None:
            rank = self._rank(frame.f_code)
            reach = RULES[rank].reach
            if rank < best and (reach is Reach.ANYWHERE or not has_passed_owner):
                best = rank
            has_passed_owner = has_passed_owner or reach is Reach.OWNER
            frame = frame.f_back
        return RULES[best]

    def _rank(self, code: CodeType) -> int:
        entry = self._ranks.get(id(code))
        if entry is None:
            entry = code, next(rank for rank, rule in enumerate(RULES) if rule.matches(code))
            self._ranks[id(code)] = entry
        return entry[1]


@dataclass
class Cost:
    """Seconds of a test, or of many."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    causes: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: Cost) -> None:
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        for cause, seconds in other.causes.items():
            self.causes[cause] += seconds

    def to_json(self) -> dict[str, Any]:
        causes = {cause: round(self.causes[cause], 4) for cause in most_expensive(self.causes)}
        return {"seconds": round(self.seconds, 4), "cpu_seconds": round(self.cpu_seconds, 4), "causes": causes}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Cost:
        return Cost(data["seconds"], data["cpu_seconds"], defaultdict(float, data["causes"]))


class ThreadWatch:
    """Tells whether a thread is waiting. Without ``/proc``, a thread that waits for a CPU seems to wait."""

    def __init__(self) -> None:
        """Watch the current thread."""
        self._clock = pthread_getcpuclockid(threading.get_ident())
        self._cpu_seconds = clock_gettime(self._clock)
        self._stat: int | None = None
        with suppress(OSError):
            self._stat = os.open(f"/proc/self/task/{threading.get_native_id()}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def is_waiting(self, elapsed: float) -> bool:
        """Whether the thread sleeps, and has hardly used a CPU in the seconds since the last call."""
        cpu_seconds = clock_gettime(self._clock)
        used, self._cpu_seconds = cpu_seconds - self._cpu_seconds, cpu_seconds
        return used < IDLE_CPU_SHARE * elapsed and self._is_sleeping()

    def _is_sleeping(self) -> bool:
        return self._stat is None or os.pread(self._stat, 512, 0).rpartition(b")")[2].split()[0] == b"S"

    def close(self) -> None:
        if self._stat is not None:
            os.close(self._stat)


class CostMeter:
    """Measures the tests of this process; registered as a plugin where tests run."""

    def __init__(self) -> None:
        """Start the thread that takes samples of the current thread."""
        self.costs: defaultdict[str, Cost] = defaultdict(Cost)
        self._test = OUTSIDE_TESTS
        self._thread_id = threading.get_ident()
        self._watch = ThreadWatch()
        self._classifier = Classifier()
        self._started = self._last_sample = perf_counter()
        self._cpu_seconds_at_start = cpu_seconds_of_process()
        self._is_stopped = threading.Event()
        self._sampler = threading.Thread(target=self._sample_until_stopped, name="suite-costs", daemon=True)
        self._sampler.start()

    def _sample_until_stopped(self) -> None:
        while not self._is_stopped.wait(INTERVAL_SECONDS):
            self._sample()

    def _sample(self) -> None:
        now = perf_counter()
        elapsed, self._last_sample = now - self._last_sample, now
        # The state first: to classify takes long enough for the thread to go on.
        is_waiting = self._watch.is_waiting(elapsed)
        rule = self._classifier.rule_of(sys._current_frames().get(self._thread_id))
        cause = WAITING if rule.may_wait and is_waiting else rule.cause
        self.costs[self._test].causes[cause] += elapsed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        cost, started, cpu_seconds = self.costs[item.nodeid], perf_counter(), cpu_seconds_of_process()
        self._test = item.nodeid
        try:
            return (yield)
        finally:
            self._test = OUTSIDE_TESTS
            cost.seconds += perf_counter() - started
            cost.cpu_seconds += cpu_seconds_of_process() - cpu_seconds

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._is_stopped.set()
        self._sampler.join()
        self._watch.close()
        of_tests = [cost for test, cost in self.costs.items() if test != OUTSIDE_TESTS]
        outside = self.costs[OUTSIDE_TESTS]
        outside.seconds = perf_counter() - self._started - sum(cost.seconds for cost in of_tests)
        outside.cpu_seconds = (
            cpu_seconds_of_process() - self._cpu_seconds_at_start - sum(cost.cpu_seconds for cost in of_tests)
        )
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["suite_costs"] = json.dumps(to_json(self.costs))


class CostReport:
    """Collects the costs of all processes and prints them; registered as a plugin in the process that reports."""

    def __init__(self, meter: CostMeter | None, costs_file: Path | None) -> None:
        """
        Args:
            meter: of this process; None if only workers run tests.
        """
        self._costs = meter.costs if meter else defaultdict(Cost)
        self._outcomes: dict[str, str] = {}
        self._costs_file = costs_file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the worst outcome of the three phases of a test."""
        if report.outcome != "passed" or report.nodeid not in self._outcomes:
            self._outcomes[report.nodeid] = report.outcome

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over the costs of a worker."""
        output = (getattr(node, "workeroutput", None) or {}).get("suite_costs", "{}")
        for test, data in json.loads(output).items():
            self._costs[test].add(Cost.from_json(data))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._costs_file:
            data = to_json(self._costs)
            for test, outcome in self._outcomes.items():
                data[test]["outcome"] = outcome
            self._costs_file.write_text(json.dumps(data, indent=1))
        terminalreporter.section("worker seconds")
        terminalreporter.write_line("\n".join(describe(self._costs)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("suite costs").addoption(
        "--costs-file",
        type=Path,
        metavar="FILE",
        help="write seconds, CPU seconds, causes and outcome of each test as JSON",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure in this process unless only workers run tests, and report unless it is a worker."""
    is_worker = hasattr(config, "workerinput")
    meter = CostMeter() if is_worker or not getattr(config.option, "numprocesses", None) else None
    if meter:
        config.pluginmanager.register(meter)
    if not is_worker:
        config.pluginmanager.register(CostReport(meter, config.getoption("costs_file")))


def cpu_seconds_of_process() -> float:
    """CPU seconds of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


def to_json(costs: Mapping[str, Cost]) -> dict[str, Any]:
    """Costs by test, the most expensive test first."""
    return {test: costs[test].to_json() for test in most_expensive({t: cost.seconds for t, cost in costs.items()})}


def most_expensive(seconds: Mapping[str, float]) -> list[str]:
    """Keys of the mapping, by falling seconds."""
    return sorted(seconds, key=lambda key: -seconds[key])


def room_of(test: str) -> str:
    folders = test.partition("::")[0].split("/")[:-1]
    if test == OUTSIDE_TESTS:
        return OUTSIDE_TESTS
    return folders[1] if len(folders) > 1 else "top level"


def sum_by(costs: Mapping[str, Cost], group_of: Callable[[str], str]) -> dict[str, Cost]:
    """Costs by group of tests, the most expensive group first."""
    sums: defaultdict[str, Cost] = defaultdict(Cost)
    for test, cost in costs.items():
        sums[group_of(test)].add(cost)
    return {group: sums[group] for group in most_expensive({g: cost.seconds for g, cost in sums.items()})}


def describe(costs: Mapping[str, Cost]) -> list[str]:
    """Lines of the report."""
    tests = {test: cost for test, cost in costs.items() if test != OUTSIDE_TESTS}
    total = Cost()
    for cost in costs.values():
        total.add(cost)
    return [
        *table_of_causes(sum_by(costs, room_of), total),
        "",
        *table_of_files(tests),
        "",
        f"{total.seconds:.0f} worker seconds, {total.cpu_seconds:.0f} CPU seconds (without JVMs), {len(tests)} tests",
    ]


def table_of_causes(rooms: Mapping[str, Cost], total: Cost) -> list[str]:
    """Rows of causes and columns of rooms. Cheap rooms, and those for which there is no space, share a column."""
    label_width = max(map(len, [*total.causes, "total"]), default=0)
    columns, others = {"total": total}, Cost()
    width = label_width + column_width("total") + column_width("other rooms")
    for room, cost in rooms.items():
        width += column_width(room)
        if width <= MAX_TABLE_WIDTH and cost.seconds >= MIN_ROOM_SHARE * total.seconds:
            columns[room] = cost
        else:
            others.add(cost)
    if others.seconds >= 0.5:
        columns["other rooms"] = others
    rows = [
        (cause, [cost.causes.get(cause, 0.0) for cost in columns.values()]) for cause in most_expensive(total.causes)
    ]
    rows.append(("total", [cost.seconds for cost in columns.values()]))
    return [
        " " * label_width + "".join(name.rjust(column_width(name)) for name in columns),
        *(label.ljust(label_width) + format_row(columns, values) for label, values in rows),
    ]


def column_width(name: str) -> int:
    return max(len(name), 5) + 2


def format_row(columns: Iterable[str], values: Sequence[float]) -> str:
    texts = (f"{seconds:.0f}" for seconds in values)
    return "".join(
        ("·" if text == "0" else text).rjust(column_width(name)) for name, text in zip(columns, texts, strict=True)
    )


def table_of_files(tests: Mapping[str, Cost]) -> list[str]:
    """The most expensive files."""
    by_file = sum_by(tests, file_of)
    numbers = Counter(map(file_of, tests))
    files = list(by_file)[:MOST_EXPENSIVE_FILES]
    return ["seconds  tests  file", *(f"{by_file[f].seconds:7.0f}  {numbers[f]:5}  {f}" for f in files)]


def file_of(test: str) -> str:
    return test.partition("::")[0]
