"""The data directory: that one process owns it, whose it is, and how often it was started (D-1).

`<data>/lock` is locked while the server runs. `<data>/meta` is a sealed map. It is replaced whole: temporary file,
fsync, rename, fsync of the directory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from attrs import evolve, frozen

from zraft.storage.aside import ASIDE_PREFIX, condemn, settle
from zraft.storage.durable import make_directories, reading, sync_directory, sync_file, writing
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft.storage.sealed_map import OtherFormatError, SealError, seal, unseal
from zraft_core.errors import ProtocolError, StorageError
from zraft_core.ids import INSTANCE_BYTES, SERVER_ID_MAX, SERVER_ID_MIN, Instance, ServerId
from zraft_core.layout import Record, any_binary, binary, from_one, integer, number, optional

META_FORMAT: Final = 1
META_BYTES_MAX: Final = 4096
"""A meta file is about 100 bytes; more is not read."""
BOOT_ID_BYTES: Final = 8
_EMPTY_ENOUGH: Final = frozenset({"lock", "meta.tmp", "condemned.tmp", "lost+found"})
"""The names that a directory which was never formatted may contain: traces of a start that was cut short, or
of mkfs.
"""
UNFINISHED: Final = "founding"
"""Name of the directory in which an offline command makes new contents; while it is there, nobody may start."""
_START_ANEW: Final = (
    "move the whole data directory aside and start with an empty one: the server then joins as a new instance"
)


@frozen
class Meta:
    """Contents of the meta file.

    `newest_segment` is the highest number a WAL segment was ever given, 0 before the first; `newest_bytes` how long its file
    is at least, None if that is not known. A release that does not know this key leaves it out when it opens the directory,
    so nothing contradicts what it makes of the file.
    """

    server: ServerId
    instance: Instance
    boot: int
    cluster: bytes | None
    newest_segment: int
    newest_bytes: int | None = None


_META: Final = Record(
    Meta,
    *(integer(SERVER_ID_MIN, SERVER_ID_MAX), binary(INSTANCE_BYTES, INSTANCE_BYTES), from_one),
    *(optional(any_binary), number, optional(number)),
)


def encode_meta(meta: Meta) -> bytes:
    """Return the meta file's bytes."""
    values = _META.pack_map(meta)
    if meta.newest_bytes is None:
        del values["newest_bytes"]
    return seal(META_FORMAT, values)


def decode_meta(data: bytes, path: str) -> Meta:
    """Return the meta file's contents.

    Raises:
        CorruptionError: the checksum does not match.
        StorageError: another release's format.
    """
    try:
        return _META.unpack_map(unseal(data, META_FORMAT), "meta")
    except OtherFormatError as error:
        older = error.found < META_FORMAT
        raise StorageError(
            f"{path}: data directory of {error}; "
            + ("upgrade it with the release before this one" if older else "start it with a newer release")
        ) from error
    except (SealError, ProtocolError) as error:
        raise CorruptionError(path, 0, str(error), advice=_START_ANEW) from error


