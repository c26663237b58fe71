"""What went wrong in a task, as a person wants to hear it: what was said, and at which line of theirs.

Spark wraps a failure of Python in the traceback of a worker, that in an exception of the JVM, and that in 200
lines of the JVM's. Everything here looks at texts and tracebacks; nothing of Spark is imported.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_OWN = Path(__file__).resolve().parent
_THEIRS = re.compile(
    r"[/\\](pyspark|py4j|pyarrow|pandas|numpy|dagster\w*)[/\\]|<frozen|[/\\]lib[/\\]python3[^/\\]*[/\\][^/\\]+$"
)
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ([^\n]+)(?:\n\s+(?!File )([^\n]+))?')
_RAISED = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Warning|Interrupt|Exit|Fault)\b[^\n]*)", re.MULTILINE)
_CAUSED = re.compile(r"^(?:Caused by: |\s*: )((?:\w+\.)+\w+(?:Error|Exception)[^\n]*)", re.MULTILINE)
_CALLED_FROM = re.compile(r"was called from\s+(\S+?):(\d+)")
_JAVA_PACKAGE = re.compile(r"^(?:[a-z]\w*\.)+(?=[A-Z])")

# How the end of Spark shows: in a job of its last moments, and in whoever asks it for something afterwards.
_GONE = ("SparkContext was shut down", "stopped SparkContext", "Answer from Java side is empty", "Connection refused")
MORE_MEMORY = 'give it more with spark_config = {"spark.driver.memory" = "8g"} in [tool.nova]'

LONGEST = 400


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure in two lines.

    Args:
        said: ``ValueError: no price``.
        at: ``shops.py, line 12, in clean: raise ValueError("no price")``; None where no line of the user's is known.
    """

    said: str
    at: str | None = None


def fault(error: BaseException) -> Fault:
    """The failure behind an exception, wherever Spark has wrapped it."""
    text = str(error)
    worker = text.rfind("Traceback (most recent call last)")
    if worker >= 0:
        inner = text[worker:].split("\n\nJVM stacktrace", 1)[0]
        said = _RAISED.findall(inner)
        return Fault(_short(said[0] if said else _headline(error)), _last(_frames_in(inner)) or _at(error))
    caused = _CAUSED.findall(text)
    if caused and type(error).__module__.startswith(("py4j", "pyspark")):
        root = _JAVA_PACKAGE.sub("", caused[-1])
        return Fault(_short(root + _advice(root)), _called_from(text) or _at(error))
    headline = _headline(error)
    advice = _advice(headline) if type(error).__module__.startswith(("py4j", "pyspark", "grpc")) else ""
    return Fault(_short(headline + advice), _called_from(text) or _at(error))


def is_lost_connection(error: BaseException | None) -> bool:
    """Whether an exception, or one that caused it, says that Spark does not answer any more."""
    while error is not None:
        if isinstance(error, ConnectionError | EOFError) or any(sign in str(error) for sign in _GONE):
            return True
        error = error.__cause__ or error.__context__
    return False


def _headline(error: BaseException) -> str:
    """The first paragraph of what an exception says, with its kind."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    said = lines[0] if lines else ""
    kind = type(error).__name__
    return f"{kind}: {said}" if said else kind


def _advice(root: str) -> str:
    if "OutOfMemoryError" in root:
        return f" (the data of one step does not fit: {MORE_MEMORY}, or more and smaller partitions)"
    if any(sign in root for sign in _GONE):
        return f" (Spark itself has ended meanwhile, most often for want of memory: {MORE_MEMORY}; its log says why)"
    return ""


def _at(error: BaseException) -> str | None:
    frames = traceback.extract_tb(error.__traceback__)
    return _last((f.filename, str(f.lineno), f.name, f.line or "") for f in frames)


def _frames_in(text: str) -> Iterable[tuple[str, str, str, str]]:
    return _FRAME.findall(text)


def _last(frames: Iterable[tuple[str, str, str, str]]) -> str | None:
    """The innermost frame that is the user's own."""
    own = [f for f in frames if _is_users(f[0])]
    if not own:
        return None
    file, line, function, code = own[-1]
    where = f"{_shown(file)}, line {line}, in {function.strip()}"
    return _short(f"{where}: {code.strip()}" if code.strip() else where)


def _called_from(text: str) -> str | None:
    """Where Spark says that a column or frame of the user's was made."""
    found = [f for f in _CALLED_FROM.findall(text) if _is_users(f[0])]
    return f"{_shown(found[-1][0])}, line {found[-1][1]}" if found else None


def _is_users(file: str) -> bool:
    path = Path(file)
    ours = path.is_relative_to(_OWN) and not path.is_relative_to(_OWN / "examples")
    return not ours and not _THEIRS.search(file)


def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
