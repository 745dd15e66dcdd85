"""Whether this server belongs to its cluster: how it gets in, what it says to strangers, and that it was removed (D-1).

Until a cluster is known here, `bootstrap` founds one with other empty directories, or `joining` asks a running one to
be let in. Later a server can learn that it was removed, and from whom it hears that decides whether it is believed.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from zraft.groups.identity import Identity
from zraft.groups.outbox import Outbox
from zraft.groups.recovery import Stored
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.server.coordination.bootstrap import Bootstrap
from zraft.server.coordination.joining import Joining, introduction
from zraft.server.coordination.leadership import Leadership
from zraft.server.coordination.settings import CoordinationSettings
from zraft.transport.messages import Hello, Join, NotMember, PeerMessage, Sender
from zraft.tree.machine import Machine
from zraft_core.ids import Instance, ServerId

ASK_STRANGER_INTERVAL_MS: Final = 100

ASK_WHETHER_MEMBER_INTERVAL_MS: Final = 500

LOOK_WHETHER_LEAVES_INTERVAL_MS: Final = 50
"""All groups of topics are looked at, while a server has been asked to leave."""

_WHY_NOT: Final = (
    ", the default beside data of a ZooKeeper: `zraft import` them first, on one server and into an empty directory, see "
    "docs/MIGRATION.md; to begin with no znodes, set founds=true"
)


def _listed(servers: Iterable[ServerId]) -> str:
    return ", ".join(map(str, servers))


class Belonging:
    """One server and its cluster.

    Attributes:
        bootstrap, joining: the two ways in.
        removed: why this server no longer belongs to the cluster, in words for its operator.
    """

    def __init__(
        self,
        identity: Identity,
        peers: Sequence[ServerId],
        settings: CoordinationSettings,
        stored: Stored,
        addresses: Mapping[ServerId, str],
        outbox: Outbox,
    ) -> None:
        self._identity = identity
        self._outbox = outbox
        self._founds = settings.founds
        self._address = addresses.get(identity.server, "")
        self.removed: str | None = None
        self._removed_at = 0
        self._belonged = False
        self._other_cluster: str | None = None
        """What a peer says that belongs to another cluster; of interest while nobody leads this one."""
        self._ask_stranger_at = self._ask_outside_at = 0
        self._leaves = False
        self._look_whether_leaves_at = 0
        self.bootstrap = Bootstrap(
            identity.server,
            identity.instance,
            [peer for peer in peers if peer not in settings.observers],
            stored.roster,
            # Also if no entry reached it: no founder has a term before it knows that all agreed on the roster.
            founded=stored.log.last_index > 0 or (stored.roster is not None and stored.hard_state.term > 0),
            cluster=identity.cluster,
            founds=settings.founds and identity.server not in settings.observers,
        )
        self.joining = Joining(
            identity.server,
            identity.instance,
            peers,
            self._address,
            settings.features,
            # An empty log without a roster: it was taken in, and stopped before the first entry reached it.
            identity.cluster if stored.roster is None and stored.log.last_index == 0 else None,
        )

    # -- what operators see

    @property
    def cluster(self) -> bytes | None:
        """The cluster id, once the roster is agreed and the cluster founded."""
        return self.bootstrap.cluster

    def problem(self, *, led: bool) -> str | None:
        """Why this server stays out of its cluster; `led`: it follows a leader, or leads."""
        lonely = None if led else self._other_cluster
        return self.removed or self.bootstrap.problem or self.joining.problem or lonely

    def waiting(self, *, led: bool) -> str | None:
        """What an empty server waits for; None once it belongs to a cluster, or was told no."""
        if self.problem(led=led) is not None:
            return None
        bootstrap = self.bootstrap
        if bootstrap.declines and not self._founds:
            return (
                f"this disk is empty, and this server founds no cluster (founds=false{_WHY_NOT}): it waits for one that it "
                "can join"
            )
        if bootstrap.declined:
            return (
                f"this disk is empty, and server {_listed(bootstrap.declined)} founds no cluster (its setting founds is "
                f"false{_WHY_NOT})"
            )
        if bootstrap.unheard:
            return (
                f"this disk is empty, and servers {_listed(bootstrap.unheard)} have not answered: a new cluster is founded "
                f"when all that are listed run; if it runs already, its servers do not know this one before `zraft member "
                f"add {self._identity.server} {self._address or 'HOST:PORT'}`"
            )
        return self.joining.waiting

    # -- what it asks

    def seek(self, now_ms: int) -> None:
        """A share of the turn while no cluster is known here."""
        for peer, hello in self.bootstrap.hellos(now_ms):
            self._outbox.send(peer, hello)
        if self.bootstrap.met is not None:
            self.joining.met(self.bootstrap.met)
        for peer, join in self.joining.joins(now_ms):
            self._outbox.send(peer, join)

    def asks_outside(self, now_ms: int) -> bool:
        """Whether it is time to ask others, should nobody lead this server, whether it is still a member."""
        return now_ms >= self._ask_outside_at

    def ask_whether_member(self, raft: Raft, now_ms: int) -> None:
        """Who was removed while it was away would never be told.

        If it may not campaign, it says nothing; and if it may, none of those whose votes it asks for may be leading, or
        be a member any more.
        """
        if self.removed is None and self.cluster:
            self._ask_outside_at = now_ms + ASK_WHETHER_MEMBER_INTERVAL_MS
            for server in raft.membership.members:
                if server != self._identity.server:
                    self._outbox.send(server, Hello(self.cluster, None, wants_reply=True))

    # -- what others say

    def on_hello(
        self,
        sender: Sender,
        hello: Hello,
        raft: Raft | None,
        leadership: Leadership | None,
        *,
        serving: bool,
        now_ms: int,
    ) -> None:
        """A server shows its disk and its cluster; one of ours that is no member is told so."""
        server, instance = sender.server, sender.instance
        answer = self.bootstrap.on_hello(sender, hello)
        if answer is not None:
            self._outbox.send(server, answer)
        if raft is None or hello.cluster is None or hello.cluster != self.cluster:
            return
        raft.vouch(server, instance)
        if hello.wants_reply and not raft.membership.has(server, instance):
            if leadership is None and serving and raft.membership_committed:
                # The leader may be somebody it does not know. What we know may be old, too: a later
                # configuration with this disk in it takes our word back.
                self._outbox.send(server, NotMember(hello.cluster, raft.members_changed_index))
            else:
                self.on_stranger(raft, leadership, server, instance, now_ms)

    def on_stranger(
        self, raft: Raft, leadership: Leadership | None, server: ServerId, instance: Instance, now_ms: int
    ) -> None:
        """A consensus message of who is no member here.

        A leader tells it, for it may have been removed without knowing. Anybody else asks which cluster it belongs
        to: if it is this one, the membership may have changed while this server was away (`Raft.vouch`).
        """
        if self.cluster is None:
            return
        if leadership is not None:
            if raft.membership_committed:
                answer = leadership.members.not_member(server, instance, raft, self.cluster, now_ms)
                if answer is not None:
                    self._outbox.send(server, answer)
        elif now_ms >= self._ask_stranger_at:
            self._ask_stranger_at = now_ms + ASK_STRANGER_INTERVAL_MS
            self._outbox.send(server, Hello(self.cluster, None, wants_reply=True))

    def on_join(
        self,
        server: ServerId,
        instance: Instance,
        join: Join,
        raft: Raft,
        leadership: Leadership | None,
        machine: Machine,
        now_ms: int,
    ) -> None:
        """An empty disk asks to be let in: the leader decides, and anybody else says who the others are."""
        answer: PeerMessage | None = None
        if leadership is not None and self.cluster is not None:
            answer = leadership.members.on_join(
                server, instance, join, raft, self.cluster, machine.members, now_ms
            )
        elif join.cluster == self.cluster and raft.membership_committed:
            # The leader may be somebody it does not know.
            answer = introduction(join.cluster, raft.members_changed_index, raft.membership, server)
        if answer is not None:
            self._outbox.send(server, answer)

    def on_not_member(self, server: ServerId, message: NotMember, raft: Raft | None) -> int | None:
        """A server says that this one is none of its cluster's: the index that removed it, if that is to be believed."""
        cluster = self.cluster
        if raft is None:
            self.joining.on_refusal(message)
        elif cluster is not None and message.cluster != cluster:
            self._note_other_cluster(server, cluster, message.cluster)
        elif message.cluster == cluster:
            known = raft.members_changed_index
            ours = raft.membership.has(self._identity.server, self._identity.instance)
            if message.index > known or (message.index == known and not ours):
                return message.index
        return None

    def _note_other_cluster(self, server: ServerId, ours: bytes, cluster: bytes) -> None:
        """A peer is in another cluster than this disk: nothing it says counts, but it explains why nobody answers."""
        self._other_cluster = (
            f"server {server} belongs to cluster {cluster.hex()}, this disk (instance {self._identity.instance.hex()}) to "
            f"cluster {ours.hex()}: the cluster was restored or recovered without this disk, or the list of "
            f"servers is wrong. To join the new one, move the data directory aside and start with an empty one"
        )

    # -- in and out

    def note_membership(self, membership: Membership, index: int) -> bool:
        """The configuration of entry `index` is in the state; True if it is the one that removes this server."""
        belongs = membership.has(self._identity.server, self._identity.instance)
        removes = self._belonged and not belongs
        if belongs and index > self._removed_at:
            # What was heard of a removal is older than this: it was said to who had our number before us.
            self.removed = None
        # A server that catches up meets configurations of the time before it was let in.
        self._belonged = belongs
        return removes

    def leaves(self, raft: Raft, machine: Machine, now_ms: int) -> bool:
        """Whether this member is to be removed, and next: nothing of topics is left on its disk.

        The leader gives it a moment (`membership_keeper.LEAVE_MS`) before it begins.
        """
        server, instance = self._identity.server, self._identity.instance
        wanted = machine.members
        if not wanted or server in wanted or not raft.membership.has(server, instance):
            self._leaves = False
        elif now_ms >= self._look_whether_leaves_at:
            self._look_whether_leaves_at = now_ms + LOOK_WHETHER_LEAVES_INTERVAL_MS
            self._leaves = not machine.registry.groups_on((server, instance))
        return self._leaves

    def remove(self, index: int) -> bool:
        """The entry `index` removed this server; False if that was known."""
        self._removed_at = max(self._removed_at, index)
        if self.removed is not None:
            return False
        self.removed = (
            f"server {self._identity.server} (instance {self._identity.instance.hex()}) was removed from the "
            f"cluster with entry {index}: it serves nobody. To let it in again, add it with `zraft member add` and "
            "start it with an empty directory"
        )
        return True
