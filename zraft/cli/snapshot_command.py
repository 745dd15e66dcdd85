"""The command `zraft snapshot`: saves the state of a running cluster, inspects it, and creates a new cluster from it.

This is a composition root below `zraft.cli.main`, imported by nobody else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from zraft.cli.log_report import membership_value
from zraft.cli.offline_options import Place, founds_cluster, progress, tell_founded
from zraft.cli.operator_options import asks_cluster
from zraft.storage.errors import CorruptionError, NoSnapshotError, UnknownFormatError
from zraft.storage.filesystem import ReadOnlyFileSystem
from zraft.storage.snapshot_format import SnapshotFileReader
from zraft_core.errors import ConfigError, StorageError
from zraft_core.ids import COORDINATION_GROUP

if TYPE_CHECKING:
    from zraft.operator.client import OperatorClient

PROGRESS_INTERVAL_S: Final = 1.0


@click.group()
def snapshot() -> None:
    """Save snapshots of a running cluster's state, inspect them, and create new clusters from them.

    \b
    Make a backup every night, and check that it is whole:
        zraft snapshot save /backup/zraft-$(date +%F).snap --key cluster.key --connect 10.0.0.1:2181
        zraft snapshot inspect /backup/zraft-2026-05-01.snap
    \b
    If all servers are lost, or the data has to go back to that night, begin a new cluster with it (docs/RECOVERY.md):
        zraft snapshot restore /backup/zraft-2026-05-01.snap --data /var/lib/zraft --id 1 \\
            --cluster 1=10.0.0.1:2181,2=10.0.0.2:2181,3=10.0.0.3:2181
    """


@snapshot.command(short_help="Show what a snapshot file is of, and verify it.")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON.")
def inspect(file: Path, as_json: bool) -> None:
    """Show what a snapshot file is of, and verify every block of it; exit with 1 if it is damaged.

    \b
        zraft snapshot inspect /var/lib/zraft/groups/0/snap/0000000000000c1a-0000000000000003.snap
    """
    size = blocks = 0
    said = time.monotonic()
    with _opened(file, _COPY) as opened:
        for block in opened.blocks():
            blocks += 1
            size += len(block)
            if time.monotonic() - said >= PROGRESS_INTERVAL_S:
                said = time.monotonic()
                click.echo(f"{size} of {opened.footer.size} bytes ...", err=True)
        info = opened.info
    header = info.header
    value: dict[str, Any] = {
        "group": header.group,
        "index": info.meta.index,
        "term": info.meta.term,
        "next_position": info.meta.next_position,
        "zxid": f"{info.zxid:#x}",
        "items": info.items,
        "digest": f"{info.digest:032x}",
        "feature_level": header.feature_level,
        "cluster": header.cluster.hex(),
        "server": header.server,
        "instance": header.instance.hex(),
        "id": header.id.hex(),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(header.wall_time_ms / 1000)),
        "members": membership_value(info.meta.membership),
        "blocks": blocks,
        "bytes": size,
        "file_bytes": info.size,
        "whole": True,
    }
    if as_json:
        click.echo(json.dumps(value))
        return
    for name, item in value.items():
        if name == "members":
            item = (
                ", ".join(f"{row['server']}{'' if row['voter'] else ' (no vote)'}" for row in item) or "none"
            )
        click.echo(f"{name + ':':<16}{'yes' if item is True else item}")


@snapshot.command(short_help="Save the state of a running cluster into a file.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@asks_cluster
def save(client: OperatorClient, file: Path) -> None:
    """Save the state of a running cluster into FILE, which must not exist yet.

    The first server of --connect that answers takes a snapshot of its state and sends it, whether it leads or not; a
    follower may be some milliseconds behind. The file is verified, durable and complete when it appears under its
    name, readable only by its owner: it holds all data, ACLs and the passwords of sessions.

    \b
        zraft snapshot save /backup/zraft.snap --key cluster.key --connect 10.0.0.3:2181
    """
    from zraft.operator.errors import OperatorError
    from zraft.operator.requests import SnapshotFile as Offered
    from zraft.operator.requests import SnapshotTake

    with _new_file(file) as (descriptor, temporary):
        offered = client.call(SnapshotTake(), Offered)
        with progress("saving", shown=True) as advance, _disk(temporary):
            done = 0
            for part in client.download(offered):
                _write(descriptor, part)
                done += len(part)
                advance(done, offered.size)
            os.fsync(descriptor)
        with _opened(temporary, _SAVED) as opened:
            for _ in opened.verify():
                pass
            info = opened.info
        if info.id != offered.snapshot:
            raise OperatorError(
                f"{client.address}: expected snapshot {offered.snapshot.hex()}, it sent {info.id.hex()}; try again"
            )
    click.echo(
        f"{file}: {info.size} bytes, {info.items} items, zxid {info.zxid:#x}, entry {info.meta.index}, digest "
        f"{info.digest:032x}, from server {offered.server}"
    )


@snapshot.command(short_help="Create a new cluster from a snapshot file.")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@founds_cluster
def restore(file: Path, place: Place) -> None:
    """Create a new cluster from a snapshot FILE, in an empty or missing directory; nothing may run there.

    The new cluster has an identity of its own, so servers and directories of the old one cannot mix with it, and its
    zxids begin 2^20 epochs above those of the file, so every client of the old one finds itself behind and reconnects
    (D-15). What was written after the snapshot is lost. Sessions and their ephemeral znodes are kept, and expire if
    their clients do not come back within their timeouts.

    The server is started afterwards as always and works at once alone; the other servers of --cluster are started with
    empty directories and the same --cluster, are let in and vote as soon as they have caught up.

    \b
        zraft snapshot restore zraft.snap --data /var/lib/zraft --id 1 \\
            --cluster 1=10.0.0.1:2181,2=10.0.0.2:2181,3=10.0.0.3:2181
    """
    from zraft.offline.founding import Origin, check_empty, claimed, found
    from zraft.offline.reading import machine_of
    from zraft.storage.filesystem import RealFileSystem

    fs = RealFileSystem()
    path = place.path
    # The file comes first: if it is no snapshot, no directory is made.
    with _opened(file, _COPY) as opened, claimed(fs, path):
        check_empty(fs, path)
        with progress("reading") as advance:
            info = opened.info
            if info.header.group != COORDINATION_GROUP:
                raise ConfigError(
                    f"{file}: is of group {info.header.group}, expected one of group {COORDINATION_GROUP}, which holds "
                    "the znodes"
                )
            machine = machine_of(opened.blocks(), str(file), lambda items: advance(items, info.items))
        meta = info.meta
        with progress("writing") as advance:
            founded = found(
                fs,
                path,
                machine,
                place.founders,
                Origin(meta.index, meta.term, meta.next_position, meta.term),
                replaces=None,
                entropy=os.urandom,
                wall_ms=time.time_ns() // 1_000_000,
                on_progress=advance,
            )
    taken = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info.header.wall_time_ms / 1000))
    click.echo(f"from:      {file}, taken {taken} at zxid {info.zxid:#x}")
    tell_founded(founded, place)


_COPY: Final = (
    "the file was changed, or copied in part: use another copy of it (what is wrong with a whole data directory says "
    "`zraft log verify DIR`)"
)
_SAVED: Final = "nothing was saved; try again, and if that goes on, save to another disk"


@contextmanager
def _opened(file: Path, advice: str) -> Iterator[SnapshotFileReader]:
    """Open a snapshot that the user named: what is wrong with it is no server's trouble, and need not be the disk's.

    Raises:
        ConfigError: it is no snapshot.
        StorageError: it is damaged, or cannot be read; with `advice`.
    """
    try:
        with SnapshotFileReader(ReadOnlyFileSystem(), str(file)) as opened:
            yield opened
    except CorruptionError as error:
        if error.path != str(file):
            raise  # the damage is in another file, one of a server
        raise _blamed(error, advice) from error


def _blamed(error: CorruptionError, advice: str) -> ConfigError | StorageError:
    path = error.path
    match error:
        case NoSnapshotError():
            return ConfigError(
                f"{path}: is no snapshot of zraft, it does not begin as one; expected a file that `zraft snapshot save` "
                "made, or one of a data directory (groups/0/snap/*.snap)"
            )
        case UnknownFormatError():
            return StorageError(f"{path}: {error.found}; use the zraft of the release that wrote it")
        case _:
            return StorageError(f"{path}: damaged at offset {error.offset}: {error.found}; {advice}")


@contextmanager
def _new_file(path: Path) -> Iterator[tuple[int, Path]]:
    """Write a file under another name; at the end it gets its own, durably. An error leaves nothing behind.

    Raises:
        ConfigError: there is such a file already, or it cannot be made.
        StorageError: the disk failed.
    """
    if os.path.lexists(path):
        raise ConfigError(f"{path}: exists already, and is never overwritten; name another file")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be made: {error.strerror or error}") from error
    try:
        yield descriptor, temporary
        with _disk(path):
            _give_name(temporary, path)
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            temporary.unlink()


def _give_name(temporary: Path, path: Path) -> None:
    """Give the file its name. A rename would replace a file that appeared meanwhile; a second name does not."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise ConfigError(
            f"{path}: appeared meanwhile, and is never overwritten; name another file"
        ) from None
    except OSError:
        # a file system without links
        if os.path.lexists(path):
            raise
        temporary.rename(path)


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except ConfigError:
        raise
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written: {error.strerror or error}; nothing was saved"
        ) from error


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
