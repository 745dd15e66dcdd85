"""The command `zraft snapshot`: saves the state of a running cluster, inspects it, and creates a new cluster from it.

This is a composition root below `zraft.cli.main`, imported by nobody else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from zraft.cli.client_options import Access, Identity, shows_identity
from zraft.cli.log_report import membership_value
from zraft.cli.offline_options import Advance, Place, founds_cluster, progress, tell_founded
from zraft.cli.operator_options import asks_cluster
from zraft.offline.archive import SNAPSHOT, ArchiveReader, ArchiveWriter, is_archive
from zraft.storage.errors import CorruptionError, NoSnapshotError, UnknownFormatError
from zraft.storage.filesystem import ReadOnlyFileSystem
from zraft.storage.snapshot_format import SnapshotFileReader, SnapshotInfo
from zraft_core.errors import ConfigError, StorageError
from zraft_core.ids import COORDINATION_GROUP

if TYPE_CHECKING:
    from zraft.offline.manifest import Manifest
    from zraft.operator.client import OperatorClient
    from zraft.operator.requests import SnapshotFile

PROGRESS_INTERVAL_S: Final = 1.0


@click.group()
def snapshot() -> None:
    """Save snapshots of a running cluster's state, inspect them, and create new clusters from them.

    \b
    Make a backup every night, and check that it is whole:
        zraft snapshot save /backup/zraft-$(date +%F).snap --key cluster.key --connect 10.0.0.1:2181
        zraft snapshot inspect /backup/zraft-2026-05-01.snap
    \b
    If all servers are lost, or the data has to go back to that night, begin a new cluster with it (docs/how-to/recovery.md):
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
    fs = ReadOnlyFileSystem()
    if is_archive(fs, str(file)):
        with _opened_archive(file, _COPY) as archive:
            value = _inspected(file, archive.snapshot())
            _verify(archive)
            value |= _topics_value(archive)
    else:
        value = _inspected(file, fs)
    _print_value(value, as_json=as_json)


def _inspected(file: Path, fs: ReadOnlyFileSystem) -> dict[str, Any]:
    """Return what a snapshot is of, after all of its blocks were verified."""
    size = blocks = 0
    said = time.monotonic()
    with _opened(file, _COPY, fs) as opened:
        for block in opened.blocks():
            blocks += 1
            size += len(block)
            if time.monotonic() - said >= PROGRESS_INTERVAL_S:
                said = time.monotonic()
                click.echo(f"{size} of {opened.footer.size} bytes ...", err=True)
        info = opened.info
    header = info.header
    return {
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
        "written": _shown_time(header.wall_time_ms),
        "members": membership_value(info.meta.membership),
        "blocks": blocks,
        "bytes": size,
        "file_bytes": info.size,
        "whole": True,
    }


def _verify(archive: ArchiveReader) -> None:
    """Read all of an archive, and say now and then how far that is."""
    said = time.monotonic()
    for done in archive.verify():
        if time.monotonic() - said >= PROGRESS_INTERVAL_S:
            said = time.monotonic()
            click.echo(f"{done} of {archive.size} bytes ...", err=True)


def _topics_value(archive: ArchiveReader) -> dict[str, Any]:
    """Return what an archive holds of topics."""
    manifest = archive.manifest
    saved = {partition.group: partition for partition in manifest.partitions}
    return {
        "file_bytes": archive.size,
        "topics_time": manifest.time,
        "topics_saved": _shown_time(manifest.saved_ms),
        "topics": [
            {
                "topic": topic.name,
                "partitions": [
                    {
                        "partition": number,
                        "group": group,
                        "first": saved[group].first,
                        "end": saved[group].end,
                        "messages": saved[group].messages,
                        "bytes": saved[group].size,
                        "consumers": len(saved[group].offsets)
                        + len(list(archive.claims(saved[group]).groups())),
                    }
                    for number, group in enumerate(topic.partitions)
                ],
            }
            for topic in manifest.topics
        ],
    }


def _print_value(value: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(value))
        return
    for name, item in value.items():
        if name == "members":
            item = (
                ", ".join(f"{row['server']}{'' if row['voter'] else ' (no vote)'}" for row in item) or "none"
            )
        if name == "topics":
            for topic in item:
                for row in topic["partitions"]:
                    click.echo(
                        f"{topic['topic']}/{row['partition']}: offsets {row['first']} to {row['end']}, {row['messages']} "
                        f"messages, {row['bytes']} bytes, {row['consumers']} consumers"
                    )
            continue
        click.echo(f"{name + ':':<16}{'yes' if item is True else item}")


