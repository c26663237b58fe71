"""Public names that have changed before version 1.0: the old name answers with an error that gives the new one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from nova_assets.errors import Renamed

# An alias would keep both names alive, and a deprecation warning is lost in Spark's output. JSON keys, routes and the
# names in catalogs and Dagster do not change, because programs read them.

_NEW_ARGUMENT_NAMES: Mapping[str, Mapping[str, str]] = {
    "nova.Channel": {"compacting": "compaction"},
    "nova.external": {"done": "success_file"},
    "nova.files": {
        "extra": "on_extra_columns",
        "largest": "max_bytes",
        "most_bad": "max_bad",
        "replaced": "on_replaced",
        "settled": "min_age",
    },
}
"""Function -> its arguments that have changed, old name -> new name."""

_NEW_ATTRIBUTE_NAMES: Mapping[str, Mapping[str, str]] = {
    "nova": {"Compacting": "Compaction"},
    "nova.Connection": {"collect": "collect_garbage"},
    "nova.Store": {"collect": "collect_garbage", "editions": "published", "withdraw": "unpublish"},
}

NEW_COMMAND_NAMES: Mapping[str, str] = {"collect": "gc", "editions": "published", "withdraw": "unpublish"}

NEW_SETTING_NAMES: Mapping[str, str] = {"collect_grace": "gc_grace", "way": "strategy"}

NEW_SETTING_VALUES: Mapping[str, Mapping[str, str]] = {"views": {"rocksdb": "disk", "spillable": "disk"}}
"""Setting -> its values that have changed, old value -> new value."""


def check_arguments_not_renamed(function_name: str, arguments: Iterable[str]) -> None:
    """Raises Renamed if an argument of a function has another name now."""
    new_names = _NEW_ARGUMENT_NAMES.get(function_name, {})
    for old in arguments:
        if old in new_names:
            raise Renamed(
                f"{function_name} has no argument {old}",
                found=f"{old}=",
                expected=f"{new_names[old]}=",
                next=f"write {new_names[old]}= in place of {old}=",
                new_name=new_names[old],
            )


def missing_attribute_error(owner: str, name: str) -> AttributeError:
    """The error for an attribute that does not exist: Renamed where it has another name now."""
    new_name = _NEW_ATTRIBUTE_NAMES[owner].get(name)
    if new_name is None:
        return AttributeError(f"{owner} has no attribute {name!r}")
    return Renamed(
        f"{owner} has no attribute {name!r}",
        expected=new_name,
        next=f"write {new_name} in place of {name}",
        new_name=new_name,
    )


class DeploymentHandle(ABC):
    """Base of ``nova.Store`` and ``nova.Connection``: closed by a ``with`` block, and helpful about renamed methods."""

    _public_name: ClassVar[str]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute_error(self._public_name, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release the connections."""
