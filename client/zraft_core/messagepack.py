"""Reader of MessagePack that somebody else wrote: its cost follows from the length, whatever it contains.

MessagePack's own reader does what the bytes say, and three things that they can say cost more than they are long:

- Keys of maps that hash alike. A dict looks at each of them for each further one, so that a megabyte takes a minute.
  Python randomises the hashes of text and bytes; those of numbers, and of arrays and timestamps of numbers, can be
  computed by anybody (`hash(-1) == hash(-2)`). So maps with such keys are read as pairs before anything is hashed.
- Lengths of what does not follow. Ten kilobytes of headers promise arrays for which eighty megabytes are set aside. So
  bytes are walked, which keeps nothing, before anything is built.
- Depth. A function that calls itself for each level, such as `repr`, ends at Python's limit, with an error that nobody
  expects.

Maps whose keys are text or bytes, as nearly all are, are read by MessagePack's reader alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import proxy

import msgpack

from zraft_core.errors import ProtocolError

T = TypeVar("T")

COUNTED_KEYS_MAX: Final = 256
"""Keys of one request that are arrays, timestamps or extensions; the keys of one map that anybody reads unchecked."""

MAP_BYTES: Final = 16
"""The bytes of a request per map, on average, where maps have keys that are no text and no bytes: calls make
those.
"""

MAPS_MIN: Final = 4_096
"""The number of maps that any request may have."""

PROBES_MAX: Final = 32
"""Places of a dict that each key may look at before it finds its own, on average. Random ones look at one, and regular ones
that occur, such as multiples of a large power of two, at up to twenty."""

FEW_KEYS: Final = 2 * PROBES_MAX
"""Keys of one map that are read unchecked where there are many maps."""

LEVELS_MAX: Final = 256
"""Arrays and maps in one another that `unpack` reads: functions that call themselves have room for three calls a level."""

SHORT_BYTES: Final = 256
"""The size below which a value can promise or nest little, and is not walked."""

SHOWN_CHARACTERS_MAX: Final = 100
"""The most characters of a value in an error: whoever wrote the value knows it."""

WHY_CHARACTERS_MAX: Final = 250

READER_LEVELS_MAX: Final = 1_024
"""The depth that MessagePack's readers in Python can read."""

_TABLE_SIZE_MIN: Final = 8


class RefusedValueError(ProtocolError):
    """A whole value that cannot be held, or may not; what follows it can be read.

    `known` is what its fields `id` and `type` are, if it is a map: they tell whom to answer.
    """

    def __init__(self, why: str, known: dict[str, Any]) -> None:
        super().__init__(why)
        self.known = known


class UnhashedMap(dict[Any, Any]):
    """A map none of whose keys was hashed: it can be counted and packed again, pair by pair, and nothing else."""

    __slots__ = ("pairs",)

    pairs: list[tuple[Any, Any]]
    """The pairs as they came; of two with one key, whoever hashes them takes the last."""

    def __len__(self) -> int:
        return len(self.pairs)

    def items(self) -> Any:
        """Return the pairs."""
        return self.pairs


# -- one value


def unpack(data: bytes, *, lists: bool = False, any_keys: bool = False, levels: int = LEVELS_MAX) -> Any:
    """Return the one value that the bytes are.

    Args:
        data: all bytes of the value, and no others.
        lists: arrays become lists, and not tuples.
        any_keys: maps may have keys that are no text and no bytes.
        levels: how deep arrays and maps may be in one another, at most 1,024; what is shorter than `SHORT_BYTES` always
            passes.

    Raises:
        ProtocolError: they are no value, or one that is refused; says what was found.
    """
    if len(data) >= SHORT_BYTES:
        _walk(data, levels)
    try:
        return msgpack.unpackb(data, use_list=lists, ext_hook=_extension)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        if not any_keys or isinstance(error, msgpack.UnpackException):
            raise ProtocolError(f"{len(data)} bytes that are not MessagePack: {_why(error)}") from error
    try:
        return _read_pairs(data, lists=lists, hashes=True)
    except (ValueError, TypeError) as error:
        raise ProtocolError(
            f"{len(data)} bytes that are not MessagePack, or that Python cannot hold: {_why(error)}"
        ) from error


