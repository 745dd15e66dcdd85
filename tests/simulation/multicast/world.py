"""The adversary of atomic multicast, the healing after it, and the memory of what was promised. One seed is one run.

It loses, repeats, delays and reorders messages, some until after everything was forgotten; changes leaders and cuts what
they had not committed, installs snapshots, stops groups, kills producers and closes them while they live, adds partitions
to a topic and deletes others. Then it heals, everything must be delivered and drain, and the checks judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from attrs import evolve, fields, frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.coordination import SimulatedRegistry
from tests.simulation.multicast import checks
from tests.simulation.multicast.hosted import HostedGroup, over_wire
from tests.simulation.multicast.processes import Consuming, Producing
from tests.simulation.multicast.profile import Mode, Profile, Rare, Size, draw, reach
from zraft.topics.applied import BrokenGroupError
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.codec import Bundle, decode_edge, encode_edge
from zraft_core.topics.commands import Advance
from zraft_core.topics.merger import MergeError
from zraft_core.topics.message import COORDINATOR, Message
from zraft_core.topics.messages import GroupMessage, Need, Propose, Query, Reply, Report, StartRequest, Told
from zraft_core.topics.producer import Ended, Ending, ProducerCore
from zraft_core.topics.registry_commands import (
    AlterTopic,
    CloseProducer,
    CreateTopic,
    DeleteTopic,
    GiveUp,
)
from zraft_core.topics.registry_values import Topic
from zraft_core.topics.stamps import MessageId

NETWORK_MAX: Final = 150
ROUNDS_MAX: Final = 400
"""Until everything that was sent is delivered, once the world heals."""
MESSAGE_ROUNDS: Final = 10
"""The same for each message that a living producer has still to send: many of them are on their way at once."""
ORDERED_ROUNDS: Final = 50
"""The same of a producer whose messages are in order: at other destinations than the one before, it waits for that one, at a
fifth of a step in each round where a group is slow."""
MERGED: Final = "merged"
MINOR: Final = frozenset(("message lost", "message repeated"))
"""What is not counted as a fault: it happens all the time."""

Letter = Bundle | Report | tuple[GroupId, StartRequest] | Reply
"""To a group, to group 0, to a group, to a producer."""


@frozen
class Summary:
    """What a run saw."""

    seed: int
    messages: int
    deliveries: int
    commands: int
    faults: Counter[str]
    proposals: int

    @property
    def strikes(self) -> int:
        """How many faults there were, without those that happen all the time."""
        return sum(count for kind, count in self.faults.items() if kind not in MINOR)


class World(SimulatedRegistry):
    """Groups, group 0, producers, consumers and the network between them."""

    def __init__(
        self, seed: int, size: Size | None = None, mode: Mode | None = None, *, trace: bool = False
    ) -> None:
        """`trace`: at its end every group's log and deliveries are printed, as far as it came."""
        self.seed = seed
        self._trace = trace
        self.rng = Random(seed)
        self.profile: Profile = draw(seed, self.rng, size, mode)
        self.steps = 0
        self.faults: Counter[str] = Counter()
        self.proposals = 0
        self._network: list[Letter] = []
        self._late: list[Letter] = []
        self._pace: dict[GroupId, float] = {}
        self._stopped: dict[GroupId, int] = {}
        super().__init__(self.profile.group_settings())
        self.groups: dict[GroupId, HostedGroup] = {}
        self.given_up: set[GroupId] = set()
        self.healing = False
        self.messages: dict[MessageId, Message] = {}
        self.invoked: dict[MessageId, int] = {}
        self.ended: dict[MessageId, Ended] = {}
        self.ended_at: dict[MessageId, int] = {}
        self.promised: set[MessageId] = set()
        self.log(CreateTopic(MERGED, 2))
        merged = self.zxid
        self.topic = [self._found(merged), self._found(merged)]
        for at in range(self.profile.groups - 2):
            self.log(CreateTopic(f"other{at}", 1))
            self._found(self.zxid)
        self.producing: dict[ProducerId, Producing] = {}
        for count in self.profile.producers:
            self._join(count)
        self.consuming = [
            Consuming(self.topic, self.rng, self.groups, self._replaced, lambda: self._merged.partitions)
            for _ in range(2)
        ]
        self._alters, self._deletes = self.profile.alters, self.profile.deletes
        self._give_ups = self.profile.give_ups
        self._rare_kinds = [field.name for field in fields(Rare)]

    @property
    def moment(self) -> str:
        return f"step {self.steps}"

    # -- group 0

    def _found(self, topic: int) -> GroupId:
        group = self.found_group(topic)
        birth = self.registry.birth_of(group)
        self._pace[group] = self.rng.choice([0.2, 0.5, 0.9])

        def send(content: Bundle | Report) -> None:
            self._send(group, content)

        self.groups[group] = HostedGroup(
            birth, self.profile.leader_settings(), send, self._network_put, coded=self.profile.coded
        )
        return group

    def _join(self, count: int) -> None:
        pid = self.register()
        producer = ProducerCore(pid, self.registry.table(), window=self.profile.window, reach=reach(self.rng))
        self.producing[pid] = Producing(
            producer,
            count,
            self.rng,
            self.groups,
            causal=self.profile.causal,
            # Dice of their own: what the others show does not depend on them.
            ordered=Random(f"ordered {self.seed} {pid}").random() < self.profile.ordered,
            avoided=self._unborn if self.profile.replaces else frozenset,
        )

    @property
    def _merged(self) -> Topic:
        return self.registry.topics[self.registry.names[MERGED]]

    def _replaced(self) -> set[GroupId]:
        """The groups that were partitions of the merged topic, and in whose places there are others."""
        merged = self._merged
        return self.given_up - {*merged.partitions, *merged.adding}

    def _unborn(self) -> set[GroupId]:
        """Groups that no change has added to their topic yet. Clients do not know them, and their topic may be deleted."""
        return {group for group, hosted in self.groups.items() if not hosted.partition.born}

    def _alter(self) -> None:
        topic = self._merged
        if topic.change is not None or topic.adding or self.registry.lacking(topic):
            return
        more = self.rng.choice([1, 1, 2])
        if self.log(AlterTopic(MERGED, topic.wanted + more)).refusal is not None:
            return  # as many changes as fit are under way
        for _ in range(more):
            self._found(topic.topic)
        self._note_changes()
        self._alters -= 1
        self.faults["partitions added"] += 1

    def _note_changes(self) -> None:
        for change in self.registry.changes.values():
            message = change.message()
            self.messages[message.mid] = message
            self.invoked.setdefault(message.mid, self.steps)

    def _replace(self) -> None:
        """Found the groups that are to take the places of those that are given up."""
        for topic in list(self.registry.topics.values()):
            if self.registry.lacking(topic):
                self._found(topic.topic)
                self._note_changes()
                self.faults["group replaced"] += 1

    def _delete(self) -> None:
        others = sorted(name for name in self.registry.names if name != MERGED)
        if others:
            self.log(DeleteTopic(self.rng.choice(others)))
            self._deletes -= 1
            self.faults["topic deleted"] += 1

    def _give_up(self) -> None:
        """A group is lost; or not, and it goes on for a while although nobody hears of it."""
        replaces = self.profile.replaces
        others = [
            group
            for group in self.registry.groups
            if group not in self.given_up
            and (replaces or (group not in self.topic and self._is_alone(group)))
        ]
        if not others:
            return
        group = self.rng.choice(others)
        topic = self.registry.topics.get(self.registry.groups[group].topic)
        if topic is not None and not replaces:
            self.log(DeleteTopic(topic.name))
        self.log(GiveUp(group))
        self.given_up.add(group)
        self.given_up |= self.registry.given_up
        if self.rng.random() < 0.6:
            self._stopped[group] = 1 << 60
        self._give_ups -= 1
        self.faults["group given up"] += 1

    def _has_lost_its_home(self, mid: MessageId) -> bool:
        """Whoever is left may not know what the home of its condition said, and then it fails there."""
        condition = self.messages[mid].condition
        return condition is not None and condition.home in self.given_up

    def _is_lost(self, group: GroupId) -> bool:
        """A group that is given up, and gone or healed away."""
        return group in self.given_up and (self._stopped.get(group, 0) > self.steps or self.healing)

    def _is_alone(self, group: GroupId) -> bool:
        """Consumers that read several partitions in one order do not read this one."""
        topic = self.registry.topics.get(self.registry.groups[group].topic)
        return topic is None or topic.name != MERGED

    def _close(self, pid: ProducerId) -> None:
        if pid in self.registry.producers:
            self.log(CloseProducer(pid))
            self.faults["producer closed"] += 1

    def _publish(self) -> None:
        if self.profile.replaces:
            self._replace()
        for group, update in self.keeper.views():
            self._network_put(Bundle(group, (update,)))
        for group, request in self.keeper.changes():
            self._network_put((group, request))

    # -- the network

    def _network_put(self, letter: Letter) -> None:
        if self.profile.coded:
            if isinstance(letter, Bundle):
                letter = over_wire(letter)
            else:
                edge = letter[1] if isinstance(letter, tuple) else letter
                # What only producers' own connections say is not said between servers.
                if isinstance(edge, StartRequest):
                    edge = evolve(edge, staged=False)
                elif isinstance(edge, Reply):
                    edge = evolve(edge, time=0)
                if decode_edge(encode_edge(edge)) != edge:
                    raise BrokenPromiseError("codec", f"{edge} arrives as another one")
        self._network.append(letter)

    def _send(self, sender: GroupId, content: Bundle | Report) -> None:
        if isinstance(content, Bundle):
            for message in content.messages:
                self._check_genuine(sender, content.to, message)
        self._network_put(content)

    def _check_genuine(self, sender: GroupId, to: GroupId, message: GroupMessage) -> None:
        """Only destinations talk about a message, and only to destinations."""
        if isinstance(message, Propose | Query | Told):
            self.proposals += isinstance(message, Propose)
            destinations = self.messages[message.mid].destinations
            if sender not in destinations or to not in destinations:
                raise BrokenPromiseError(
                    "genuineness", f"{sender} told {to} of {tuple(message.mid)}, which is to {destinations}"
                )

    def _deliver(self, letter: Letter) -> None:
        match letter:
            case Reply():
                self._on_reply(letter)
            case Report():
                self.hear(letter)
            case Bundle(to):
                if to not in self.gone and not self._is_lost(to):
                    self.groups[to].on_bundle(letter)
            case (to, request):
                if to not in self.gone and not self._is_lost(to):
                    self.groups[to].on_start(request, unchecked=self.rng.random() < 0.2)

    def _on_reply(self, reply: Reply) -> None:
        pid = reply.mid.producer
        if pid == COORDINATOR:
            self.hear(reply)
            return
        process = self.producing[pid]
        for ended in process.on_reply(reply):
            self._acknowledge(ended)
        accepted = [MessageId(pid, seq) for seq in process.producer.take_accepted()]
        if process.eager and process.alive:
            self.promised.update(mid for mid in accepted if self.messages[mid].round is None)
        if process.producer.table_wanted and self.rng.random() < 0.7:
            self._tell_table(process)

    def _tell_table(self, process: Producing) -> None:
        for ended in process.on_table(self.registry.table()):
            self._acknowledge(ended)

    def _acknowledge(self, ended: Ended) -> None:
        """A producer reports what a message came to: it must be true now, not only in the end."""
        mid = ended.mid
        round_ = self.messages[mid].round is not None
        self.ended[mid] = ended
        if not round_:
            self.promised.add(mid)
        if ended.ending is not Ending.DELIVERED or self._has_lost_its_home(mid):
            return
        self.ended_at[mid] = self.steps
        for group in self.messages[mid].destinations:
            if group in self.given_up:
                continue
            hosted = self.groups[group]
            there = mid in hosted.rounds if round_ else _has(hosted, mid)
            if not there:
                raise BrokenPromiseError(
                    "delivered", f"{tuple(mid)} acknowledged as delivered, not yet so at {group}"
                )

    # -- steps

    def running(self) -> list[HostedGroup]:
        return [hosted for group, hosted in self.groups.items() if group not in self.gone]

    def _produce(self, process: Producing) -> None:
        if not process.alive or process.producer.expired:
            return
        if self.rng.random() < 0.1:
            self._tell_table(process)
        message = process.produce()
        for one in (message, process.take_round()):
            if one is not None:
                self.messages[one.mid] = one
                self.invoked[one.mid] = self.steps
        for group, request in process.requests():
            # One that waited for all others knows only now what its stamp is to be above.
            self.messages[request.message.mid] = request.message
            self._network_put((group, request))

    def _chaos(self) -> None:
        while self.steps < self.profile.length:
            self.steps += 1
            self._chaotic_step()
            if len(self._network) > NETWORK_MAX:
                self.rng.shuffle(self._network)
                del self._network[NETWORK_MAX * 2 // 3 :]

    def _chaotic_step(self) -> None:
        rng = self.rng
        dice = rng.random()
        hosted = rng.choice(self.running())
        stopped = self._stopped.get(hosted.group, 0) > self.steps
        if dice < 0.2:
            self._produce(rng.choice(list(self.producing.values())))
        elif dice < 0.6 and self._network:
            self._lose_or_deliver()
        elif dice < 0.8:
            if not stopped:
                hosted.commit(rng.randint(1, 4))
        elif dice < 0.9:
            if not stopped:
                hosted.tick()
        elif dice < 0.93:
            kept = rng.randint(0, len(hosted.tail))
            self.faults["log cut"] += kept < len(hosted.tail)
            self.faults["leader changed"] += 1
            hosted.change_leader(kept, from_snapshot=rng.random() < 0.3)
        elif dice < 0.96:
            self._consume(rng.choice(self.consuming), 0.6)
        elif dice < 0.98:
            self._publish()
        elif dice < 0.983:
            hosted.append(Advance(rng.randint(1, hosted.partition.clock + 20)))
        else:
            self._rare_step(hosted)

    def _rare_step(self, hosted: HostedGroup) -> None:
        rng, rare = self.rng, self.profile.rare
        what = rng.choices(self._rare_kinds, [getattr(rare, kind) for kind in self._rare_kinds])[0]
        match what:
            case "close":
                pid = rng.choice(sorted(self.producing))
                if rng.random() < 0.5:  # crashed; or only too slow for its timeout
                    self.producing[pid].alive = False
                    self.faults["producer killed"] += 1
                self._close(pid)
            case "alter" if self._alters:
                self._alter()
            case "delete" if self._deletes:
                self._delete()
            case "give_up" if self._give_ups:
                self._give_up()
            case "stop":
                self._stopped[hosted.group] = self.steps + rng.randint(20, 100)
                self.faults["group without quorum"] += 1
            case "coordinator":
                self.change_leader()
                self.faults["leader of group 0 changed"] += 1
            case "restart":
                rng.choice(self.consuming).restart()
            case _:
                pass

    def _lose_or_deliver(self) -> None:
        rng = self.rng
        at = rng.randrange(len(self._network))
        letter = self._network[at]
        if rng.random() < 0.8:
            self._network[at] = self._network[-1]
            self._network.pop()
        else:
            self.faults["message repeated"] += 1
        if rng.random() < 0.1:
            self._late.append(letter)
        if rng.random() >= self.profile.loss:
            self._deliver(letter)
        else:
            self.faults["message lost"] += 1

    def _consume(self, consuming: Consuming, chance: float) -> None:
        for group, time in consuming.step([g for g in self.groups if self.rng.random() < chance]).items():
            self._network_put(Bundle(group, (Need(time),)))

    # -- healing

    def _round(self) -> None:
        """One turn of a world that heals: nothing is lost any more, but nobody is in step."""
        self.steps += 1
        for hosted in self._left():
            if self.rng.random() < self._pace[hosted.group]:
                hosted.commit(len(hosted.tail))
                hosted.tick()
        for process in self.producing.values():
            self._tell_table(process)
            self._produce(process)
        self._publish()
        for consuming in self.consuming:
            self._consume(consuming, 1)
        moving, self._network = self._network, []
        self.rng.shuffle(moving)
        arriving: list[Letter] = []
        for letter in moving:
            pace = 0.8
            if isinstance(letter, Bundle):
                pace = self._pace[letter.to]
            elif isinstance(letter, tuple):
                pace = self._pace[letter[0]]
            (arriving if self.rng.random() < pace else self._network).append(letter)
        for letter in arriving:
            self._deliver(letter)

    def _heal(self, what: str, quiet: Callable[[], bool]) -> None:
        rounds = sum(
            process.left * (ORDERED_ROUNDS if process.ordered else MESSAGE_ROUNDS)
            for process in self.producing.values()
            if process.alive
        )
        for _ in range(ROUNDS_MAX + rounds):
            if quiet():
                return
            self._round()
        stuck = "; ".join(
            f"group {h.group}: pending {[tuple(m) for m in h.partition.pending.entries]} settled "
            f"{[tuple(m) for m in h.partition.settled.entries]} rows {sorted(h.partition.rows)} tail {len(h.tail)}"
            for h in self.running()
        )
        raise BrokenPromiseError("progress", f"{what}; {stuck}"[:2000])

    def _left(self) -> list[HostedGroup]:
        return [hosted for hosted in self.running() if hosted.group not in self.given_up]

    def _all_delivered(self) -> bool:
        idle = all(hosted.is_idle for hosted in self._left())
        done = all(process.is_done for process in self.producing.values())
        changing = self.registry.changes or any(map(self.registry.lacking, self.registry.topics.values()))
        return idle and done and not changing and all(map(self._has_all, self.consuming))

    def _has_all(self, consuming: Consuming) -> bool:
        groups = self._merged.partitions
        if not set(groups).issubset(consuming.merger.groups()):
            return False
        mids = {d.message.mid for g in groups for d in self.groups[g].delivered}
        if not self._replaced():
            return len(consuming.out) == len(mids)
        return mids.issubset(mid for _, mid in consuming.out)

    def _drained(self) -> bool:
        busy = self.registry.deleting or self.registry.closed
        return not busy and all(
            not hosted.partition.settled
            and not hosted.partition.involved.of_producer
            and not hosted.partition.involved.to_group
            and self.registry.producers.keys() >= hosted.partition.rows.keys()
            for hosted in self._left()
        )

    def run(self) -> Summary:
        """The whole run.

        Raises:
            BrokenPromiseError: a promise was broken; `checker` names it.
        """
        try:
            self._run()
        except BrokenGroupError as error:
            raise BrokenPromiseError("group", str(error)) from error
        except MergeError as error:
            raise BrokenPromiseError("merged", str(error)) from error
        finally:
            if self._trace:
                print(self._told())
        return Summary(
            self.seed,
            len(self.messages),
            sum(len(hosted.delivered) for hosted in self.groups.values()),
            sum(hosted.commands for hosted in self.groups.values()),
            self.faults,
            self.proposals,
        )

    def _run(self) -> None:
        self._chaos()
        self.healing = True
        self._heal("not everything is delivered and merged", self._all_delivered)
        stays = min(self.producing)  # the oldest producer lives on
        for pid, process in self.producing.items():
            if pid != stays or not process.alive:
                self._close(pid)
        self._heal("what was known is not forgotten", self._drained)
        before = [len(hosted.delivered) for hosted in self.groups.values()]
        for letter in self._late:  # far too late
            self._deliver(letter)
        for _ in range(3):
            self._round()
        self._heal("late messages left something", lambda: self._all_delivered() and self._drained())
        if before != [len(hosted.delivered) for hosted in self.groups.values()]:
            raise BrokenPromiseError("exactly once", "a late message was delivered again")
        checks.check_all(self.history())

    def _told(self) -> str:
        lines: list[str] = []
        for group, hosted in self.groups.items():
            lines.append(f"group {group}")
            lines += [f"    {command}" for batch in hosted.log for command in batch.commands]
            lines += [f"  delivered {tuple(d.stamp)} {tuple(d.message.mid)}" for d in hosted.delivered]
            lines.append(f"  void {[tuple(mid) for mid in hosted.voids]}")
        return "\n".join(lines)

    def history(self) -> checks.History:
        return checks.History(
            self.groups,
            frozenset(self.gone),
            self.messages,
            self.invoked,
            self.ended,
            self.ended_at,
            frozenset(self.promised),
            [consuming.out for consuming in self.consuming],
            self.profile.window,
            frozenset(pid for pid, process in self.producing.items() if process.ordered),
            frozenset(pid for pid, process in self.producing.items() if process.stamps_ascend),
            frozenset(self.given_up),
            self._merged.partitions,
        )


def _has(hosted: HostedGroup, mid: MessageId) -> bool:
    return any(delivery.message.mid == mid for delivery in reversed(hosted.delivered))
