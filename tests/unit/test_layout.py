"""Layouts of records: what is declared once is packed, checked and named in errors."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, NamedTuple

import pytest
from attrs import NOTHING, frozen

from zraft_core import layout
from zraft_core.annotated import Annotated
from zraft_core.errors import ProtocolError
from zraft_core.layout import Form, Kinds, Record, from_bytes, number, to_bytes
from zraft_core.messagepack import unpack


class Colour(IntEnum):
    RED = 1
    BLUE = 2


class Word(Enum):
    YES = "yes"
    NO = "no"


class Pair(NamedTuple):
    left: int
    right: int


@frozen
class Inner:
    name: str
    pairs: tuple[Pair, ...] = ()


@frozen
class Outer:
    colour: Colour
    inner: Inner
    digest: int
    limit: int | None = None
    later: int = 7


PAIR = Record(Pair, number, number)
INNER = Record(Inner, layout.text(10), layout.listed(PAIR.form, 3))
FIELDS = (layout.member(Colour), INNER.form, layout.big_integer(4))
OLD = Record(Outer, *FIELDS, layout.optional(number))
NEW = Record(Outer, *FIELDS, layout.optional(number), number)
KINDS = Kinds[Outer | Inner]("thing", {3: OLD, 5: INNER, 8: NEW})
VALUE = Outer(Colour.BLUE, Inner("é", (Pair(1, 2), Pair(3, 4))), 2**32 - 1, 5)


@pytest.mark.parametrize(
    ("form", "value", "packed"),
    [
        (number, 5, 5),
        (layout.binary(0, 3), b"abc", b"abc"),
        (layout.string(1, 3), "abc", "abc"),
        (layout.text(3), "é", "é".encode()),
        (layout.big_integer(16), 2**127, (2**127).to_bytes(16)),
        (layout.boolean, True, True),
        (layout.member(Colour), Colour.RED, 1),
        (layout.member(Word), Word.NO, "no"),
        (layout.choice("a", "b"), "b", "b"),
        (layout.any_string, "é" * 5, "é" * 5),
        (layout.any_binary, b"", b""),
        (layout.anything("a key"), (1, b"a"), (1, b"a")),
        (layout.optional(number), None, None),
        (layout.optional(number), 5, 5),
        (layout.optional(layout.text(3)), None, None),
        (layout.optional(layout.text(3)), "x", b"x"),
        (layout.listed(layout.text(3), 2), ("a", "b"), (b"a", b"b")),
        (layout.ascending(number, 3), (1, 5, 9), (1, 5, 9)),
        (layout.as_set(layout.ascending(number, 3)), frozenset((5, 1)), (1, 5)),
        (layout.row(at=number, name=layout.text(3)), (4, "a"), (4, b"a")),
        (layout.row(one=number, two=number, three=number), (4, 5, 6), (4, 5, 6)),
        (PAIR.form, Pair(1, 2), (1, 2)),
    ],
)
def test_a_value_comes_out_as_it_went_in(form: Form, value: Any, packed: Any) -> None:
    stands = from_bytes_or_text(form.pack(value) if form.pack else value)
    assert stands == packed
    found = form.unpack(packed, "it")
    assert found == value
    assert type(found) is type(value)
    assert not form.same or form.unpack(packed, "it") is packed


def from_bytes_or_text(value: Any) -> Any:
    return value if isinstance(value, str) else from_bytes(to_bytes(value))


@pytest.mark.parametrize(
    ("form", "value", "complaint"),
    [
        (number, True, r"^it: expected an integer from 0 to \d+, found bool True$"),
        (number, -1, r"found int -1$"),
        (number, 1.0, r"found float 1.0$"),
        (layout.binary(1, 3), b"", r"^it: expected 1 to 3 bytes, found bytes of length 0$"),
        (layout.string(1, 3), "abcd", r"^it: expected a text of 1 to 3 characters, found str 'abcd'$"),
        (layout.text(3), b"\xff", r"^it: expected UTF-8, found bytes of length 1$"),
        (layout.big_integer(4), b"abc", r"^it: expected 4 bytes, found bytes of length 3$"),
        (layout.boolean, 1, r"^it: expected true or false, found int 1$"),
        (layout.member(Colour), 3, r"^it: expected one of 1, 2, found int 3$"),
        (layout.member(Colour), True, r"found bool True$"),
        (layout.member(Word), {}, r"^it: expected one of yes, no, found dict of length 0$"),
        (layout.choice("a", "b", "c"), "d", r"^it: expected a, b or c, found str 'd'$"),
        (layout.choice("a"), 1, r"^it: expected a, found int 1$"),
        (layout.any_string, b"a", r"^it: expected a string, found bytes of length 1$"),
        (layout.any_binary, "a", r"^it: expected bin, found str 'a'$"),
        (layout.optional(number), "x", r"^it: expected an integer from 0 to \d+ or nil, found str 'x'$"),
        (layout.optional(layout.any_binary), 1, r"^it: expected bin or nil, found int 1$"),
        (
            layout.optional(layout.listed(number, 2)),
            (1, -1),
            r"^it\[1\]: expected an integer from 0 to \d+, found",
        ),
        (layout.listed(number, 2), 5, r"^it: expected an array of 0 to 2, of which each is an integer from"),
        (layout.listed(number, 2), (1, 2, 3), r"^it: expected 0 to 2 items, found tuple of length 3$"),
        (layout.listed(number, 2), (1, "x"), r"^it\[1\]: expected an integer from"),
        (layout.listed(PAIR.form, 2), ((1, 2), (3, -4)), r"^it\[1\]\.right: expected an integer from .* -4$"),
        (layout.ascending(number, 3), (1, 1), r"^it: expected ascending items"),
        (
            layout.ruled(number, lambda n: n % 2 == 0, "an even number"),
            3,
            r"^it: expected an even number, found",
        ),
        (layout.row(at=number, to=number), (1,), r"^it: expected an array of 2, found tuple of length 1$"),
        (
            layout.row(at=number, to=number),
            (1, None),
            r"^it\.to: expected an integer .* found NoneType None$",
        ),
        (layout.row(a=number, b=number, c=number), (1, 2, True), r"^it\.c: expected an integer"),
        (
            INNER.form,
            (b"a",),
            r"^it: expected an array of 2 fields of Inner: name, pairs, found tuple of length 1$",
        ),
        (INNER.form, (b"a", ((1, None),)), r"^it\.pairs\[0\]\.right: expected an integer"),
    ],
)
def test_an_error_says_where_what_was_expected_and_what_was_found(
    form: Form, value: Any, complaint: str
) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        form.unpack(value, "it")


def test_errors_are_short_however_large_the_value_is() -> None:
    for value in ("x" * 10**6, 10**1000, b"x" * 10**6, tuple(range(10**5)), {1: "x" * 10**6}):
        with pytest.raises(ProtocolError) as caught:
            layout.boolean.unpack(value, "it")
        assert len(str(caught.value)) < 200


def test_a_value_is_packed_as_the_first_kind_that_says_all_of_it() -> None:
    packed = from_bytes(to_bytes(KINDS.pack(VALUE)))
    assert packed == (3, 2, ("é".encode(), ((1, 2), (3, 4))), b"\xff" * 4, 5)
    newer = Outer(Colour.RED, Inner("a"), 0, None, 9)
    assert from_bytes(to_bytes(KINDS.pack(newer))) == (8, 1, (b"a", ()), bytes(4), None, 9)
    for value in (VALUE, newer, VALUE.inner):
        assert KINDS.unpack(from_bytes(to_bytes(KINDS.pack(value)))) == value


def test_what_a_kind_does_not_say_may_be_declared() -> None:
    plain, marked = (
        Record(Outer, *FIELDS, layout.optional(number)),
        Record(Outer, *FIELDS, layout.optional(number), later=1),
    )
    kinds = Kinds[Outer]("thing", {1: plain, 2: marked})
    value = Outer(Colour.RED, Inner("a"), 0, None, 1)
    assert kinds.pack(value)[0] == 2
    assert kinds.unpack(from_bytes(to_bytes(kinds.pack(value)))) == value


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        ((), "^thing: expected an array that starts with its kind, found tuple of length 0$"),
        (b"x", "^thing: expected an array that starts with its kind, found bytes of length 1$"),
        ((4,), r"^thing: expected one of the kinds \[3, 5, 8\]; a newer release may know it, found int 4$"),
        ((True,), r"^thing: expected one of the kinds .* found bool True$"),
        ((5, b"a"), "^Inner: expected 2 fields after the kind, found 1$"),
        (
            (5, b"a", ((1, b""),)),
            r"^Inner\.pairs\[0\]\.right: expected an integer .* found bytes of length 0$",
        ),
    ],
)
def test_an_array_of_no_kind_is_refused(array: Any, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        KINDS.unpack(array)


def test_fields_at_the_end_may_be_absent_where_that_is_declared() -> None:
    record = Record(Outer, *FIELDS, layout.optional(number), number, least=3)
    assert record.form.unpack((1, (b"a", ()), bytes(4)), "it") == Outer(Colour.RED, Inner("a"), 0)
    with pytest.raises(
        ProtocolError, match=r"^it: expected an array of 3 to 5 fields of Outer: colour, inner,"
    ):
        record.form.unpack((1, (b"a", ())), "it")


def test_a_record_may_stand_as_a_map_with_the_names_of_its_fields() -> None:
    stands = OLD.pack_map(VALUE)
    assert list(stands) == ["colour", "inner", "digest", "limit"]
    found = {"colour": 2, "inner": ("é".encode(), ((1, 2), (3, 4))), "digest": b"\xff" * 4, "limit": 5}
    assert OLD.unpack_map(found, "it") == VALUE
    del found["limit"]
    assert OLD.unpack_map({**found, "newer": 1}, "it").limit is None
    del found["digest"]
    with pytest.raises(ProtocolError, match=r"^it: expected a field 'digest', found none$"):
        OLD.unpack_map(found, "it")
    with pytest.raises(ProtocolError, match=r"^it\.colour: expected one of 1, 2"):
        OLD.unpack_map({**found, "colour": 9}, "it")


@frozen
class Sparse:
    """A field that is left out where there is nothing to say, beside one that is not."""

    always: int | None
    at_times: int | None = None
    colour: Colour | None = None


SPARSE = Record(
    Sparse, layout.optional(number), layout.or_absent(number), layout.or_absent(layout.member(Colour))
)


def test_a_field_of_a_map_may_be_left_out_where_there_is_nothing_to_say() -> None:
    assert SPARSE.pack_map(Sparse(None)) == {"always": None}
    assert SPARSE.pack_map(Sparse(1, 2, Colour.RED)) == {"always": 1, "at_times": 2, "colour": 1}
    for value in (Sparse(None), Sparse(1, 2, Colour.RED)):
        assert SPARSE.unpack_map(SPARSE.pack_map(value), "it") == value
    with pytest.raises(ProtocolError, match=r"^it\.at_times: expected an integer .* found NoneType None$"):
        SPARSE.unpack_map({"always": 1, "at_times": None}, "it")
    assert layout.called(number, "the count").expected == "the count"


def place(name: str, at: int = 7, note: str | None = None) -> tuple[str, int, str | None]:
    if name == "nowhere":
        raise layout.wrong("place.name", "the name of a place", name)
    return name, at, note


PLACE_FIELDS = layout.parameters(
    place, name=layout.any_string, at=number, note=layout.optional(layout.any_string)
)
PLACE = layout.Fields("place", place, PLACE_FIELDS, skips="type")


def test_fields_of_a_map_have_the_names_and_defaults_of_what_is_made_of_them() -> None:
    assert PLACE.unpack({"name": "a"}, "place") == ("a", 7, None)
    assert PLACE.unpack({"note": "x", "type": 3, "at": 8, "name": "a"}, "place") == ("a", 8, "x")
    ignoring = layout.Fields("place", place, PLACE.fields, ignores=True)
    assert ignoring.unpack({"name": "a", "newer": 1, b"type": 2}, "place") == ("a", 7, None)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ((), r"^all\[2\]: expected a map of name, at, note, found tuple of length 0$"),
        ({}, r"^all\[2\]: expected a field 'name', found none$"),
        ({"name": "a", "at": -1}, r"^all\[2\]\.at: expected an integer from 0 to \d+, found int -1$"),
        ({"name": "a", "size": 1}, r"^all\[2\]: an unknown field 'size', known are at, name, note$"),
        ({"name": "a", b"at": 1}, r"^all\[2\]: an unknown field 2 bytes, known are at, name, note$"),
        ({"name": "nowhere"}, r"^all\[2\]: place\.name: expected the name of a place, found str 'nowhere'$"),
    ],
)
def test_an_error_in_a_map_says_where_it_stands(value: Any, complaint: str) -> None:
    several = layout.listed(Form(PLACE.unpack), 5)
    with pytest.raises(ProtocolError, match=complaint):
        several.unpack(({"name": "a"}, {"name": "b"}, value), "all")


def test_an_error_has_its_parts_for_those_who_say_it_in_their_own_words() -> None:
    with pytest.raises(layout.FieldError) as caught:
        PLACE.unpack({"at": 1}, "place")
    assert (caught.value.field, caught.value.expected, caught.value.value) == (
        "place.name",
        "a string",
        NOTHING,
    )
    with pytest.raises(layout.FieldError) as caught:
        PLACE.unpack({"name": "a", "at": "x"}, "place")
    assert (caught.value.field, caught.value.value) == ("place.at", "x")


def test_fields_and_forms_that_do_not_fit_are_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match=r"\['name', 'at', 'note'\] need forms, found \['name'\]"):
        layout.Fields.of("place", place, name=layout.any_string)


@frozen
class Told:
    word: Word
    outer: tuple[Outer | None, ...]
    pair: tuple[int, str]
    since: int = 4


FORMS = Annotated({int: number, str: layout.string(0, 5), Pair: PAIR.form}, items_max=2)


def test_a_record_follows_from_the_annotations_of_its_class() -> None:
    record = FORMS.record(Told)
    assert FORMS.record(Told) is record
    value = Told(Word.NO, (None, Outer(Colour.RED, Inner("a"), 5)), (1, "x"))
    stands = ("no", (None, (1, ("a", ()), 5, None, 7)), (1, "x"), 4)
    assert unpack(to_bytes(record.pack(value))) == stands
    assert record.form.unpack(stands, "it") == value
    assert FORMS.record(Told, unsaid=1).form.unpack(stands[:3], "it") == value
    for wrong, complaint in (
        (
            ("no", (None, (9, ("a", ()), 5, None, 7)), (1, "x"), 4),
            r"^it\.outer\[1\]\.colour: expected one of 1, 2, ",
        ),
        (("no", (None,) * 3, (1, "x"), 4), r"^it\.outer: expected 0 to 2 items, found tuple of length 3$"),
        (("no", (), (1, 2), 4), r"^it\.pair\.1: expected a text of 0 to 5 characters, found int 2$"),
        (stands[:3], r"^it: expected an array of 4 fields of Told: word, outer, pair, since, found tuple"),
    ):
        with pytest.raises(ProtocolError, match=complaint):
            record.form.unpack(wrong, "it")


def test_a_type_without_a_form_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match=r"float.* has no canonical form"):
        FORMS.form(tuple[float, ...])


def test_text_maps_and_extensions_are_no_record_between_servers() -> None:
    for value in ("x", {1: 2}, 5.5):
        packed = to_bytes(value)
        if isinstance(value, float):
            assert from_bytes(packed) == value  # no form takes one
            continue
        with pytest.raises(
            ProtocolError, match=r"^expected MessagePack integers, booleans, nil, binaries and"
        ):
            from_bytes(packed)


def test_a_record_with_fewer_fields_than_forms_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="Pair has fields"):
        Record(Pair, number, number, number)
