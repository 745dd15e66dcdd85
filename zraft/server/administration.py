"""What a server does for its operators: lists and changes members, takes snapshots, changes replicated settings.

Requests come from whoever holds the cluster key (`zraft.operator`). Nothing here waits: a reply may be given later,
when its command was applied or the disk has done its part.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, assert_never

from attrs import asdict, frozen

from zraft.errors import Code
from zraft.ids import ServerId
from zraft.nearest import did_you_mean
from zraft.operator.requests import (
    Done,
    FeatureRaise,
    MemberAdd,
    MemberLine,
    MemberList,
    MemberListing,
    MemberPromote,
    MemberRemove,
    OperatorReply,
    OperatorRequest,
    Refused,
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
    TopicList,
    TopicRetain,
    Transfer,
)
from zraft.raft.core import Raft
from zraft.raft.messages import UNKNOWN_INSTANCE, MemberRole
from zraft.raft.role import Role
from zraft.server.driver import Driver
from zraft.server.leadership import Leadership
from zraft.server.snapshot_tasks import Read, Result
from zraft.server.topic_administration import answer, change
from zraft.tree.features import FEATURE_LEVEL_MAX, LEVEL_OF_MEMBERS
from zraft.tree.members import EVERYWHERE, OBSERVER, PARTICIPANT, REMOVE
from zraft.tree.txn import MEMBERS, SETTINGS, Command

Reply = Callable[[OperatorReply], None]

_PASSING: Final = (Code.RECONFIG_IN_PROGRESS, Code.UNIMPLEMENTED)
"""What a young cluster answers for its first seconds: worth asking again until the caller's time is up."""

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

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._taking: list[tuple[int, Reply]] = []
        """Who wants a snapshot, and of which entry at least: what was acknowledged before has to be in it."""
        self._transfers: list[_Transferring] = []
        self._raising: list[_Raising] = []

    def handle(self, request: OperatorRequest, reply: Reply) -> None:
        """Answer through `reply`, now or later, once."""
        driver = self._driver
        raft = driver.raft
        if raft is None or driver.problem is not None:
            reply(
                Refused(
                    f"this server is not part of its cluster: {driver.problem or 'it is starting'}",
                    retriable=True,
                )
            )
            return
        match request:
            case MemberList():
                self._as_leader(raft, reply, lambda: self._list(raft))
            case MemberAdd(server, address, observer):
                part = OBSERVER if observer else PARTICIPANT
                if address.startswith(EVERYWHERE):
                    reply(
                        Refused(
                            f"server {server} cannot be at {address}: that only says where a server listens; name the "
                            "address at which the others and the clients reach it"
                        )
                    )
                    return
                self._change(server, part, address, reply, f"server {server} is taken in as it shows up")
            case MemberRemove(server):
                if driver.machine.members and server not in driver.machine.members:
                    reply(Refused(f"server {server} is no member; the members are {self._names()}"))
                    return
                self._change(server, REMOVE, "", reply, lambda: self._left(raft, server))
            case MemberPromote(server):
                member = driver.machine.members.get(server)
                if member is None:
                    reply(Refused(f"server {server} is no member; the members are {self._names()}"))
                    return
                self._change(
                    server,
                    PARTICIPANT,
                    member.address,
                    reply,
                    f"server {server} votes as soon as it has caught up",
                )
            case Transfer(target):
                self._transfer(raft, target, reply)
            case SnapshotTake():
                if len(self._taking) >= WAITING_MAX:
                    reply(Refused("too many snapshots were asked for at once", retriable=True))
                    return
                self._taking.append((driver.applied_index, reply))
            case SnapshotRead(id, offset, length):
                driver.snapshots.read_for_operator(
                    Read(0, id, offset, min(length, PART_BYTES_MAX)),
                    lambda result: _give_part(offset, result, reply),
                )
            case SettingsShow():
                reply(self._settings())
            case SettingsSet(name, value):
                self._set(name, value, reply)
            case FeatureRaise(level):
                self._raise(raft, level, reply)
            case TopicList() | TopicDescribe():
                # The leader's: who has just created a topic wants to see it.
                self._as_leader(raft, reply, lambda: answer(driver.machine.registry, request))
            case TopicCreate() | TopicAlter() | TopicRetain() | TopicDelete():
                change(driver.machine.feature_level, request, driver.submit, reply)
            case _:
                assert_never(request)

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

    def _names(self) -> str:
        return ", ".join(map(str, self._driver.machine.members)) or "not written down yet"

    def _leader_address(self) -> str | None:
        driver = self._driver
        member = driver.machine.members.get(driver.leader) if driver.leader is not None else None
        return member.address if member is not None and member.address else driver.address_of(driver.leader)

    def _as_leader(self, raft: Raft, reply: Reply, answer: Callable[[], OperatorReply]) -> None:
        if raft.role is Role.LEADER:
            reply(answer())
        elif self._driver.leader is None:
            reply(Refused("no server leads at the moment", retriable=True))
        else:
            leader = self._driver.leader
            reply(Refused(f"server {leader} leads", leader=self._leader_address(), retriable=True))

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
                    member.address or driver.address_of(server) or "",
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

    def _left(self, raft: Raft, server: ServerId) -> str:
        """What comes of a removal that was decided; who leads knows whether the server answers."""
        member = raft.membership.members.get(server)
        partitions = (
            0 if member is None else self._driver.machine.registry.groups_on((server, member.instance))
        )
        if not partitions:
            return f"server {server} is taken out"
        return (
            f"server {server} leaves when the partitions of topics on its disk have moved ({partitions}), or now if it "
            "does not answer"
        )

    def _change(
        self, server: ServerId, part: int, address: str, reply: Reply, text: str | Callable[[], str]
    ) -> None:
        self._submit((MEMBERS, False, -1, ((server, part, address),)), reply, text)

    def _submit(self, command: Command, reply: Reply, text: str | Callable[[], str]) -> None:
        """Into the log, and answered when it is applied here."""

        def done(result: object) -> None:
            if isinstance(result, Code) and result is not Code.OK:
                why = _WHY.get(result, f"the cluster answered {result.name}")
                reply(Refused(why, retriable=result in _PASSING))
            else:
                reply(Done(text if isinstance(text, str) else text()))

        self._driver.submit(command, done)

    def _transfer(self, raft: Raft, target: ServerId | None, reply: Reply) -> None:
        if raft.role is not Role.LEADER:
            self._as_leader(raft, reply, lambda: Done(""))
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
        configured = asdict(driver.settings.tree)
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
            self._submit((SETTINGS, {name: value}), reply, f"{name} is {value} now, on all servers")

    def _raise(self, raft: Raft, level: int | None, reply: Reply) -> None:
        leadership = self._driver.leadership
        if raft.role is not Role.LEADER or leadership is None:
            self._as_leader(
                raft, reply, lambda: Refused("this server has only just been elected", retriable=True)
            )
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
