"""The cluster key: the one secret that all servers share, and the file it is kept in.

A key file is one line of text, or two while the key is changed (the first seals, both open)::

    zraft-cluster-key-1 <key id, 8 hex digits> <key, 64 hex digits>

The key id is the first four bytes of SHA-256 over a fixed label and the key. It is no secret: datagrams name
their key by it, and in the file it catches a line that was cut or mistyped.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from attrs import field, frozen

from zraft_core.errors import ConfigError

KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 4
KEYS_MAX: Final = 2
"""Keys valid at once: the one that seals, and during a rotation the one before or after it."""

PLAIN_KEY_ID: Final = bytes(KEY_ID_BYTES)
"""The key id of plain mode. A real key whose hash gives this id is refused when a server starts."""

_PREFIX: Final = "zraft-cluster-key-1"
_ID_LABEL: Final = b"zraft cluster key id 1"
_FILE_BYTES_MAX: Final = 1024
"""A key file has 94 bytes per key; reading no more than this keeps a mistaken path (a log, a device) harmless."""


@frozen
class ClusterKey:
    """A cluster key; only its id is ever printed."""

    secret: bytes = field(repr=False)
    key_id: bytes = field(init=False)

    def __attrs_post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise ConfigError(f"cluster key: expected {KEY_BYTES} bytes, found {len(self.secret)}")
        digest = hashlib.sha256(_ID_LABEL + self.secret).digest()
        object.__setattr__(self, "key_id", digest[:KEY_ID_BYTES])

    def __str__(self) -> str:
        return f"cluster key {self.key_id.hex()}"


def create_key_file(path: Path, *, entropy: Callable[[int], bytes] = os.urandom) -> ClusterKey:
    """Draw a new cluster key and store it in a new file of mode 0600, durable when this returns.

    Raises:
        ConfigError: the file exists already (a key is never overwritten) or cannot be written.
    """
    key = ClusterKey(entropy(KEY_BYTES))
    _create(path, (key,))
    return key


def replace_keys(path: Path, keys: Sequence[ClusterKey]) -> None:
    """Put these keys, the sealing one first, in the place of those in an existing key file, at once and durably.

    A server that reads meanwhile finds the old keys or the new ones, never half of them.

    Raises:
        ConfigError: none or more than two keys, two of one id, or the file cannot be replaced.
    """
    key_ring(keys, insecure=False)
    path = path.resolve()  # a link stays one: what it points to is replaced
    new = path.with_name(f"{path.name}.new")
    with suppress(FileNotFoundError):
        new.unlink()  # it is left of an attempt that was interrupted
    _create(new, keys)
    try:
        new.rename(path)
        _sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise ConfigError(f"{path}: cannot replace the key file: {error.strerror}") from error


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _create(path: Path, keys: Sequence[ClusterKey]) -> None:
    """Create a new file of mode 0600 with these keys, durable when this returns."""
    line = "".join(f"{_PREFIX} {key.key_id.hex()} {key.secret.hex()}\n" for key in keys).encode()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise ConfigError(
            f"{path}: expected no file, found one; a key file is never overwritten, choose another name"
        ) from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot create the key file: {error.strerror}") from error
    try:
        try:
            written = os.write(descriptor, line)
            if written != len(line):
                raise ConfigError(
                    f"{path}: only {written} of {len(line)} bytes could be written; is the disk full?"
                )
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _sync_directory(path.parent)
    except (OSError, ConfigError) as error:
        # Half a key would be refused later with a message that hides the cause.
        with suppress(FileNotFoundError):
            path.unlink()
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: cannot write the key file: {error.strerror}") from error


def read_keys(paths: Sequence[Path]) -> tuple[ClusterKey, ...]:
    """Return the cluster keys of one or two files, in order: the first one seals.

    Raises:
        ConfigError: as `read_key_file`; or they hold more than two keys together, or two of one id.
    """
    keys = tuple(key for path in paths for key in read_key_file(path))
    key_ring(keys, insecure=False)
    return keys


def read_key_file(path: Path) -> tuple[ClusterKey, ...]:
    """Read the one or two cluster keys of a file.

    Raises:
        ConfigError: the file is missing, open to others than its owner, or not a key file. The message
            never contains any of the file's contents.
    """
    try:
        # O_NONBLOCK so that a named pipe put in the file's place is refused below instead of waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{path}: cannot open the key file: {error.strerror}") from error
    try:
        # Judged on the open file, so that it cannot be exchanged between the look and the read.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path}: expected a regular file that holds a cluster key")
        text = os.read(descriptor, _FILE_BYTES_MAX + 1)
        mode = stat.S_IMODE(status.st_mode)
        # A file that is no key file at all is told as that below: changing its mode would not help.
        if mode & closed_to(status.st_uid, os.geteuid()) and text.startswith(_PREFIX.encode()):
            raise ConfigError(
                f"{path}: expected a key file that only its owner can use (mode 0600), "
                f"found mode {mode:04o}; run `chmod 600 {path}`, "
                f"and if others may have read it, create a new key"
            )
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the key file: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return _parse(path, text)


def closed_to(owner: int, user: int) -> int:
    """Return the bits that the mode of a key file must not have, where the user id `user` reads a file of `owner`.

    Only the owner may use it. But a file that root handed to a service, as the kubelet does with a secret, belongs to
    root: its group may read it, or the service could not.
    """
    return 0o037 if owner == 0 != user else 0o077


def _parse(path: Path, text: bytes) -> tuple[ClusterKey, ...]:
    expected = (
        f"expected one line `{_PREFIX} <8 hex digits> <64 hex digits>`, or two while the key is changed"
    )
    lines = [words for line in text.decode("ascii", errors="replace").splitlines() if (words := line.split())]
    if len(text) > _FILE_BYTES_MAX or not lines or len(lines) > KEYS_MAX:
        raise ConfigError(
            f"{path}: {expected}, found {len(lines)} lines in {len(text)} bytes; is it a key file?"
        )
    return tuple(_parse_line(path, words, expected) for words in lines)


def _parse_line(path: Path, words: list[str], expected: str) -> ClusterKey:
    if len(words) != 3 or words[0] != _PREFIX:
        raise ConfigError(f"{path}: {expected}, found a line of {len(words)} words; is it a key file?")
    try:
        key_id, secret = bytes.fromhex(words[1]), bytes.fromhex(words[2])
    except ValueError:
        # The original error is not chained: it may quote the secret.
        raise ConfigError(f"{path}: {expected}, found a word that is not hexadecimal") from None
    if len(secret) != KEY_BYTES:
        raise ConfigError(f"{path}: {expected}, found a key of {len(secret)} bytes; was the line cut?")
    key = ClusterKey(secret)
    if key.key_id != key_id:
        raise ConfigError(
            f"{path}: the line names key {key_id.hex()} but holds key {key.key_id.hex()}; was it mistyped?"
        )
    return key


def key_ring(keys: Sequence[ClusterKey] | None, insecure: bool) -> dict[bytes, ClusterKey | None]:
    """Return the keys by id, the sealing one first; in plain mode the one entry that stands for no key.

    Raises:
        ConfigError: none or more than two, two of one id, or keys in plain mode.
    """
    if insecure:
        if keys is not None:
            raise ConfigError("insecure transport: expected no cluster keys, found some; drop one of the two")
        return {PLAIN_KEY_ID: None}
    if not keys or len(keys) > KEYS_MAX:
        raise ConfigError(
            f"cluster keys: expected 1 to {KEYS_MAX}, found {len(keys or ())}; create one with "
            f"`zraft key new FILE`, or say `insecure` in so many words"
        )
    ring: dict[bytes, ClusterKey | None] = {key.key_id: key for key in keys}
    if len(ring) != len(keys) or PLAIN_KEY_ID in ring:
        raise ConfigError(
            f"cluster keys: expected different ids, found {[key.key_id.hex() for key in keys]}; "
            f"create another key"
        )
    return ring


def key_name(key_id: bytes) -> str:
    """Return the name of a key for logs and errors: it is no secret."""
    return "no key (insecure mode)" if key_id == PLAIN_KEY_ID else f"cluster key {key_id.hex()}"
