"""Forms of claims' values: a frozen class stands as the array of its fields in order, an enum as its number.

New fields go to the end, with a new format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zraft_core.annotated import Annotated
from zraft_core.claims.group import Group
from zraft_core.errors import ProtocolError
from zraft_core.layout import boolean, number, string

TEXT_MAX: Final = 1_024
"""Characters. Longer names than any that is accepted, so that a name that is too long gets a good answer."""
SEQUENCE_MAX: Final = 4_096


def _possible(of: type[Any]) -> Callable[..., Any]:
    """Return a maker of values of a class that asserts what may not be in it."""

    def made(*values: Any) -> Any:
        try:
            return of(*values)
        except AssertionError as error:
            raise ProtocolError(f"{of.__name__}: impossible: {error}") from None

    return made


FORMS: Final = Annotated(
    {int: number, bool: boolean, str: string(0, TEXT_MAX)}, items_max=SEQUENCE_MAX, made=_possible
)
GROUP: Final = FORMS.record(Group)
