"""Errors of this package that end a task of Spark. Spark hands on no more than the text of what a task raises, so an
error is written into that text, and read out of it."""

from __future__ import annotations

import base64
import json
import re

from nova_assets.errors import error_from_dict
from nova_assets.nova_error import NovaError

_ERROR_MARK = "nova-error"
_ERROR_PATTERN = re.compile(rf"{_ERROR_MARK}\[([A-Za-z0-9+/=]+)\]")


class TaskError(Exception):
    """What a task raises in place of an error of this package."""


def to_task_error(error: NovaError) -> TaskError:
    """What a task is to raise so that an error arrives."""
    told = base64.b64encode(json.dumps(error.as_dict()).encode()).decode()
    return TaskError(f"{error.what} {_ERROR_MARK}[{told}]")


def nova_error_from(error: BaseException) -> NovaError | None:
    """The error that ended a task; None where something else did."""
    found = _ERROR_PATTERN.search(str(error))
    return None if found is None else error_from_dict(json.loads(base64.b64decode(found[1])))
