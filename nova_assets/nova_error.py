"""Root of all errors: what happened, where, what was expected, and what to type next."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from nova_assets.help_pages import help_url
from nova_assets.masking import mask, mask_exception, mask_nested


class NovaError(Exception):
    """Root of all errors that this package raises on purpose.

    Secrets are masked in all parts of the error, and in the exception that is being handled when the error is created.
    That exception becomes the cause of the error, and tracebacks print it.

    Args:
        what: the situation in one sentence, naming the channel, binding, file or task concerned.
        found: the actual value or state.
        expected: the valid value or state.
        next: the next command or action.
        fields: further facts, kept as attributes for programs.
    """

    code: ClassVar[str] = "NOVA-ERROR"

    def __init__(
        self,
        what: str,
        *,
        found: object = None,
        expected: object = None,
        next: str | None = None,  # shadows the builtin, since the message uses the same word
        **fields: Any,
    ) -> None:
        mask_exception(sys.exception())
        self.what = mask(what)
        self.found = mask_nested(found)
        self.expected = mask_nested(expected)
        self.next = mask_nested(next)
        self.fields = mask_nested(fields)
        super().__init__(self.render())

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process boundaries (Dagster steps, test workers) with all their parts."""
        return (_rebuild_error, (type(self), self.what, self.found, self.expected, self.next, self.fields))

    @property
    def help_url(self) -> str | None:
        """Address of the page of the documentation that explains the error; None if it is not known."""
        return help_url(self.code)

    def render(self) -> str:
        """The message for a person."""
        lines = [f"[{self.code}] {self.what}"]
        if self.found is not None:
            lines.append(f"  found:    {self.found}")
        if self.expected is not None:
            lines.append(f"  expected: {self.expected}")
        if self.next is not None:
            lines.append(f"  next:     {self.next}")
        return mask("\n".join(lines))

    def as_dict(self) -> dict[str, Any]:
        """The error as a dict, for ``--json`` and logs."""
        shown = {
            k: v if isinstance(v, int | float | str | bool | list | dict | None) else str(v)
            for k, v in self.fields.items()
        }
        parts = {"what": self.what, "found": self.found, "expected": self.expected, "next": self.next}
        told = {"code": self.code, **{k: str(v) for k, v in parts.items() if v is not None}, **shown}
        return {name: mask_nested(value) for name, value in told.items()}


def _rebuild_error(
    error_class: type[NovaError],
    what: str,
    found: object,
    expected: object,
    next_step: str | None,
    fields: dict[str, Any],
) -> NovaError:
    return error_class(what, found=found, expected=expected, next=next_step, **fields)