def _walk(data: bytes, levels: int) -> None:
    walker = msgpack.Unpacker(read_size=SHORT_BYTES, max_buffer_size=0)
    outside = b"\x91" * (
        READER_LEVELS_MAX - levels
    )  # arrays of one, which take the levels that nothing may use
    walker.feed(outside)
    walker.feed(data)
    try:
        walker.skip()
    except msgpack.OutOfData:
        raise ProtocolError(f"{len(data)} bytes of a longer value of MessagePack") from None
    except msgpack.StackError:
        raise ProtocolError(f"a value nested deeper than {levels} levels") from None
    except ValueError as error:
        raise ProtocolError(f"{len(data)} bytes that are not MessagePack: {_why(error)}") from error
    if (further := len(outside) + len(data) - walker.tell()) > 0:
        raise ProtocolError(f"a value of MessagePack and {further} further bytes")


def _why(error: Exception) -> str:
    return str(error)[:WHY_CHARACTERS_MAX] or type(error).__name__


def _extension(code: int, data: bytes) -> Any:
    # The class is not called, since it checks what a reader knows, and takes three times as long.
    return tuple.__new__(msgpack.ExtType, (code, data))


# -- a stream of values


class Decoder:
    """Decoder of values one after the other, in whatever pieces they come; arrays become tuples.

    Call `next` on `values`; it raises `StopIteration` when nothing whole is left. A `RefusedValueError` is about one value,
    which is over: go on. After another `ValueError` or `TypeError`, `look_closer` tells whether the value can be read in
    another way.

    Args:
        hashes: maps become dicts, and those are refused whose keys are made to hash alike. If not, no key is hashed but
            text and bytes: other maps are `UnhashedMap`, and a value is refused if more than `COUNTED_KEYS_MAX` of its keys
            are arrays, timestamps or extensions, or if it has such maps and more than one map per `MAP_BYTES`.
        bytes_max: the longest value; 0 if whoever feeds has seen to it.

    Attributes:
        values: an iterator; its `tell` says where the next value begins, in bytes from where `values` began.
    """

    __slots__ = ("__weakref__", "_bytes_max", "_fed", "_hashes", "_held", "_start", "values")

    def __init__(self, *, hashes: bool, bytes_max: int = 0) -> None:
        self._hashes = hashes
        self._bytes_max = bytes_max
        self._held: bytes | bytearray = b""
        self._start = self._fed = 0
        self.values: Any = _fast_values(bytes_max)

    @property
    def is_slow(self) -> bool:
        """True if values are read one by one, and their maps as pairs."""
        return type(self.values) is _PairsReader

    @property
    def left(self) -> int:
        """Bytes that are not read yet; they are held twice."""
        return self._fed - int(self.values.tell())

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            msgpack.BufferFull: a value is longer than `bytes_max`.
        """
        self.values.feed(data)
        self._fed += len(data)
        if not self._held:
            self._held = data
        elif isinstance(self._held, bytearray):
            self._held += data
        else:
            self._held = bytearray(self._held + data)

    def forget(self, end: int) -> int:
        """Forget the values before `end`, which were read; return where the next one begins in the new `values`."""
        if end == self._fed:
            self._held = b""
            self._start = end
            if self.is_slow:
                # The next values may be ordinary again.
                self.values = _fast_values(self._bytes_max)
                self._start = self._fed = 0
                return 0
        elif 2 * (end - self._start) > len(self._held):
            self._held = self._held[end - self._start :]
            self._start = end
        return end

    def look_closer(self, start: int) -> bool:
        """Prepare to read the value at `start` in another way; return False if that was done before.

        `values` is another iterator then, at the beginning of this value.
        """
        if self.is_slow:
            return False
        self._held = bytes(self._held[start - self._start :])
        self._start = 0
        self._fed = len(self._held)
        self.values = _PairsReader(self, hashes=self._hashes, bytes_max=self._bytes_max)
        self.values.feed(self._held)
        return True

    def _between(self, start: int, end: int) -> bytes:
        return bytes(self._held[start - self._start : end - self._start])


def _fast_values(bytes_max: int) -> Any:
    return msgpack.Unpacker(use_list=False, read_size=256, max_buffer_size=bytes_max, ext_hook=_extension)


class _PairsReader:
    """Whole values whose maps may have any keys, each built by itself. Slower: calls per value, and one per map."""

    __slots__ = ("_decoder", "_end", "_hashes", "_walker", "feed")

    def __init__(self, decoder: Decoder, *, hashes: bool, bytes_max: int) -> None:
        # This must not be a circle: what MessagePack's readers hold, some 50 kB each, would stay until the
        # next collection.
        self._decoder = proxy(decoder)
        self._hashes = hashes
        self._walker = msgpack.Unpacker(read_size=256, max_buffer_size=bytes_max)
        self._end = 0
        self.feed = self._walker.feed

    def tell(self) -> int:
        """Return where the next value begins."""
        return self._end

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            self._walker.skip()
        except msgpack.OutOfData:
            raise StopIteration from None
        start, self._end = self._end, self._walker.tell()
        data = self._decoder._between(start, self._end)
        with suppress(ValueError, TypeError):  # one of the others has brought this reader in
            return msgpack.unpackb(data, use_list=False, ext_hook=_extension)
        try:
            value = _read_pairs(data, lists=False, hashes=self._hashes)
        except (ValueError, TypeError) as error:
            raise RefusedValueError(
                f"a message that Python cannot hold: {_why(error)}", _known_of(data)
            ) from error
        if type(value) is UnhashedMap:
            strange = next(key for key, _ in value.pairs if type(key) is not str)
            raise RefusedValueError(f"a field whose name is {shown(strange)}, expected text", _known_of(data))
        return value


def _known_of(data: bytes) -> dict[str, Any]:
    """Return the fields `id` and `type` of a map; nothing else of it is built."""
    known: dict[str, Any] = {}
    reader = msgpack.Unpacker(read_size=256, max_buffer_size=0, object_pairs_hook=len)
    reader.feed(data)
    try:
        for _ in range(reader.read_map_header()):
            name = reader.unpack()
            if name in ("id", "type"):
                known[name] = reader.unpack()
            else:
                reader.skip()
    except (ValueError, TypeError, msgpack.UnpackException):
        pass  # no map, or a name or one of the two fields that is no value either
    return known


def _read_pairs(data: bytes, *, lists: bool, hashes: bool) -> Any:
    """Return one whole value.

    Raises:
        ValueError, TypeError: the value cannot be held, or may not.
    """
    return msgpack.unpackb(
        data,
        use_list=lists,
        strict_map_key=False,
        ext_hook=_extension,
        object_pairs_hook=_Maps(len(data), hashes=hashes),
    )


class _Maps:
    """Maker of the maps of one value from their pairs, innermost first."""

    __slots__ = ("_counted", "_hashes", "_left")

    def __init__(self, size: int, *, hashes: bool) -> None:
        self._hashes = hashes
        self._left = size if hashes else max(MAPS_MIN, size // MAP_BYTES)
        """The number of maps that there may still be; what is stored is read however many there are."""
        self._counted = 0
        """Keys so far that are arrays, timestamps or extensions."""

    def __call__(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        self._left -= 1
        if self._left < 0:
            raise ValueError(_TOO_MANY_MAPS)
        named = True
        for key, _ in pairs:
            kind = key.__class__
            if kind is not str and kind is not bytes:
                named = False
                if kind not in _PLAIN:
                    self._counted += 1
                    if not _is_key(key):
                        raise ValueError(f"{_ODD_KEY}: {shown(key)}")
                    if self._counted > COUNTED_KEYS_MAX and not self._hashes:
                        raise ValueError(_TOO_MANY)
        if named:
            return dict(pairs)
        if not self._hashes:
            made: UnhashedMap = _new_dict(UnhashedMap)
            made.pairs = pairs
            return made
        few = COUNTED_KEYS_MAX if self._counted <= COUNTED_KEYS_MAX else FEW_KEYS
        if len(pairs) > few and is_crowded([key for key, _ in pairs], few):
            raise ValueError(f"a map of {len(pairs)} whose keys are made to hash alike")
        return dict(pairs)


_TOO_MANY: Final = (
    f"maps with more than {COUNTED_KEYS_MAX} keys that are arrays, timestamps or extensions; use text, bytes or numbers as "
    "keys, or several requests"
)
_TOO_MANY_MAPS: Final = (
    f"more than one map per {MAP_BYTES} bytes, and keys that are no text and no bytes; use text or bytes as keys, or larger "
    "maps"
)
_NAMES: Final = frozenset((str, bytes))
_PLAIN: Final = frozenset((str, bytes, int, float, bool, type(None)))
_ODD_KEY: Final = "a key of a map that is, or holds, a map or a list"
_new_dict: Final = dict.__new__


def _is_key(key: Any) -> bool:
    """Return whether a key can be hashed, without trying it: that takes long for a key that is large."""
    left = [key]
    while left:
        one = left.pop()
        if isinstance(one, (dict, list)):
            return False
        if one.__class__ is tuple:
            left += one
    return True


# -- keys


def dict_of(pairs: Iterable[tuple[Any, T]]) -> dict[Any, T]:
    """Return a dict of keys that others chose.

    Raises:
        ProtocolError: they are made to hash alike, or one of them is, or holds, a map or a list.
    """
    held = list(pairs)
    keys = [key for key, _ in held]
    for key in keys:
        if key.__class__ not in _PLAIN and not _is_key(key):
            raise ProtocolError(f"{_ODD_KEY}: {shown(key)}")
    if not {key.__class__ for key in keys} <= _NAMES and is_crowded(keys):
        raise ProtocolError(f"{len(keys)} keys that are made to hash alike")
    return dict(held)


def is_crowded(keys: Sequence[Any], few: int = COUNTED_KEYS_MAX) -> bool:
    """Return whether a dict would take long to hold these keys: more than `PROBES_MAX` places for each.

    Walks through the places as CPython does (Objects/dictobject.c, "lookdict"): a table is twice as large as the one
    before it and takes keys for two thirds of its places; a key goes on from place to place by all bits of its hash,
    five at a time.

    Args:
        keys: in the order in which they are put in; each once.
        few: so many are never too many.
    """
    hashes = [hash(key) for key in keys]
    size = _TABLE_SIZE_MIN
    while True:
        held = hashes[: size * 2 // 3]
        if len(held) > few and _is_slow(held, size):
            return True
        if len(held) == len(hashes):
            return False
        size *= 2


def _is_slow(hashes: list[int], size: int) -> bool:
    mask = size - 1
    taken = bytearray(size)
    left = PROBES_MAX * len(hashes)
    for one in hashes:
        place = one & mask
        if taken[place]:
            rest = one & 0xFFFF_FFFF_FFFF_FFFF
            while taken[place]:
                left -= 1
                rest >>= 5
                place = (place * 5 + rest + 1) & mask
            if left < 0:
                return True
        taken[place] = 1
    return False


# -- errors


def shown(value: Any) -> str:
    """Return a short text of a value for an error message, in little time whatever the value is."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, (tuple, list, dict)):
        return f"{'a map' if isinstance(value, dict) else 'an array'} of {len(value)}"
    found = ascii(value[:SHOWN_CHARACTERS_MAX]) if isinstance(value, str) else repr(value)
    return found if len(found) <= SHOWN_CHARACTERS_MAX else found[:SHOWN_CHARACTERS_MAX] + "…"