@snapshot.command(short_help="Save the state of a running cluster into a file.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--no-topics", is_flag=True, help="Save the znodes alone, also if there are topics.")
@asks_cluster
@shows_identity
def save(client: OperatorClient, file: Path, no_topics: bool, identity: Identity) -> None:
    """Save the state of a running cluster, topics included, into FILE, which must not exist yet.

    The first server of --connect that answers takes a snapshot of its state and sends it, whether it leads or not; a
    follower may be some milliseconds behind. Then topics are read up to one time, which is above everything that was
    delivered before. The file is verified, durable and complete when it appears under its name, readable only by its
    owner: it holds all data, ACLs and the passwords of sessions.

    \b
        zraft snapshot save /backup/zraft.snap --key cluster.key --connect 10.0.0.3:2181

    Topics are read as clients read them, so servers that require TLS or a proof from clients require it here, too.
    """
    from zraft.operator.requests import SnapshotFile as Offered
    from zraft.operator.requests import SnapshotTake
    from zraft.storage.filesystem import RealFileSystem

    with _new_file(file) as (descriptor, temporary):
        offered = client.call(SnapshotTake(), Offered)
        topics: Manifest | None = None
        if no_topics or not _has_topics(client):
            with progress("saving", shown=True) as advance, _disk(temporary):
                for part in _downloaded(client, offered, advance):
                    _write(descriptor, part)
        else:
            from zraft.cli.snapshot_topics import read_topics

            saved_ms = time.time_ns() // 1_000_000
            archive = ArchiveWriter(RealFileSystem(), descriptor, str(temporary), saved_ms)
            with progress("saving", shown=True) as advance:
                digest = archive.member(SNAPSHOT, offered.size, _downloaded(client, offered, advance))
            access = Access(
                ",".join(map(str, client.addresses)), identity.auth, identity.tls, client.timeout_s
            )
            with progress("saving topics", shown=True) as advance:
                topics = read_topics(access, archive, digest, advance)
            archive.finish(topics)
        with _disk(temporary):
            os.fsync(descriptor)
        info = _verified(temporary, client, offered, archived=topics is not None)
        size = temporary.stat().st_size
    click.echo(
        f"{file}: {size} bytes, {info.items} items, zxid {info.zxid:#x}, entry {info.meta.index}, digest "
        f"{info.digest:032x}, from server {offered.server}"
    )
    if topics is not None:
        _tell_topics(topics)


def _has_topics(client: OperatorClient) -> bool:
    """Return whether the cluster has topics; its leader says so, and not the server that sends the snapshot."""
    from zraft.operator.errors import OperatorError
    from zraft.operator.requests import TopicList, TopicListing

    with client.another() as other:
        try:
            return bool(other.call(TopicList(), TopicListing).topics)
        except OperatorError as error:
            raise OperatorError(
                f"{error}; only the leader says which topics there are: --no-topics saves the znodes alone"
            ) from error


def _downloaded(client: OperatorClient, offered: SnapshotFile, advance: Advance) -> Iterator[bytes]:
    done = 0
    for part in client.download(offered):
        done += len(part)
        yield part
        advance(done, offered.size)


def _verified(
    temporary: Path, client: OperatorClient, offered: SnapshotFile, *, archived: bool
) -> SnapshotInfo:
    """Read all of a file that was saved, and return what its snapshot is of."""
    from zraft.operator.errors import OperatorError

    fs = ReadOnlyFileSystem()
    if archived:
        with _opened_archive(temporary, _SAVED) as archive, progress("verifying", shown=True) as advance:
            for done in archive.verify():
                advance(done, archive.size)
            fs = archive.snapshot()
    with _opened(temporary, _SAVED, fs) as opened:
        for _ in opened.verify():
            pass
        info = opened.info
    if info.id != offered.snapshot:
        raise OperatorError(
            f"{client.address}: expected snapshot {offered.snapshot.hex()}, it sent {info.id.hex()}; try again"
        )
    return info


