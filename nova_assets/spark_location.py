"""The setting ``spark``: the place where Spark runs."""

from __future__ import annotations

import re
from typing import Any

from nova_assets.errors import SettingsError
from nova_assets.masking import mask_address

_CLUSTER = re.compile(r"spark://[^\s/?#@:,]+:\d{1,5}(,[^\s/?#@:,]+:\d{1,5})*")
"""One master, or several for high availability: ``spark://a:7077,b:7077``."""


def check_spark_location(value: Any) -> str:
    """The value of the setting ``spark``, if it is valid.

    Raises:
        SettingsError.
    """
    text = str(value)
    if text in ("local", "server") or text.startswith("sc://") or _CLUSTER.fullmatch(text):
        return text
    raise SettingsError(
        "setting 'spark' is invalid",
        found=repr(mask_address(text)),
        expected='"local", "server", "sc://host:port" or "spark://host:port"',
    )


def is_cluster_master(master: str) -> bool:
    """Whether a Spark master runs the tasks in other processes than the driver, perhaps on other machines."""
    return not master.startswith("local")
