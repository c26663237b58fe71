"""Summaries of task failures for people: the error message, and the line of the user's code.

Spark wraps a Python failure in the traceback of a worker, that in a JVM exception, and that in 200 lines of JVM stack
trace. This module only inspects texts and tracebacks. It imports nothing of Spark.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PACKAGE_FOLDER = Path(__file__).resolve().parent
_LIBRARY_PATH = re.compile(
    r"[/\\](pyspark|py4j|pyarrow|pandas|numpy|dagster\w*)[/\\]|<frozen|[/\\]lib[/\\]python3[^/\\]*[/\\][^/\\]+$"
)
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ([^\n]+)(?:\n\s+(?!File )([^\n]+))?')
_PYTHON_ERROR_LINE = re.compile(
    r"^((?:\w+\.)*\w*(?:Error|Exception|Warning|Interrupt|Exit|Fault)\b[^\n]*)", re.MULTILINE
)
_JAVA_CAUSE_LINE = re.compile(r"^(?:Caused by: |\s*: )((?:\w+\.)+\w+(?:Error|Exception)[^\n]*)", re.MULTILINE)
_CALLED_FROM = re.compile(r"was called from\s+(\S+?):(\d+)")
_JAVA_PACKAGE = re.compile(r"^(?:[a-z]\w*\.)+(?=[A-Z])")

# Messages of a Spark that has ended: in its last jobs, and in later calls.
_SPARK_ENDED_SIGNS = (
    "SparkContext was shut down",
    "stopped SparkContext",
    "Answer from Java side is empty",
    "Connection refused",
)
MORE_MEMORY_ADVICE = 'give it more with spark_config = {"spark.driver.memory" = "8g"} in [tool.nova]'

MAX_LENGTH = 400


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """A failure in two lines.

    Args:
        message: ``ValueError: no price``.
        location: ``shops.py, line 12, in clean: raise ValueError("no price")``. None if no line of the user's code is
            known.
    """

    message: str
    location: str | None = None


def summarize_user_error(error: BaseException) -> ErrorSummary:
    """Find the original failure behind an exception that Spark may have wrapped."""
    text = str(error)
    worker = text.rfind("Traceback (most recent call last)")
    if worker >= 0:
        worker_traceback = text[worker:].split("\n\nJVM stacktrace", 1)[0]
        said = _PYTHON_ERROR_LINE.findall(worker_traceback)
        return ErrorSummary(
            _truncate(said[0] if said else _error_headline(error)),
            _last_user_frame(_parse_frames(worker_traceback)) or _user_location(error),
        )
    caused = _JAVA_CAUSE_LINE.findall(text)
    if caused and type(error).__module__.startswith(("py4j", "pyspark")):
        root = _JAVA_PACKAGE.sub("", caused[-1])
        return ErrorSummary(_truncate(root + _memory_advice(root)), _spark_call_site(text) or _user_location(error))
    headline = _error_headline(error)
    advice = _memory_advice(headline) if type(error).__module__.startswith(("py4j", "pyspark", "grpc")) else ""
    return ErrorSummary(_truncate(headline + advice), _spark_call_site(text) or _user_location(error))


def is_spark_connection_lost(error: BaseException | None) -> bool:
    """Whether an exception or one of its causes says that Spark no longer answers."""
    while error is not None:
        if isinstance(error, ConnectionError | EOFError) or any(sign in str(error) for sign in _SPARK_ENDED_SIGNS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _error_headline(error: BaseException) -> str:
    """First line of an exception's message, with the exception's class."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    said = lines[0] if lines else ""
    kind = type(error).__name__
    return f"{kind}: {said}" if said else kind


def _memory_advice(error_text: str) -> str:
    if "OutOfMemoryError" in error_text:
        return f" (the data of one step does not fit into memory: {MORE_MEMORY_ADVICE}, or more and smaller partitions)"
    if any(sign in error_text for sign in _SPARK_ENDED_SIGNS):
        return f" (Spark has ended, usually because it ran out of memory: {MORE_MEMORY_ADVICE}; see its log)"
    return ""


def _user_location(error: BaseException) -> str | None:
    frames = traceback.extract_tb(error.__traceback__)
    return _last_user_frame((f.filename, str(f.lineno), f.name, f.line or "") for f in frames)


def _parse_frames(text: str) -> Iterable[tuple[str, str, str, str]]:
    return _FRAME.findall(text)


def _last_user_frame(frames: Iterable[tuple[str, str, str, str]]) -> str | None:
    """Innermost frame of the user's own code."""
    own = [f for f in frames if _is_user_file(f[0])]
    if not own:
        return None
    file, line, function, code = own[-1]
    where = f"{_path_below_cwd(file)}, line {line}, in {function.strip()}"
    return _truncate(f"{where}: {code.strip()}" if code.strip() else where)


def _spark_call_site(text: str) -> str | None:
    """Line of the user's code at which a failing column or frame was created, according to Spark."""
    found = [f for f in _CALLED_FROM.findall(text) if _is_user_file(f[0])]
    return f"{_path_below_cwd(found[-1][0])}, line {found[-1][1]}" if found else None


def _is_user_file(file: str) -> bool:
    path = Path(file)
    ours = path.is_relative_to(_PACKAGE_FOLDER)
    return not ours and not _LIBRARY_PATH.search(file)


def _path_below_cwd(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 3] + "..."
