"""Layouts of records in MessagePack: each is declared once, and packing, checking and errors come from that. Pure.

A `Form` says how one value stands in MessagePack, a `Record` which forms the fields of a class have, `Kinds` which
records may stand in one place, each with its number, and `Fields` what stands in a map by names. Whatever the bytes
are, the answer is a well-typed value or a `ProtocolError` that names the field, what was expected there and what was
found; whether the value makes sense is for who asked. docs/decisions/0009-layouts-of-records-are-declared.md says why
no library does this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cached_property, partial
from inspect import signature
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgpack
from attrs import NOTHING, evolve, fields, frozen

from zraft_core.errors import ProtocolError
from zraft_core.messagepack import shown

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

NUMBER_MAX: Final = 2**63 - 1
"""Largest number of anything that is counted: what fits a signed 64-bit field everywhere."""

Unpack = Callable[[Any, str], Any]
"""Checks one decoded value and gives the typed one. The second argument is what to call it in an error."""

Pack = Callable[[Any], Any]
"""The value that MessagePack is given for a typed one."""


# -- errors


def found(value: object) -> str:
    """Return a short text of a value for an error message, however large the value is."""
    if value is NOTHING:
        return "nothing"
    if isinstance(value, bytes | tuple | list | dict):
        return f"{type(value).__name__} of length {len(value)}"
    return f"{type(value).__name__} {shown(value)}"


class FieldError(ProtocolError):
    """A field that is not what it should be.

    Attributes:
        field: what it is called, with where it stands.
        expected: what it should be.
        value: what was found; `NOTHING` if it is absent.
    """

    def __init__(self, text: str, field: str, expected: str, value: object) -> None:
        super().__init__(text)
        self.field = field
        self.expected = expected
        self.value = value

    def within(self, place: str) -> FieldError:
        """Return the same error of a field in this place."""
        return FieldError(f"{place}: {self}", f"{place}: {self.field}", self.expected, self.value)


def wrong(name: str, expected: str, value: object) -> FieldError:
    """Return the error for a value that is not what it should be."""
    return FieldError(f"{name}: expected {expected}, found {found(value)}", name, expected, value)


# -- single values


@frozen
class Form:
    """Form of a value in MessagePack.

    Attributes:
        unpack: see `Unpack`; raises `ProtocolError`.
        pack: None if the value is packed as it is.
        same: `unpack` gives the very value that it was given.
        bounds: the least and the largest, if it is an integer.
        expected: what errors and documents call such a value.
        omitted: None is not packed: its field is left out of the map.
    """

    unpack: Unpack
    pack: Pack | None = None
    same: bool = False
    bounds: tuple[int, int] | None = None
    expected: str = "a value"
    omitted: bool = False


def _itself(value: Any, _: str) -> Any:
    return value


def anything(expected: str) -> Form:
    """Return the form of a value of any kind, which its reader has to check."""
    return Form(_itself, same=True, expected=expected)


def integer(low: int, high: int) -> Form:
    """Return the form of an integer in a range; true and false are none."""
    expected = f"an integer from {low} to {high}"

    def unpack(value: Any, name: str) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise wrong(name, expected, value)

    return Form(unpack, same=True, bounds=(low, high), expected=expected)


def binary(low: int, high: int) -> Form:
    """Return the form of bytes of a bounded length."""
    expected = f"{low} bytes" if low == high else f"{low} to {high} bytes"

    def unpack(value: Any, name: str) -> bytes:
        if type(value) is bytes and low <= len(value) <= high:
            return value
        raise wrong(name, expected, value)

    return Form(unpack, same=True, expected=expected)


def string(low: int, high: int) -> Form:
    """Return the form of a MessagePack string of a bounded number of characters."""
    expected = f"a text of {low} to {high} characters"

    def unpack(value: Any, name: str) -> str:
        if type(value) is str and low <= len(value) <= high:
            return value
        raise wrong(name, expected, value)

    return Form(unpack, same=True, expected=expected)


def of_type(kind: type, expected: str) -> Form:
    """Return the form of a value of exactly this type, whose size only that of the message bounds."""

    def unpack(value: Any, name: str) -> Any:
        if type(value) is kind:
            return value
        raise wrong(name, expected, value)

    return Form(unpack, same=True, expected=expected)


any_binary: Final = of_type(bytes, "bin")
any_string: Final = of_type(str, "a string")


def choice(*texts: str) -> Form:
    """One of a few strings."""
    expected = " or ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))

    def unpack(value: Any, name: str) -> str:
        if type(value) is str and value in texts:
            return value
        raise wrong(name, expected, value)

    return Form(unpack, same=True, expected=expected)


def text(bytes_max: int) -> Form:
    """Return the form of a text that travels as bytes in UTF-8, for records that have no MessagePack strings."""
    inner = binary(0, bytes_max).unpack

    def unpack(value: Any, name: str) -> str:
        raw: bytes = inner(value, name)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise wrong(name, "UTF-8", value) from error

    return Form(unpack, str.encode, expected=f"a text of at most {bytes_max} bytes of UTF-8")


def big_integer(length: int) -> Form:
    """Return the form of a large integer without a sign that travels as this many bytes."""
    inner = binary(length, length).unpack
    return Form(
        lambda value, name: int.from_bytes(inner(value, name)),
        lambda value: value.to_bytes(length),
        expected=f"an integer of {length} bytes",
    )


boolean: Final = of_type(bool, "true or false")
number: Final = integer(0, NUMBER_MAX)
from_one: Final = integer(1, NUMBER_MAX)


def member(of: type[Enum]) -> Form:
    """Return the form of a member of an enumeration, which travels as its value."""
    members = {(type(each.value), each.value): each for each in of}
    expected = f"one of {', '.join(str(each.value) for each in of)}"

    def unpack(value: Any, name: str) -> Enum:
        try:
            made = members.get((type(value), value))
        except TypeError:  # a map or a list, which have no hash
            made = None
        if made is None:
            raise wrong(name, expected, value)
        return made

    return Form(unpack, attrgetter("value"), expected=expected)


def ruled(form: Form, holds: Callable[[Any], bool], expected: str) -> Form:
    """Return the form of a value for which a rule holds; `expected` says the rule."""
    inner = form.unpack

    def unpack(value: Any, name: str) -> Any:
        made = inner(value, name)
        if not holds(made):
            raise wrong(name, expected, value)
        return made

    return Form(unpack, form.pack, form.same, expected=expected)


def optional(form: Form) -> Form:
    """Return the form of a value of another form, or nil."""
    inner, pack = form.unpack, form.pack
    expected = f"{form.expected} or nil"

    def unpack(value: Any, name: str) -> Any:
        if value is None:
            return None
        try:
            return inner(value, name)
        except FieldError as error:
            if error.field != name:
                raise
            raise wrong(name, f"{error.expected} or nil", value) from None

    return Form(
        _optional_integer(*form.bounds, expected) if form.bounds else unpack,
        pack and (lambda value: None if value is None else pack(value)),
        form.same,
        expected=expected,
    )


def or_absent(form: Form) -> Form:
    """Return the form of a field of a map that is left out where there is nothing to say; its default is None."""
    return evolve(form, pack=form.pack and optional(form).pack, omitted=True)


def called(form: Form, expected: str) -> Form:
    """Return the same form under words that say more of what it is for."""
    return evolve(form, expected=expected)


def _optional_integer(low: int, high: int, expected: str) -> Unpack:
    """Return the reader of an integer or nil, in one call: many fields of requests are such integers."""

    def unpack(value: Any, name: str) -> Any:
        if value is None or (type(value) is int and low <= value <= high):
            return value
        raise wrong(name, expected, value)

    return unpack


# -- arrays


def array(value: Any, name: str, length: int | None = None) -> tuple[Any, ...]:
    """Return an array, of this length if one is given.

    Raises:
        ProtocolError: it is none.
    """
    if type(value) is tuple and (length is None or len(value) == length):
        return value
    raise wrong(name, "an array" if length is None else f"an array of {length}", value)


def listed(item: Form, most: int, least: int = 0) -> Form:
    """Return the form of an array of values of one form."""
    check, pack, same = item.unpack, item.pack, item.same
    size = "" if most >= NUMBER_MAX else f" of {least} to {most}"
    expected = f"an array{size}, of which each is {item.expected}"

    def unpack(value: Any, name: str) -> tuple[Any, ...]:
        if type(value) is not tuple:
            raise wrong(name, expected, value)
        if not least <= len(value) <= most:
            raise wrong(name, f"{least} to {most} items", value)
        try:
            if not same:
                return tuple([check(one, name) for one in value])
            for one in value:
                check(one, name)
        except ProtocolError:
            # Only now is it worth while to name each item.
            for at, one in enumerate(value):
                _check_at(f"{name}[{at}]", check, one)
            raise
        return value

    return Form(
        unpack,
        pack and (lambda items: [pack(one) for one in items]),
        same,
        expected=expected,
    )


def _check_at(place: str, check: Unpack, value: Any) -> None:
    """Check a value whose error, if what makes it raises one, may not say where it stands."""
    try:
        check(value, place)
    except ProtocolError as error:
        if str(error).startswith(place):
            raise
        if isinstance(error, FieldError):
            raise error.within(place) from error
        raise ProtocolError(f"{place}: {error}") from error


def ascending(item: Form, most: int, least: int = 0) -> Form:
    """Return the form of an array in which each value comes once, in order.

    So a set has one form only, which digests rely on.
    """
    inner = listed(item, most, least)

    def unpack(value: Any, name: str) -> tuple[Any, ...]:
        items: tuple[Any, ...] = inner.unpack(value, name)
        if any(a >= b for a, b in pairwise(items)):
            raise wrong(name, "ascending items", value)
        return items

    return Form(unpack, sorted, inner.same, expected=f"{inner.expected}, ascending")


def as_set(items: Form) -> Form:
    """Return the form of a set, which is an array in MessagePack."""
    return Form(lambda value, name: frozenset(items.unpack(value, name)), items.pack, expected=items.expected)


# -- records


class Record(Generic[T]):
    """A class and the forms of its fields, which stand in an array in their order, or in a map by their names.

    Args:
        of: a class of attrs or a named tuple.
        forms: one for each field in order. Further fields are not said.
        names: the fields, if what stands in the array are not those of the class but, with dots, those of its fields.
        made: makes a value of the fields that are said, if not the class; may raise `ProtocolError`.
        least: as many fields stand in an array at least; of those after them that are absent the defaults hold.
        **unsaid: what fields hold that are not said, if not their defaults.
    """

    def __init__(
        self,
        of: type[T],
        *forms: Form,
        names: tuple[str, ...] | None = None,
        made: Callable[..., T] | None = None,
        least: int | None = None,
        **unsaid: Any,
    ) -> None:
        names = names or _names(of)
        assert len(names) >= len(forms), f"{of.__name__} has fields {names}, {len(forms)} forms"
        self.of: Final = of
        self.called: Final = of.__name__
        self.names: Final = names[: len(forms)]
        self.forms: Final = forms
        self.labels: Final = tuple(f"{self.called}.{name}" for name in self.names)
        self.checks: Final = tuple(form.unpack for form in forms)
        self.packs: Final = tuple((at, form.pack) for at, form in enumerate(forms) if form.pack is not None)
        self._omitted: Final = tuple(
            name for name, form in zip(self.names, forms, strict=True) if form.omitted
        )
        self.values: Final = _getter(self.names)
        self._unsaid = {name: unsaid.get(name, _default(of, name)) for name in names[len(forms) :]}
        self.made: Final[Callable[..., T]] = made or (partial(of, **unsaid) if unsaid else of)
        itself = not self.packs and hasattr(of, "_fields")
        self.form: Final = Form(
            _array_reader(self, least), None if itself else self.pack, expected=f"[{', '.join(self.names)}]"
        )

    def pack(self, value: T) -> list[Any]:
        """Return the fields of a value, as they are packed."""
        packed = list(self.values(value))
        for at, pack in self.packs:
            packed[at] = pack(packed[at])
        return packed

    def says_all(self, value: T) -> bool:
        """Return whether the fields that the layout omits have the values that a reader gives them."""
        return all(getattr(value, name) == held for name, held in self._unsaid.items())

    def pack_map(self, value: T) -> dict[str, Any]:
        """Return the fields of a value by their names, as they are packed."""
        packed = dict(zip(self.names, self.pack(value), strict=True))
        for name in self._omitted:
            if packed[name] is None:
                del packed[name]
        return packed

    @cached_property
    def map(self) -> Fields[T]:
        """The fields of a value that stands as a map; others may be beside them."""
        fields = {
            name: Field(form, _default(self.of, name))
            for name, form in zip(self.names, self.forms, strict=True)
        }
        return Fields(self.called, self.made, fields, ignores=True)

    def unpack_map(self, value: Any, name: str) -> T:
        """Return the value whose fields a map has by their names.

        Of absent ones the defaults hold; others are ignored.

        Raises:
            ProtocolError: it is no map, a field without a default is missing, or a field is wrong.
        """
        return self.map.unpack(value, name)

    @property
    def map_form(self) -> Form:
        """The form of a value that stands as a map."""
        return Form(self.unpack_map, self.pack_map, expected=f"a map of {', '.join(self.names)}")


def row(*numbered: Form, **named: Form) -> Form:
    """Return the form of a tuple, whose places have names for errors, or their numbers."""
    forms = {**{f"{at}": form for at, form in enumerate(numbered)}, **named}
    names, checks = tuple(forms), tuple(form.unpack for form in forms.values())
    packs = tuple((at, form.pack) for at, form in enumerate(forms.values()) if form.pack is not None)
    same = all(form.same for form in forms.values())
    length = len(forms)

    def unpack(value: Any, name: str) -> tuple[Any, ...]:
        if type(value) is not tuple or len(value) != length:
            raise wrong(name, f"an array of {length}", value)
        try:
            if not same:
                return tuple([check(one, name) for check, one in zip(checks, value, strict=True)])
            for check, one in zip(checks, value):  # noqa: B905 (they are equally long, and it takes time to ask)
                check(one, name)
        except ProtocolError:
            # Only now is it worth while to name each place.
            for check, one, place in zip(checks, value, names, strict=True):
                check(one, f"{name}.{place}")
            raise
        return value

    def pack(value: tuple[Any, ...]) -> list[Any]:
        packed = list(value)
        for at, pack_one in packs:
            packed[at] = pack_one(packed[at])
        return packed

    read: Unpack = unpack
    match [form.bounds for form in forms.values()]:
        case [(int(), int()) as one, (int(), int()) as two]:
            read = _pairs(one, two, unpack)
        case [(int(), int()) as one, (int(), int()) as two, (int(), int()) as three]:
            read = _triples(one, two, three, unpack)
    return Form(read, pack if packs else None, same, expected=f"[{', '.join(names)}]")


Bounds = tuple[int, int]


def _pairs(one: Bounds, two: Bounds, unpack: Unpack) -> Unpack:
    """Return a reader of rows of two integers, of which some messages have many.

    `unpack` says what is wrong with a row.
    """
    (low, high), (low_2, high_2) = one, two

    def unpack_pair(value: Any, name: str) -> Any:
        if type(value) is tuple and len(value) == 2:
            a, b = value
            if type(a) is int and type(b) is int and low <= a <= high and low_2 <= b <= high_2:
                return value
        return unpack(value, name)

    return unpack_pair


def _triples(one: Bounds, two: Bounds, three: Bounds, unpack: Unpack) -> Unpack:
    (low, high), (low_2, high_2), (low_3, high_3) = one, two, three

    def unpack_triple(value: Any, name: str) -> Any:
        if type(value) is tuple and len(value) == 3:
            a, b, c = value
            if (
                type(a) is int
                and type(b) is int
                and type(c) is int
                and low <= a <= high
                and low_2 <= b <= high_2
                and low_3 <= c <= high_3
            ):
                return value
        return unpack(value, name)

    return unpack_triple


def _array_reader(record: Record[Any], least: int | None) -> Unpack:
    checks, labels, names, made = record.checks, record.labels, record.names, record.made
    most = len(checks)
    least = most if least is None else least
    size = f"{most}" if least == most else f"{least} to {most}"
    expected = (
        f"an array of {size} fields of {record.called}: {', '.join(names)}" if names else "an array of 0"
    )

    def unpack(value: Any, name: str) -> Any:
        if type(value) is not tuple or not least <= len(value) <= most:
            raise wrong(name, expected, value)
        try:
            values = [check(one, label) for check, one, label in zip(checks, value, labels, strict=False)]
        except ProtocolError:
            # Only now is it worth while to say where in the whole this stands.
            for check, one, field in zip(checks, value, names, strict=False):
                check(one, f"{name}.{field}")
            raise
        return made(*values)

    return unpack


def _names(of: type[Any]) -> tuple[str, ...]:
    named: tuple[str, ...] | None = getattr(of, "_fields", None)
    return tuple(field.name for field in fields(of)) if named is None else named


def _default(of: type[Any], name: str) -> Any:
    return NOTHING if hasattr(of, "_fields") else getattr(fields(of), name).default


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    match names:
        case ():
            return lambda _: ()
        case (name,):
            return lambda value: (getattr(value, name),)
    return attrgetter(*names)


# -- maps


class Field(NamedTuple):
    """Field of a map; `default` holds where it is absent, and with `NOTHING` it must be there."""

    form: Form
    default: Any = NOTHING


class Fields(Generic[T_co]):
    """Fields of a map by their names, and what is made of them.

    Args:
        called: what errors call such a map where nothing says where it stands.
        made: takes the values in the order of `fields`; may raise `ProtocolError`.
        fields: by their names.
        skips: a field that may be there and that others look at.
        ignores: any other field may be there as well, which a newer release may know; if not, it is refused.
    """

    def __init__(
        self,
        called: str,
        made: Callable[..., T_co],
        fields: Mapping[str, Field],
        *,
        skips: str | None = None,
        ignores: bool = False,
    ) -> None:
        self.called: Final = called
        self.made: Final = made
        self.fields: Final = fields
        self._ignores: Final = ignores
        self._defaults: Final = [field.default for field in fields.values()]
        self._required: Final = [name for name, field in fields.items() if field.default is NOTHING]
        self._places: Final[dict[str, tuple[int, Unpack | None, str]]] = {
            name: (at, None if field.form.unpack is _itself else field.form.unpack, f"{called}.{name}")
            for at, (name, field) in enumerate(fields.items())
        }
        self._skips: Final = skips

    @classmethod
    def of(cls, called: str, made: Callable[..., T_co], /, **forms: Form) -> Fields[T_co]:
        """Fields that are the parameters of a class or a function: see `parameters`."""
        return cls(called, made, parameters(made, **forms))

    def unpack(self, value: Any, name: str) -> T_co:
        """Return what is made of a map.

        Raises:
            ProtocolError: it is no map, or a field is missing, wrong, or unknown and not ignored.
        """
        if type(value) is not dict:
            raise wrong(name, f"a map of {', '.join(self.fields)}", value)
        if self._ignores:
            return self._unpack_known(value, name)
        values = [*self._defaults]
        places, skips = self._places, self._skips
        try:
            for field, one in value.items():
                if field == skips:
                    continue
                try:
                    place, check, label = places[field]
                except KeyError:
                    raise self._unknown(field, name) from None
                values[place] = one if check is None else check(one, label)
        except ProtocolError:
            if name != self.called:
                # Only now is it worth while to say where in the whole this stands.
                for field, one in value.items():
                    if field in places:
                        self.fields[field].form.unpack(one, f"{name}.{field}")
            raise
        for field in self._required:
            if field not in value:
                raise self._missing(field, name)
        return self.made(*values)

    def _unpack_known(self, value: dict[Any, Any], name: str) -> T_co:
        """Return what is made of the fields of a map that are known; the others are not looked at."""
        try:
            values = [
                self._defaults[at]
                if field not in value
                else value[field]
                if check is None
                else check(value[field], label)
                for field, (at, check, label) in self._places.items()
            ]
        except ProtocolError:
            if name != self.called:
                # Only now is it worth while to say where in the whole this stands.
                for field, known in self.fields.items():
                    if field in value:
                        known.form.unpack(value[field], f"{name}.{field}")
            raise
        for field in self._required:
            if field not in value:
                raise self._missing(field, name)
        return self.made(*values)

    def _unknown(self, field: Any, name: str) -> ProtocolError:
        known = ", ".join(sorted(self.fields))
        return ProtocolError(f"{name}: an unknown field {shown(field)}, known are {known}")

    def _missing(self, field: str, name: str) -> FieldError:
        expected = self.fields[field].form.expected
        return FieldError(
            f"{name}: expected a field {field!r}, found none", f"{name}.{field}", expected, NOTHING
        )


def parameters(made: Callable[..., Any], /, **forms: Form) -> dict[str, Field]:
    """Return the fields that a class or a function is made of: names, order and defaults are those of its parameters."""
    found = signature(made).parameters
    assert found.keys() == forms.keys(), f"{made}: {[*found]} need forms, found {[*forms]}"
    return {
        name: Field(forms[name], NOTHING if parameter.default is parameter.empty else parameter.default)
        for name, parameter in found.items()
    }


# -- kinds of records


class Kinds(Generic[T]):
    """Records of which each may stand in one place; a number or a name says which it is.

    Numbers and names are never used again: a record that changes its meaning takes a new one. If several records are of
    one class, a value is packed as the first one that says all of it, or else as the last one.

    Args:
        what: what errors call a value of any of them.
        records: by number or name.
        quick: reads most arrays of a kind faster than its forms, by kind. Gives None for an array that it does not
            accept: then the forms read it, or say what is wrong. It must accept nothing that they refuse.
    """

    def __init__(
        self,
        what: str,
        records: Mapping[Any, Record[Any]],
        quick: Mapping[int, Callable[[tuple[Any, ...]], Any]] | None = None,
    ) -> None:
        quick = quick or {}
        self.what: Final = what
        self.records: Final = records
        self._of: dict[type[Any], list[tuple[Any, Record[Any]]]] = {}
        for kind, record in records.items():
            self._of.setdefault(record.of, []).append((kind, record))
        self._only = {of: known[0] for of, known in self._of.items() if len(known) == 1}
        self._quick = quick
        self._readers = {
            kind: (quick.get(kind), record.made, record.checks, record.labels)
            for kind, record in records.items()
        }

    def of(self, value: T) -> tuple[Any, Record[Any]]:
        """Return the kind and the record that a value is packed as."""
        *older, newest = self._of[type(value)]
        for each in older:
            if each[1].says_all(value):
                return each
        return newest

    def record(self, kind: Any) -> Record[Any]:
        """Return the record of a kind.

        Raises:
            ProtocolError: this release knows none.
        """
        record = self.records.get(kind) if type(kind) in (int, str) else None
        if record is None:
            raise self._unknown(kind)
        return record

    def _unknown(self, kind: Any) -> ProtocolError:
        known = ", ".join(map(str, self.records))
        return wrong(self.what, f"one of the kinds [{known}]; a newer release may know it", kind)

    def pack(self, value: T) -> list[Any]:
        """Return the array `[kind, field, ...]`."""
        of = type(value)
        kind, record = self._only[of] if of in self._only else self.of(value)
        packed = [kind, *record.values(value)]
        for at, pack in record.packs:
            packed[at + 1] = pack(packed[at + 1])
        return packed

    def unpack(self, value: Any) -> T:
        """Return the value of an array `[kind, field, ...]`.

        Raises:
            ProtocolError: the kind is unknown, or a field is missing, of another type or out of range.
        """
        if type(value) is not tuple or not value:
            raise wrong(self.what, "an array that starts with its kind", value)
        kind = value[0]
        if type(kind) is not int or kind not in self._readers:
            raise self._unknown(kind)
        quick, make, checks, labels = self._readers[kind]
        if quick is not None:
            read: T | None = quick(value)
            if read is not None:
                return read
        if len(value) != len(checks) + 1:
            raise ProtocolError(
                f"{self.records[kind].called}: expected {len(checks)} fields after the kind, found {len(value) - 1}"
            )
        made: T = make(
            *[check(one, label) for check, one, label in zip(checks, value[1:], labels, strict=True)]
        )
        return made

    def decode(self, buffer: bytes | memoryview) -> T:
        """Return the value of an array `[kind, field, ...]` that is exactly these bytes: `unpack` of `from_bytes`.

        Raises:
            ProtocolError: see there.
        """
        try:
            value = _from_bytes(buffer)
        except _NOT_MESSAGEPACK as error:
            raise _not_one_value(buffer, error) from error
        if type(value) is tuple and value and type(value[0]) is int and value[0] in self._quick:
            read: T | None = self._quick[value[0]](value)
            if read is not None:
                return read
        return self.unpack(value)

    def unpack_all(self, values: Iterable[Any]) -> list[T]:
        """Return the values of unpacked arrays: as `unpack` of each, with less around those that are read quickly.

        Raises:
            ProtocolError: see there.
        """
        readers, made = self._quick, []
        for value in values:
            read: T | None = None
            if type(value) is tuple and value and type(value[0]) is int:
                quick = readers.get(value[0])
                if quick is not None:
                    read = quick(value)
            made.append(self.unpack(value) if read is None else read)
        return made


# -- bytes


def to_bytes(value: Any) -> bytes:
    """Return the bytes of a packed value."""
    return _Packer().pack(value)  # type: ignore[no-any-return]


_Packer: Final = msgpack.Packer


def from_bytes(buffer: bytes | memoryview) -> Any:
    """Return the MessagePack value of exactly these bytes, with arrays as tuples.

    Raises:
        ProtocolError: not one MessagePack value, or one with text, maps or extensions, which records between servers and
            on their disks do not have.
    """
    try:
        return _from_bytes(buffer)
    except _NOT_MESSAGEPACK as error:
        raise _not_one_value(buffer, error) from error


_from_bytes: Final = partial(msgpack.unpackb, use_list=False, max_str_len=0, max_map_len=0, max_ext_len=0)
_NOT_MESSAGEPACK: Final = (ValueError, msgpack.UnpackException)


def _not_one_value(buffer: bytes | memoryview, error: Exception) -> ProtocolError:
    return ProtocolError(
        f"expected MessagePack integers, booleans, nil, binaries and arrays; found {len(buffer)} other bytes: "
        f"{type(error).__name__}: {error}"
    )


def formatted(value: Any, what: str, version: int, length: int) -> tuple[Any, ...]:
    """Return an array whose first item is the version of its format, which is checked before anything else.

    Raises:
        ProtocolError: it is none, or of another version.
    """
    items = array(value, what)
    if not items or type(items[0]) is not int:
        raise wrong(what, "an array that begins with the version of its format", value)
    if items[0] != version:
        raise ProtocolError(f"{what}: format {items[0]}, this release knows {version}: upgrade this server")
    return array(items, what, length)