def _tell_topics(manifest: Manifest) -> None:
    partitions = manifest.partitions
    click.echo(
        f"topics: {len(manifest.topics)}, partitions: {len(partitions)}, messages: "
        f"{sum(one.messages for one in partitions)}, all that was delivered up to time {manifest.time}"
    )


@snapshot.command(short_help="Create a new cluster from a snapshot file.")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--no-topics", is_flag=True, help="Leave the topics of FILE out.")
@founds_cluster
def restore(file: Path, place: Place, no_topics: bool) -> None:
    """Create a new cluster from a snapshot FILE, in an empty or missing directory; nothing may run there.

    The new cluster has an identity of its own, so servers and directories of the old one cannot mix with it, and its
    zxids begin 2^20 epochs above those of the file, so every client of the old one finds itself behind and reconnects
    (D-15). What was written after the snapshot is lost. Sessions and their ephemeral znodes are kept, and expire if
    their clients do not come back within their timeouts. Topics that FILE has are kept with their records, offsets and
    consumers, on this server until others have joined; producers open anew.

    The server is started afterwards as always and works at once alone; the other servers of --cluster are started with
    empty directories and the same --cluster, are let in and vote as soon as they have caught up.

    \b
        zraft snapshot restore zraft.snap --data /var/lib/zraft --id 1 \\
            --cluster 1=10.0.0.1:2181,2=10.0.0.2:2181,3=10.0.0.3:2181
    """
    from zraft.offline.founding import Origin, check_empty, claimed, found
    from zraft.offline.reading import machine_of
    from zraft.offline.topics_anew import topics_of
    from zraft.storage.filesystem import RealFileSystem

    fs = RealFileSystem()
    path = place.path
    # The file comes first: if it is no snapshot, no directory is made.
    with ExitStack() as stack:
        archive: ArchiveReader | None = None
        source = ReadOnlyFileSystem()
        if is_archive(source, str(file)):
            archive = stack.enter_context(_opened_archive(file, _COPY))
            source = archive.snapshot()
        opened = stack.enter_context(_opened(file, _COPY, source))
        stack.enter_context(claimed(fs, path))
        check_empty(fs, path)
        with progress("reading") as advance:
            info = opened.info
            if info.header.group != COORDINATION_GROUP:
                raise ConfigError(
                    f"{file}: is of group {info.header.group}, expected one of group {COORDINATION_GROUP}, which holds "
                    "the znodes"
                )
            machine = machine_of(opened.blocks(), str(file), lambda items: advance(items, info.items))
        topics = None
        if archive is not None and not no_topics:
            topics = topics_of(archive)
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
                topics=topics,
                on_topics=advance,
            )
    click.echo(f"from:      {file}, taken {_shown_time(info.header.wall_time_ms)} at zxid {info.zxid:#x}")
    if topics is not None:
        partitions = topics.partitions
        click.echo(
            f"topics:    {len(topics.topics)}, with {len(partitions)} partitions and "
            f"{sum(one.messages for one in partitions)} messages"
        )
    tell_founded(founded, place)


_COPY: Final = (
    "the file was changed, or copied in part: use another copy of it (what is wrong with a whole data directory says "
    "`zraft log verify DIR`)"
)
_SAVED: Final = "nothing was saved; try again, and if that goes on, save to another disk"


def _shown_time(wall_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_ms / 1000))


@contextmanager
def _opened(file: Path, advice: str, fs: ReadOnlyFileSystem) -> Iterator[SnapshotFileReader]:
    """Open a snapshot that the user named, as `fs` shows it.

    Raises:
        ConfigError: it is no snapshot.
        StorageError: it is damaged, or cannot be read; with `advice`.
    """
    with _blaming(file, advice), SnapshotFileReader(fs, str(file)) as opened:
        yield opened


@contextmanager
def _opened_archive(file: Path, advice: str) -> Iterator[ArchiveReader]:
    """Open a backup with topics that the user named; the errors are those of `_opened`."""
    with _blaming(file, advice), ArchiveReader(ReadOnlyFileSystem(), str(file)) as opened:
        yield opened


@contextmanager
def _blaming(file: Path, advice: str) -> Iterator[None]:
    """Say of damage in a file that the user named that it is no server's trouble, and need not be the disk's."""
    try:
        yield
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
