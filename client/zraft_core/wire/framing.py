"""Framing of a client's byte stream: a 4-byte big-endian length and that many bytes.

The first four bytes of a connection may be a four-letter word instead of a length; nothing later may.
See docs/reference/protocol-zookeeper.md, "Frames".
"""

from __future__ import annotations

from typing import Final

from zraft_core.errors import ProtocolError
from zraft_core.wire.jute import INT

JUTE_MAXBUFFER: Final = 0xFFFFF
"""Default largest frame in bytes, ZooKeeper's own (1 MiB - 1): clients refuse larger frames from us, too."""

FOUR_LETTER_WORDS: Final = frozenset(
    {
        "conf",
        "cons",
        "crst",
        "dirs",
        "dump",
        "envi",
        "gtmk",
        "hash",
        "isro",
        "mntr",
        "ruok",
        "srst",
        "srvr",
        "stat",
        "stmk",
        "wchc",
        "wchp",
        "wchs",
    }
)
"""The words ZooKeeper knows. Any other four bytes are a length, and as a length too large."""

ARGUMENT_BYTES: Final = {"stmk": 8}
"""The length of what follows a word in the same read and belongs to it. As in ZooKeeper, nobody waits for a
rest of it.
"""

_WORDS_BY_BYTES: Final = {word.encode(): word for word in FOUR_LETTER_WORDS}


class FrameTooLargeError(ProtocolError):
    """A frame's length is negative or above `client.jute_maxbuffer`; close without a reply."""


class FrameReader:
    """Reader of frames: it takes what the socket gave, in any pieces, and returns the complete frames.

    Buffers at most one incomplete frame, so at most `jute_maxbuffer` + 4 bytes between calls. Not safe for
    concurrent use, and not usable after an error.
    """

    __slots__ = ("_jute_maxbuffer", "_needed", "_sniffing", "argument", "partial", "word")

    def __init__(self, jute_maxbuffer: int = JUTE_MAXBUFFER, *, words: bool = False) -> None:
        """Begin without bytes.

        With `words`, as servers read, the stream may begin with a four-letter word; see `word`.
        """
        self._jute_maxbuffer = jute_maxbuffer
        self.partial = bytearray()
        """The incomplete frame, as far as it has come; only to be read."""
        self._needed = 4
        self._sniffing = words
        self.word: str | None = None
        """The four-letter word the stream began with. Once it is set nothing else of the stream is read."""
        self.argument = b""
        """The argument behind the word, as far as the word takes one: the mask of `stmk`."""

    @property
    def buffered(self) -> int:
        """Bytes of the incomplete frame held now."""
        return len(self.partial)

    def clear(self) -> None:
        """Forget the incomplete frame, since nothing more is fed."""
        self.partial = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the frames completed by `chunk`, in order.

        Raises:
            FrameTooLargeError: frames that precede the offending one in the same chunk are dropped with the
                connection; to the client that is a connection loss like any other.
        """
        partial = self.partial
        if partial:
            partial += chunk
            # Nothing is copied or looked at again until the frame is complete: many tiny chunks stay linear.
            if len(partial) < self._needed:
                return []
            chunk = bytes(partial)
            partial.clear()
        size = len(chunk)
        if self._sniffing or self.word is not None:
            if self.word is None and size >= 4:
                self._sniffing = False
                if chunk[:4] in _WORDS_BY_BYTES:
                    self.word = word = _WORDS_BY_BYTES[chunk[:4]]
                    self.argument = chunk[4 : 4 + ARGUMENT_BYTES.get(word, 0)]
            if self.word is not None:
                return []
        limit = self._jute_maxbuffer
        unpack_from = INT.unpack_from
        if size >= 4:
            (length,) = unpack_from(chunk)
            if length + 4 == size and length <= limit:
                return [chunk[4:]]  # whoever has one request under way sends one frame at a time
        frames: list[bytes] = []
        append = frames.append
        start = 4
        while start <= size:
            (length,) = unpack_from(chunk, start - 4)
            if not 0 <= length <= limit:
                raise self._too_large(length)
            end = start + length
            if end > size:
                break
            append(chunk[start:end])
            start = end + 4
        start -= 4
        if start < size:
            partial += chunk[start:] if start else chunk
            self._needed = 4 + unpack_from(chunk, start)[0] if size - start >= 4 else 4
        return frames

    def _too_large(self, length: int) -> FrameTooLargeError:
        return FrameTooLargeError(
            f"frame of {length} bytes, expected 0 to {self._jute_maxbuffer}: if clients really need this "
            "much in one request, raise client.jute_maxbuffer on every server and in the clients"
        )


def frame(body: bytes) -> bytes:
    """Return `body` with its length in front, as it stands on the wire."""
    return INT.pack(len(body)) + body
