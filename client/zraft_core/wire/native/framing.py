"""Cuts a stream of MessagePack maps at their ends, before anything of them is built.

A header of five bytes can promise an array of millions of elements, and whoever builds that array before the elements
came gives a stranger gigabytes for a kilobyte. So the stream is walked first, which keeps nothing but a stack of fixed
size; what is built is complete and no longer than `client.jute_maxbuffer`.

Source: docs/reference/protocol-native.md, "The stream".
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from zraft_core.errors import ProtocolError

MAP_BYTES: Final = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
"""What a map can begin with."""

FIRST_BYTES: Final = MAP_BYTES - {0x80}
"""What tells the native protocol: no length of a ZooKeeper frame, no four-letter word and no TLS begins so."""


class NativeFramingError(ProtocolError):
    """The stream cannot be followed from here on; say so and close."""


class NativeReader:
    """Feed it what the socket gave; it returns the bytes of the messages that are complete.

    Holds one incomplete message, twice: as it came, and what the walk has not passed yet. Not usable after an error.
    """

    __slots__ = ("_knob", "_limit", "_walked", "_walker", "count", "partial")

    def __init__(self, limit: int, knob: str = "client.jute_maxbuffer on every server") -> None:
        """`limit` is the longest message in bytes; `knob` what to raise when it is too short."""
        self._limit = limit
        self._knob = knob
        self.partial = bytearray()
        """The incomplete message, as far as it has come; only to be read."""
        self._walker: Any = None
        self._walked = 0
        self.count = 0
        """How many messages the last call completed."""

    @property
    def buffered(self) -> int:
        """Bytes of the incomplete message."""
        return len(self.partial)

    def clear(self) -> None:
        """Nothing more is fed: keep nothing."""
        self.partial = bytearray()
        self._walker = None

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes of all messages that are complete now, in order, without a cut.

        Raises:
            NativeFramingError: what follows is no map, too long, too deep, or no MessagePack. Messages complete in front
                of it, in the same chunk, are dropped with it.
        """
        partial = self.partial
        walker = self._walker
        if walker is None:
            walker = msgpack.Unpacker(read_size=256, max_buffer_size=0)
            base = 0
            data = chunk
        else:
            base = self._walked
            partial += chunk
            data = b""
        walker.feed(chunk)
        self.count = 0
        end = 0  # of the last complete message, from the beginning of what is held
        whole = data or partial
        try:
            while True:
                if end < len(whole) and whole[end] not in MAP_BYTES:
                    raise NativeFramingError(
                        f"a message that begins with byte {whole[end]:#04x}, expected a MessagePack map (0x80 to 0x8f, "
                        "0xde, 0xdf)"
                    )
                walker.skip()
                at = walker.tell() - base
                if at - end > self._limit:
                    raise self._too_long(at - end)
                end = at
                self.count += 1
        except msgpack.OutOfData:
            pass
        except msgpack.StackError as error:
            raise NativeFramingError("a message nested too deeply, expected at most 1,024 levels") from error
        except ValueError as error:
            if isinstance(error, NativeFramingError):
                raise
            raise NativeFramingError(f"bytes that are not MessagePack: {error!r}") from error
        left = len(whole) - end
        if left > self._limit:
            raise self._too_long(left)
        if not left:
            # Most reads end with a message: nothing is kept, and buffers that once were large go.
            self._walker = None
            if not partial:
                return chunk
            done = bytes(partial)
            self.partial = bytearray()
            return done
        self._walker = walker
        self._walked = base + end
        if data:
            partial += chunk[end:] if end else chunk
            return chunk[:end]
        with memoryview(partial) as view:
            done = bytes(view[:end])
        del partial[:end]
        return done

    def _too_long(self, size: int) -> NativeFramingError:
        return NativeFramingError(
            f"a message of {size} bytes or more, expected at most {self._limit}: if clients really need this much in one "
            f"message, raise {self._knob}"
        )
