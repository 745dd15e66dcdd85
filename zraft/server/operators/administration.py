"""Administration of a server: lists and changes members, takes snapshots, changes replicated settings.

Requests come from whoever holds the cluster key (`zraft.operator`). Nothing here waits: a reply may be given later,
when its command was applied or the disk has done its part. What only some requests need is imported when one comes.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, assert_never

from attrs import frozen

from zraft.config.features import FEATURE_LEVEL_MAX, LEVEL_OF_MEMBERS
from zraft.groups.snapshots.tasks import ReadSnapshot, Result
from zraft.operator.requests import (
    AclDefaults,
    AclList,
    AclRemove,
    AclSet,
    AclShow,
    Done,
    FeatureRaise,
    MemberAdd,
    MemberLine,
    MemberList,
    MemberListing,
    MemberMove,
    MemberPromote,
    MemberRemove,
    OperatorReply,
    OperatorRequest,
    Refused,
    ReplicaListing,
    SettingLine,
    SettingsListing,
    SettingsSet,
    SettingsShow,
    SnapshotFile,
    SnapshotPart,
    SnapshotRead,
    SnapshotTake,
    TopicAlter,
    TopicCreate,
    TopicDelete,
    TopicDescribe,
    TopicGiveUp,
    TopicList,
    TopicReplicas,
    TopicRetain,
    Transfer,
)
from zraft.program.nearest import did_you_mean
from zraft.raft.core import Raft
from zraft.raft.messages import UNKNOWN_INSTANCE, MemberRole
from zraft.raft.role import Role
from zraft.server.coordination.leadership import Leadership
from zraft.server.engine.driver import Driver
from zraft.tree.node import CONFIG
from zraft_core.errors import Code
from zraft_core.ids import COORDINATION_GROUP, GroupId, ServerId
from zraft_core.znodes.member_roles import REMOVE
from zraft_core.znodes.txn import MEMBERS, SETTINGS, Command

if TYPE_CHECKING:
    from zraft.server.operators.members import MemberRequest

Reply = Callable[[OperatorReply], None]

_PASSING: Final = (Code.RECONFIG_IN_PROGRESS, Code.UNIMPLEMENTED, Code.BAD_VERSION)
"""The answers of a young cluster in its first seconds, or of one whose members were changed at the same
moment: they are worth asking again until the caller's time is up.
"""

PART_BYTES_MAX: Final = 256 * 1024
WAITING_MAX: Final = 64

_WHY: Final = {
    Code.NEW_CONFIG_NO_QUORUM: "the change would leave no server that votes; add another one first",
    Code.BAD_ARGUMENTS: "there is no such member, or the request is out of bounds",
    Code.UNIMPLEMENTED: f"the cluster works at a feature level below {LEVEL_OF_MEMBERS}: it rises by itself within "
    "seconds of the cluster's foundation; upgrade all servers first, or raise the knob features_max that holds it down",
    Code.RECONFIG_IN_PROGRESS: "the leader has not yet written down who the members are, which it does within seconds of "
    "the cluster's foundation; try again",
    Code.OPERATION_TIMEOUT: "it is unknown whether it was done, for this server was far behind: look and try again",
    Code.BAD_VERSION: "the members were changed by somebody else meanwhile; look and try again",
}

_JUST_ELECTED: Final = "this server has only just been elected"


@frozen
class _Transferring:
    target: ServerId
    since_ms: int
    reply: Reply


@frozen(eq=False)
class _Raising:
    level: int
    leadership: Leadership
    reply: Reply


class Administration:
    """Answers operators of one server; `turn` looks after those that wait."""

    def __init__(self, driver: Driver, replicas: Callable[[Sequence[GroupId]], ReplicaListing]) -> None:
        """Answer for a server; `replicas` returns what it holds of some groups."""
        self._driver = driver
        self._replicas = replicas
        self._taking: list[tuple[int, Reply]] = []
        """Those who want a snapshot, and of which entry at least: what was acknowledged before has to be in
        it.
        """
        self._transfers: list[_Transferring] = []
        self._raising: list[_Raising] = []

    def handle(self, request: OperatorRequest, reply: Reply) -> None:
        """Answer through `reply`, now or later, once."""
        driver = self._driver
        raft = driver.raft
        if raft is None or driver.coordination.problem is not None:
            reply(
                Refused(
                    f"this server is not part of its cluster: {driver.coordination.problem or 'it is starting'}",
                    retriable=True,
                )
            )
            return
        match request:
            case MemberList():
                reply(self._elsewhere(raft) or self._list(raft))
            case MemberAdd() | MemberMove() | MemberPromote() | MemberRemove():
                self._change(raft, request, reply)
            case Transfer(target):
                self._transfer(raft, target, reply)
            case SnapshotTake():
                if len(self._taking) >= WAITING_MAX:
                    reply(Refused("too many snapshots were asked for at once", retriable=True))
                    return
                self._taking.append((driver.applied_index, reply))
            case SnapshotRead(id, offset, length):
                driver.read_snapshot(
                    ReadSnapshot(0, COORDINATION_GROUP, id, offset, min(length, PART_BYTES_MAX)),
                    lambda result: _give_part(offset, result, reply),
                )
            case SettingsShow():
                reply(self._settings())
            case SettingsSet(name, value):
                self._set(name, value, reply)
            case FeatureRaise(level):
                self._raise(raft, level, reply)
            case TopicList() | TopicDescribe():
                # The leader answers this: somebody who has just created a topic wants to see it.
                from zraft.server.operators.topics import answer

                reply(self._elsewhere(raft) or answer(driver.machine.registry, request))
            case TopicReplicas(groups):
                reply(self._replicas([GroupId(group) for group in groups]))
            case TopicCreate() | TopicAlter() | TopicRetain() | TopicDelete():
                from zraft.server.operators.topics import change

                change(driver.machine.feature_level, request, driver.submit, reply)
            case AclList() | AclShow():
                from zraft.server.operators import access

                reply(self._elsewhere(raft) or access.answer(driver.machine, request))
            case AclSet() | AclDefaults() | AclRemove():
                # The leader judges what there is to be changed: another server may be behind.
                elsewhere = self._elsewhere(raft)
                if elsewhere is None:
                    from zraft.server.operators import access

                    access.change(driver.machine, request, driver.submit_as_super, reply)
                else:
                    reply(elsewhere)
            case TopicGiveUp(group):
                elsewhere = self._elsewhere(raft)
                if elsewhere is not None:
                    reply(elsewhere)
                    return
                from zraft.server.operators.partition_problems import coordinator_of, why_lost
                from zraft.server.operators.topics import give_up

                registry, known = driver.machine.registry, coordinator_of(driver)
                reason = None if known is None else why_lost(registry, GroupId(group), known)
                give_up(registry, driver.machine.feature_level, request, reason, driver.submit, reply)
            case _:
                assert_never(request)

    @property
    def awaited(self) -> bool:
        """True if an operator waits for what only a later `turn` can tell."""
        return bool(self._taking or self._raising or self._transfers)

    def turn(self) -> None:
        """Give those who wait what they wait for."""
        driver = self._driver
        if self._taking:
            self._give_snapshots()
        if self._raising:
            self._look_at_levels()
        if self._transfers and driver.raft is not None:
            waiting_transfers, self._transfers = self._transfers, []
            for transfer in waiting_transfers:
                self._look_at_transfer(driver.raft, transfer)

    def _give_snapshots(self) -> None:
        keeper = self._driver.snapshots.keeper
        newest = keeper.newest
        waiting, self._taking = self._taking, []
        for index, reply in waiting:
            if newest is None or newest.header.meta.index < index:
                self._taking.append((index, reply))
                continue
            meta = newest.header.meta
            reply(
                SnapshotFile(
                    self._driver.identity.server, newest.header.id, newest.size, meta.index, newest.zxid
                )
            )
        if self._taking and not keeper.writing:
            keeper.request()

    # -- members

    def _leader_address(self) -> str | None:
        driver = self._driver
        member = driver.machine.members.get(driver.leader) if driver.leader is not None else None
        return (
            member.address
            if member is not None and member.address
            else driver.coordination.address_of(driver.leader)
        )

    def _elsewhere(self, raft: Raft) -> Refused | None:
        """Return who can answer what only the leader can; None if this server leads."""
        leader = self._driver.leader
        if raft.role is Role.LEADER:
            return None
        if leader is None:
            return Refused("no server leads at the moment", retriable=True)
        return Refused(f"server {leader} leads", leader=self._leader_address(), retriable=True)

    def _list(self, raft: Raft) -> MemberListing:
        driver = self._driver
        leadership = driver.leadership
        silences = raft.silences
        matches = {follower.server: follower.match_index for follower in raft.statistics().followers}
        lines = []
        for server, member in raft.membership.members.items():
            leads = server == driver.identity.server
            # The part that it is to have is known before its role changes: its partitions move first.
            leaving = bool(driver.machine.members) and server not in driver.machine.members
            role = MemberRole.LEAVING if leaving else member.role
            features = driver.settings.features if leads else None
            if leadership is not None and not leads:
                features = leadership.members.features_of(server, member.instance)
            lines.append(
                MemberLine(
                    server,
                    member.address or driver.coordination.address_of(server) or "",
                    role.name.lower(),
                    member.instance,
                    leads,
                    raft.log.last_index if leads else matches.get(server),
                    None if leads else silences.get(server),
                    features,
                )
            )
        for server, wish in driver.machine.members.items():
            if server not in raft.membership.members:
                lines.append(
                    MemberLine(
                        server,
                        wish.address,
                        MemberRole.LEARNER.name.lower(),
                        UNKNOWN_INSTANCE,
                        False,
                        None,
                        None,
                        None,
                    )
                )
        return MemberListing(
            driver.cluster or b"",
            raft.members_changed_index,
            raft.log.last_index,
            raft.membership.joint or not raft.membership_committed,
            tuple(lines),
        )

    def _left(self, raft: Raft, server: ServerId) -> str | None:
        """Return what has to happen first after a removal that was decided.

        Who leads knows whether the server answers.
        """
        member = raft.membership.members.get(server)
        partitions = (
            0 if member is None else self._driver.machine.registry.groups_on((server, member.instance))
        )
        if not partitions:
            return None
        return (
            f"server {server} leaves when the partitions of topics on its disk have moved ({partitions}), or now if it "
            "does not answer"
        )

    def _change(self, raft: Raft, request: MemberRequest, reply: Reply) -> None:
        driver = self._driver
        if driver.leadership is None:
            # A server that is behind would judge by members that are no longer so.
            reply(self._elsewhere(raft) or Refused(_JUST_ELECTED, retriable=True))
            return
        from zraft.server.operators.members import MemberChange, change_of

        machine = driver.machine
        found = change_of(request, machine.members, raft.membership.members)
        if not isinstance(found, MemberChange):
            reply(found)
            return
        node = machine.nodes.get(CONFIG)
        assert node is not None, f"{CONFIG} cannot be deleted"
        server, text = found.server, found.text
        # Carried out only if the members are still those by which it was judged.
        command: Command = (MEMBERS, False, node.mzxid, ((server, found.part, found.address),))
        if found.part == REMOVE:
            self._submit(command, reply, lambda: self._left(raft, server) or text)
        else:
            self._submit(command, reply, lambda: text)

    def _submit(self, command: Command, reply: Reply, text: Callable[[], str]) -> None:
        """Append a command to the log, and answer when it is applied here."""

        def done(result: object) -> None:
            if isinstance(result, Code) and result is not Code.OK:
                why = _WHY.get(result, f"the cluster answered {result.name}")
                reply(Refused(why, retriable=result in _PASSING))
            else:
                reply(Done(text()))

        self._driver.submit(command, done)

    def _transfer(self, raft: Raft, target: ServerId | None, reply: Reply) -> None:
        elsewhere = self._elsewhere(raft)
        if elsewhere is not None:
            reply(elsewhere)
            return
        if target is None:
            voters = [server for server in raft.membership.voters if server != self._driver.identity.server]
            matches = {f.server: f.match_index for f in raft.statistics().followers}
            answering = raft.followers_at(0)
            voters.sort(key=lambda server: (server not in answering, -matches.get(server, 0)))
            target = voters[0] if voters else None
        if target == self._driver.identity.server:
            reply(Done(f"server {target} leads already"))
        elif target is None or target not in raft.membership.voters:
            reply(
                Refused(
                    f"the leadership can only go to a voter other than this one: {raft.membership.voters}"
                )
            )
        elif not raft.transfer_leadership(target):
            reply(Refused("the leadership is being handed over already", retriable=True))
        else:
            self._transfers.append(_Transferring(target, self._driver.clock.now, reply))

    def _look_at_transfer(self, raft: Raft, transfer: _Transferring) -> None:
        if raft.role is Role.LEADER and not raft.transferring:
            transfer.reply(
                Refused(
                    f"server {transfer.target} did not take over within the election timeout; this server leads on",
                    retriable=True,
                )
            )
        elif raft.leader == transfer.target:
            transfer.reply(Done(f"server {transfer.target} leads"))
        elif raft.leader is not None and raft.leader != self._driver.identity.server:
            transfer.reply(
                Refused(f"server {raft.leader} was elected instead", leader=self._leader_address())
            )
        elif (
            self._driver.clock.now - transfer.since_ms
            > 20 * self._driver.settings.raft.election_timeout_ticks
        ):
            transfer.reply(Refused("no leader was elected so far", retriable=True))
        else:
            self._transfers.append(transfer)

    # -- settings

    def _settings(self) -> SettingsListing:
        driver = self._driver
        configured = {name: getattr(driver.settings.tree, name) for name in driver.settings.configured}
        machine = driver.machine
        level = machine.feature_level
        possible = driver.settings.features
        if driver.leadership is not None and driver.raft is not None:
            possible = max(level, driver.leadership.members.level_of_all(driver.raft.membership))
        return SettingsListing(
            tuple(
                SettingLine(name, value, configured.get(name))
                for name, value in sorted(machine.settings.known_at(level).items())
            ),
            level,
            possible,
        )

    def _set(self, name: str, value: int, reply: Reply) -> None:
        machine = self._driver.machine
        known = machine.settings.known_at(machine.feature_level)
        if name not in known:
            hint = did_you_mean(name, known)
            reply(Refused(f"{name!r} is no replicated setting{hint}; there are {', '.join(sorted(known))}"))
        elif machine.settings.changed({name: value}, machine.feature_level) is None:
            reply(Refused(f"{name} = {value} is out of bounds, or contradicts another setting"))
        else:
            self._submit((SETTINGS, {name: value}), reply, lambda: f"{name} is {value} now, on all servers")

    def _raise(self, raft: Raft, level: int | None, reply: Reply) -> None:
        leadership = self._driver.leadership
        if leadership is None:
            reply(self._elsewhere(raft) or Refused(_JUST_ELECTED, retriable=True))
            return
        possible = leadership.members.level_of_all(raft.membership)
        wanted = possible if level is None else level
        if wanted <= self._driver.machine.feature_level:
            reply(Done(f"the cluster works at feature level {self._driver.machine.feature_level} already"))
        elif wanted > possible or wanted > FEATURE_LEVEL_MAX:
            reply(
                Refused(
                    f"not all members can do level {wanted}; the highest that all announced is {possible}"
                )
            )
        else:
            leadership.raise_features(wanted)
            self._raising.append(_Raising(wanted, leadership, reply))

    def _look_at_levels(self) -> None:
        driver = self._driver
        level = driver.machine.feature_level
        waiting, self._raising = self._raising, []
        for raising in waiting:
            if level >= raising.level:
                raising.reply(Done(f"the cluster works at feature level {level}"))
            elif driver.leadership is not raising.leadership:
                raising.reply(Refused("this server lost the leadership; ask again", retriable=True))
            else:
                self._raising.append(raising)


def _give_part(offset: int, result: Result, reply: Reply) -> None:
    if isinstance(result, bytes):
        reply(SnapshotPart(offset, result))
    else:
        reply(Refused(f"the snapshot is no longer there: {result}"))
