"""A cluster that was made of another one's data, for clients that knew that one (trap 16's other half, D-15)."""

from __future__ import annotations

from tests.traps.one import Server
from tests.traps.peer import connect_bytes
from tests.traps.protocol import create, get_data
from tests.unit.server.one_server import INSTANCE, ME
from zraft.tree.image.reader import ImageReader
from zraft.tree.image.writer import ImageWriter
from zraft.tree.members import WantedMember
from zraft_core.ids import zxid_anew


def backup_of(server: Server) -> bytes:
    """Its state now."""
    writer = ImageWriter(server.machine)
    pieces = []
    while piece := writer.step(1_000, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def server_with(backup: bytes) -> Server:
    reader = ImageReader()
    reader.feed(backup)
    while reader.step(1_000):
        pass
    server = Server()
    server.machine.adopt(reader.finish())
    return server


def test_clients_of_the_old_cluster_are_ahead_of_its_backup_and_behind_the_cluster_made_of_it(
    server: Server,
) -> None:
    """With the backup's own zxids they would be turned away by every server, for ever."""
    client = server.peer()
    server.done(client, create("/a", b"1"))
    backup = backup_of(server)
    last = server.done(client, create("/b", b"2"))[0]
    hello = connect_bytes(session=client.session, password=client.password, last_zxid=last.zxid)

    as_it_was = server_with(backup)
    assert as_it_was.machine.last_zxid < last.zxid
    assert as_it_was.peer(hello).greeting is None

    anew = server_with(backup)
    zxid = zxid_anew(anew.machine.last_zxid)
    assert zxid is not None
    anew.machine.begin_anew(zxid, (ME, INSTANCE), {ME: WantedMember(True, "a:1")})
    again = anew.peer(hello)
    assert again.greeting is not None
    assert again.session == client.session, "its session is in the backup"
    answers = anew.done(again, get_data("/a"), create("/c", b"3"))
    assert [answer.zxid > last.zxid for answer in answers] == [True, True], "zxids never go back"
    assert anew.one(again, get_data("/b")).err == -101, "what was written later is gone"
