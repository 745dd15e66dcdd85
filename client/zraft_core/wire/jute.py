"""Jute, ZooKeeper's record encoding: the primitive types, read and written, and nothing about any record.

Big-endian throughout: int 4 bytes, long 8 bytes, bool 1 byte; buffer and ustring are an int length and that
many bytes, vector is an int count and that many elements; a length or count of -1 means null, which is not
the same as empty. The few records of the hot path are decoded by hand in `zraft_core.wire.requests` with the
`Struct`s from here; everything else goes through `JuteReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import add
from struct import Struct
from typing import Any, Final, TypeVar

from zraft_core.errors import MarshallingError

INT: Final = Struct(">i")
LONG: Final = Struct(">q")
NULL_LENGTH: Final = -1
NULL: Final = INT.pack(NULL_LENGTH)

_ASCII_LENGTHS: Final = tuple(f"\0\0\0{chr(size)}" for size in range(128))
"""The lengths of strings that are themselves ASCII when they are packed."""

_Element = TypeVar("_Element")


class JuteReader:
    """A cursor over one immutable record. Every method raises `MarshallingError` if the bytes are not there.

    Bytes after the last field are left alone, as ZooKeeper does: newer clients may append fields.
    """

    __slots__ = ("_data", "_offset")

    def __init__(self, data: bytes, offset: int = 0) -> None:
        assert offset >= 0, f"{offset=} is not a position in a frame"
        self._data = data
        self._offset = offset

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return max(0, len(self._data) - self._offset)

    def _take(self, size: int, what: str) -> int:
        start = self._offset
        if size > len(self._data) - start:
            raise MarshallingError(
                f"{what} at byte {start}: expected {size} bytes, found {self.remaining}: "
                "the record is truncated or a length in it is wrong"
            )
        self._offset = start + size
        return start

    def read_struct(self, layout: Struct) -> tuple[Any, ...]:
        """Return the fields of a fixed layout."""
        return layout.unpack_from(self._data, self._take(layout.size, "fields"))

    def read_int(self) -> int:
        """Read a signed 32-bit integer."""
        value: int = INT.unpack_from(self._data, self._take(4, "int"))[0]
        return value

    def read_long(self) -> int:
        """Read a signed 64-bit integer."""
        value: int = LONG.unpack_from(self._data, self._take(8, "long"))[0]
        return value

    def read_bool(self) -> bool:
        """Read a boolean."""
        return self._data[self._take(1, "bool")] != 0

    def read_buffer(self) -> bytes | None:
        """Read a buffer: None if it is null, b"" if it is empty.

        Raises:
            MarshallingError: its length is negative, or beyond the record.
        """
        size = self.read_int()
        if size < 0:
            if size == NULL_LENGTH:
                return None
            raise MarshallingError(
                f"buffer at byte {self._offset - 4}: expected a length of -1 or more, found {size}"
            )
        start = self._take(size, "buffer")
        return self._data[start : start + size]

    def read_ustring(self) -> str | None:
        """Read a string: None if it is null.

        Text that is not UTF-8 is refused, never replaced.

        Raises:
            MarshallingError: it is not UTF-8, or its length is not possible.
        """
        start = self._offset
        raw = self.read_buffer()
        if raw is None:
            return None
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise MarshallingError(f"string at byte {start}: expected UTF-8, found {error.reason}") from error

    def read_text(self) -> str:
        """Read a string that must not be null, such as a path.

        Raises:
            MarshallingError: it is null or no such string.
        """
        start = self._offset
        text = self.read_ustring()
        if text is None:
            raise MarshallingError(f"string at byte {start}: expected text, found null")
        return text

    def read_vector(
        self, read_element: Callable[[], _Element], element_bytes_min: int
    ) -> tuple[_Element, ...] | None:
        """Read a vector: None if it is null.

        Raises:
            MarshallingError: its count is negative, or more than the rest of the record can hold.
        """
        assert element_bytes_min > 0, "elements without bytes would make the count unbounded"
        start = self._offset
        count = self.read_int()
        if count < 0:
            if count == NULL_LENGTH:
                return None
            raise MarshallingError(f"vector at byte {start}: expected a count of -1 or more, found {count}")
        if count * element_bytes_min > self.remaining:
            raise MarshallingError(
                f"vector at byte {start}: {count} elements need {count * element_bytes_min} bytes or more, "
                f"found {self.remaining}"
            )
        return tuple([read_element() for _ in range(count)])

    def read_texts(self) -> tuple[str, ...]:
        """Return a vector of strings; null counts as empty."""
        return self.read_vector(self.read_text, element_bytes_min=4) or ()


def encode_bool(value: bool) -> bytes:
    """Return a boolean as its byte."""
    return b"\x01" if value else b"\x00"


def encode_buffer(value: bytes | None) -> bytes:
    """Return a buffer with its length in front; None is a length of -1."""
    return NULL if value is None else INT.pack(len(value)) + value


def encode_ustring(value: str | None) -> bytes:
    """Return a string in UTF-8 with its length in front; None is a length of -1."""
    return NULL if value is None else encode_buffer(value.encode())


def encode_texts(values: Iterable[str]) -> bytes:
    """Return a vector of strings."""
    texts = tuple(values)
    count = INT.pack(len(texts))
    # Names of children are short and ASCII nearly always. Lists of them can be long: this takes a quarter of the time.
    if max(map(len, texts), default=0) < len(_ASCII_LENGTHS):
        joined = "".join(map(add, map(_ASCII_LENGTHS.__getitem__, map(len, texts)), texts))
        if joined.isascii():
            return count + joined.encode()
    return count + b"".join([encode_buffer(text.encode()) for text in texts])
