"""Layouts that follow from the annotations of frozen classes, so that a new field cannot be forgotten. Pure.

A class stands as the array of its fields in their order, an enumeration as its values, a tuple as an array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from attrs import NOTHING, fields, has

from zraft_core.layout import Form, Record, listed, member, optional, row


class Annotated:
    """Maker of forms and records from types; it makes each once.

    Args:
        atoms: the forms of types that are not made of others.
        items_max: items of one array.
        older: fields at the end that have defaults may be absent, as their writer did not know them.
        others: for other generic types what makes their form of the forms of their arguments.
        made: what makes values of a class, if not the class.
    """

    def __init__(
        self,
        atoms: Mapping[Any, Form],
        *,
        items_max: int,
        older: bool = False,
        others: Mapping[Any, Callable[..., Form]] | None = None,
        made: Callable[[type[Any]], Callable[..., Any]] = lambda of: of,
    ) -> None:
        self._forms: dict[Any, Form] = dict(atoms)
        self._records: dict[Any, Record[Any]] = {}
        self._items_max: Final = items_max
        self._older: Final = older
        self._others: Final = others or {}
        self._made: Final = made

    def form(self, of: Any) -> Form:
        """Return the form of a type.

        Raises:
            TypeError: it has none, which is a mistake in the class that uses it.
        """
        form = self._forms.get(of)
        if form is None:
            form = self._forms[of] = self._new(of)
        return form

    def record(self, of: type[Any], unsaid: int = 0) -> Record[Any]:
        """Return the record of a frozen class, of whose fields the last `unsaid` are not said.

        Raises:
            TypeError: one of its fields has no form.
        """
        record = self._records.get((of, unsaid))
        if record is None:
            hints = get_type_hints(of)
            said = fields(of)[: len(fields(of)) - unsaid]
            record = self._records[of, unsaid] = Record(
                of,
                *(self.form(hints[each.name]) for each in said),
                made=self._made(of),
                least=sum(each.default is NOTHING for each in said) if self._older else None,
            )
        return record

    def _new(self, of: Any) -> Form:
        origin, arguments = get_origin(of), get_args(of)
        if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
            return optional(self.form(next(each for each in arguments if each is not NoneType)))
        if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
            return listed(self.form(arguments[0]), self._items_max)
        if origin is tuple:
            return row(*map(self.form, arguments))
        if origin in self._others:
            return self._others[origin](*map(self.form, arguments))
        if isinstance(of, type) and issubclass(of, Enum):
            return member(of)
        if isinstance(of, type) and has(of):
            return self.record(of).form
        if hasattr(of, "__supertype__"):
            return self.form(of.__supertype__)
        raise TypeError(f"{of!r} has no canonical form")