class DataDirectory:
    """An opened, locked data directory. `boot` was fsynced before `open` returned.

    Methods may be called from any thread.
    """

    __slots__ = ("_lock_file", "_meta", "_mutex", "boot_id", "entropy", "fs", "path", "put_aside")

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        lock_file: int,
        meta: Meta,
        boot_id: bytes,
        entropy: Callable[[int], bytes],
    ) -> None:
        self.fs = fs
        self.path = path
        self.boot_id = boot_id
        self.entropy = entropy
        self._lock_file = lock_file
        self._meta = meta
        # The WAL's thread notes a new segment while the loop's thread sets the cluster.
        self._mutex = threading.Lock()
        self.put_aside: str | None = None
        """The place where this start put the directory's earlier contents (D-26); None if there was no reason
        to.
        """

    @classmethod
    def open(
        cls, fs: FileSystem, path: str, *, server: ServerId, entropy: Callable[[int], bytes]
    ) -> DataDirectory:
        """Lock the directory, format it if it is empty, and begin a new boot.

        Args:
            server: the id this server is configured with.
            entropy: gives that many random bytes, `os.urandom` outside of simulations.

        Raises:
            StorageError: another process uses it, it is another server's, of another release, damaged, or
                cannot be read or written. Nothing was changed then, beyond the creation of directories.
        """
        assert SERVER_ID_MIN <= server <= SERVER_ID_MAX, f"{server=}"
        path = path.rstrip("/") or "/"
        make_directories(fs, path)
        lock_file = lock_directory(fs, path)
        try:
            put_aside = settle(fs, path)
            meta = _load(fs, path)
            if meta is None:
                meta = Meta(server, Instance(entropy(INSTANCE_BYTES)), 0, None, 0)
            if meta.server != server:
                raise StorageError(
                    f"{path}/meta: this is the data directory of server {meta.server}, not of server {server}; "
                    f"correct the server's id or its data directory"
                )
            meta = evolve(meta, boot=meta.boot + 1)
            _store(fs, path, meta)
        except BaseException:
            fs.close(lock_file)
            raise
        opened = cls(fs, path, lock_file, meta, entropy(BOOT_ID_BYTES), entropy)
        opened.put_aside = put_aside
        return opened

    @property
    def server(self) -> ServerId:
        """The server's number."""
        return self._meta.server

    @property
    def instance(self) -> Instance:
        """Random identity of this directory, made when it was formatted."""
        return self._meta.instance

    @property
    def boot(self) -> int:
        """The number of times that this directory was opened, this time included."""
        return self._meta.boot

    @property
    def cluster(self) -> bytes | None:
        """Id of the cluster this server belongs to, None until it is known."""
        return self._meta.cluster

    @property
    def newest_segment(self) -> int:
        """Highest number that a segment of the WAL was ever given, 0 before the first."""
        return self._meta.newest_segment

    @property
    def newest_bytes(self) -> int | None:
        """The least length of the newest segment's file; None if that is not known."""
        return self._meta.newest_bytes

    def set_cluster(self, cluster: bytes) -> None:
        """Join a cluster for good; durable on return. Blocks for two fsyncs the first time, then does nothing.

        Raises:
            StorageError: the directory belongs to another cluster, or cannot be written (see `zraft.storage.errors`).
        """
        with self._mutex:
            if self._meta.cluster == cluster:
                return
            if self._meta.cluster is not None:
                raise StorageError(
                    f"{self.path}/meta: belongs to cluster {self._meta.cluster.hex()}, not to {cluster.hex()}; "
                    f"correct the list of servers or the data directory"
                )
            self._replace(evolve(self._meta, cluster=cluster))

    def note_segment(self, number: int, length: int | None) -> None:
        """Remember that segment `number` exists, so that its loss is noticed; durable on return.

        `length`: see `note_length`; None if the file will be longer than is known now.
        """
        with self._mutex:
            assert number == self._meta.newest_segment + 1, f"{number=} after {self._meta.newest_segment=}"
            self._replace(evolve(self._meta, newest_segment=number, newest_bytes=length))

    def note_length(self, length: int) -> None:
        """Remember that the newest segment's file has at least `length` bytes, so that a cut is noticed; durable on return.

        Of a file that grows its length is noted afterwards, when it is durable; of one that is to shrink, before.
        """
        with self._mutex:
            self._replace(evolve(self._meta, newest_bytes=length))

    def condemn(self, reason: str, wall_ms: int) -> None:
        """Note that this instance never runs again (D-26).

        The next `open` puts its files aside and makes a new one.

        Raises:
            StorageError: that cannot be written.
        """
        condemn(self.fs, self.path, self.instance, reason, wall_ms)

    def close(self) -> None:
        """Let another process open the directory."""
        self.fs.close(self._lock_file)

    def _replace(self, meta: Meta) -> None:
        _store(self.fs, self.path, meta)
        self._meta = meta


def lock_directory(fs: FileSystem, directory: str) -> int:
    """Take an existing data directory for this process, until the file is closed.

    Raises:
        StorageError: another process has it, or it cannot be written.
    """
    path = f"{directory}/lock"
    with writing(path):
        try:
            return fs.lock(path)
        except BlockingIOError:
            pass
    with reading(path):
        file = fs.open(path)
        try:
            holder = fs.pread(file, 32, 0).decode("ascii", "replace").strip()
        finally:
            fs.close(file)
    raise StorageError(
        f"{path}: process {holder or 'unknown'} uses this data directory; "
        f"stop it, or give this server a data directory of its own"
    )


def read_meta(fs: FileSystem, path: str) -> Meta:
    """Return whose the directory is, without opening it: for looking at one that may be in use.

    Raises:
        StorageError: there is no data directory, or its meta is damaged or of another release.
    """
    meta = _load(fs, path)
    if meta is None:
        raise StorageError(f"{path}: is not a data directory: there is no {path}/meta")
    return meta


def _load(fs: FileSystem, path: str) -> Meta | None:
    with reading(path):
        names = fs.listdir(path)
    meta_path = f"{path}/meta"
    if UNFINISHED in names:
        raise StorageError(
            f"{path}/{UNFINISHED}: a `zraft snapshot restore`, `recover` or `import` into this directory was cut short, "
            f"or is under way; run the same command again, it begins anew"
        )
    if "meta" not in names:
        foreign = [name for name in names if name not in _EMPTY_ENOUGH and not name.startswith(ASIDE_PREFIX)]
        for ours in ("wal", "groups"):
            if ours in foreign:
                # Formatting it anew would make a voter that forgot its votes and entries (D-1).
                raise StorageError(f"{meta_path}: is missing although {path}/{ours} exists; {_START_ANEW}")
        if foreign:
            raise StorageError(
                f"{path}: is neither empty nor a data directory (found {', '.join(foreign[:3])}); name another one"
            )
        return None
    with reading(meta_path):
        file = fs.open(meta_path)
        try:
            data = fs.pread(file, META_BYTES_MAX, 0)
        finally:
            fs.close(file)
    return decode_meta(data, meta_path)


def _store(fs: FileSystem, path: str, meta: Meta) -> None:
    temporary = f"{path}/meta.tmp"
    with writing(temporary):
        file = fs.create(temporary)
        try:
            fs.pwrite(file, encode_meta(meta), 0)
            sync_file(fs, file, temporary)
        finally:
            fs.close(file)
        fs.rename(temporary, f"{path}/meta")
    sync_directory(fs, path)
