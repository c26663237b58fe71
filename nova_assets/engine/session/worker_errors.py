"""Transport of this package's errors out of Spark tasks. Spark passes on only the text of a task's exception, so the
error is encoded into that text and decoded from it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from nova_assets.errors import error_from_dict
from nova_assets.nova_error import NovaError

_ERROR_MARK = "nova-error"
_ERROR_PATTERN = re.compile(rf"{_ERROR_MARK}\[([A-Za-z0-9+/=]+)\]")


class TaskError(Exception):
    """Exception that a task raises in place of an error of this package."""


@contextmanager
def as_task_errors() -> Iterator[None]:
    """Context in a task. An error of this package leaves it as a TaskError, with the error encoded in its text."""
    try:
        yield
    except NovaError as error:
        encoded_error = base64.b64encode(json.dumps(error.as_dict()).encode()).decode()
        raise TaskError(f"{error.what} {_ERROR_MARK}[{encoded_error}]") from None


def nova_error_from(error: BaseException) -> NovaError | None:
    """Error of this package that ended a task; None if the task failed otherwise."""
    match = _ERROR_PATTERN.search(str(error))
    return None if match is None else error_from_dict(json.loads(base64.b64decode(match[1])))
