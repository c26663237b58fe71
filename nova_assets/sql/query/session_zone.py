"""Check of the time zone of a Spark session."""

from __future__ import annotations

from nova_assets.errors import SettingsError
from nova_assets.model.task import Context

_UTC = ("UTC", "Etc/UTC", "GMT", "Z")


def check_session_is_utc(ctx: Context, user: str, advice: str = "") -> None:
    """Check that the time zone of the session is UTC.

    Args:
        user: what needs it, for example ``dataset 'sales' uses timestamps``.
        advice: what else can be done, after the advice to set the zone.

    Raises:
        SettingsError: the session has another time zone.
    """
    zone = ctx.spark.conf.get("spark.sql.session.timeZone")
    if zone not in _UTC:
        raise SettingsError(
            f"{user}, and the time zone of the Spark session is not UTC",
            found=zone,
            expected="spark.sql.session.timeZone = UTC",
            next=f"set it on the session that you pass to nova{advice}",
        )
