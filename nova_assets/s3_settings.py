"""Settings of S3 for all clients, from the standard AWS variables."""

from __future__ import annotations

import math
import os


def s3_endpoint_and_region() -> tuple[str | None, str | None]:
    """Endpoint and region of S3 from the standard AWS variables."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return endpoint or None, os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


def spark_s3_settings(warehouse: str, throttle_budget: float) -> dict[str, str]:
    """Spark settings for an object store, from the standard AWS variables. Spark reads the credentials itself.

    Spark's own client doubles its delay after each throttled attempt, too, from 0.1 s on.
    """
    if not warehouse.startswith("s3://"):
        return {}
    endpoint, region = s3_endpoint_and_region()
    s3a = "spark.hadoop.fs.s3a"
    return {
        **({f"{s3a}.endpoint": endpoint, f"{s3a}.path.style.access": "true"} if endpoint else {}),
        f"{s3a}.endpoint.region": region or "us-east-1",
        f"{s3a}.retry.throttle.interval": "100ms",
        f"{s3a}.retry.throttle.limit": str(max(1, int(math.log2(1 + throttle_budget / 0.1)))),
        "spark.executorEnv.NOVA_THROTTLE_BUDGET": f"{throttle_budget:g}",
    }
