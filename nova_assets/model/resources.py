"""Resources of an execution: the number of its Spark tasks at once, and of the parts of its shuffles.

Nova's process optimizer trades resources against execution time by the degree of parallelism (section 4).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nova_assets.model.json_form import JsonForm, json_key
from nova_assets.short_repr import short_repr


@dataclass(frozen=True)
class Resources(JsonForm):
    """How much of Spark an execution of a binding may use at once (``nova.bind(resources=...)``).

    A limit of cores belongs to the Spark session, because Spark limits only whole sessions. The executions of one
    process share a session. It starts with the smallest limit that an execution of the process states, and keeps it. An
    execution is refused if the session already has more cores than the execution may use, or if their number is not
    known (Spark Connect).

    Args:
        max_cores: number of Spark tasks that run at once, at most. Threads that a Python function starts in such a task
            are not counted. None for no limit.
        shuffle_partitions: number of parts into which a shuffle divides rows. None for a number by cost: that of the
            session, or more if the execution reads much.
    """

    __repr__ = short_repr

    max_cores: int | None = field(default=None, metadata=json_key(omit_default=True))
    shuffle_partitions: int | None = field(default=None, metadata=json_key(omit_default=True))

    def problems(self) -> list[str]:
        """Problems of these resources."""
        values = {"max_cores": self.max_cores, "shuffle_partitions": self.shuffle_partitions}
        return [
            f"resources={self} has {name}={value!r}; expected a number, at least 1, or None"
            for name, value in values.items()
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1)
        ]


NO_LIMITS = Resources()


@dataclass(frozen=True, slots=True)
class Parallelism(JsonForm):
    """Degree of parallelism of one execution, as it was planned.

    Args:
        max_cores: number of Spark tasks at once, at most; None for no limit.
        shuffle_partitions: number of parts of a shuffle.
        is_stated: whether the binding states this number. Otherwise the session may have a greater one, which stays.
        input_bytes: size of the files that the execution reads.
    """

    max_cores: int | None
    shuffle_partitions: int
    is_stated: bool = field(metadata=json_key("stated"))
    input_bytes: int


NO_PARALLELISM = Parallelism(None, 1, False, 0)
"""Degree of parallelism that the session alone decides."""
