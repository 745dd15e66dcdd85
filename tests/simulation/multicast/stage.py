"""A vocabulary for schedules of multicasts that are said step by step: who hears what, and when it is committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.coordination import SimulatedRegistry
from tests.simulation.multicast import checks
from tests.simulation.multicast.hosted import HostedGroup, over_wire
from zraft.topics.leader_settings import LeaderSettings
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.codec import Bundle
from zraft_core.topics.merger import MergePosition, Merger
from zraft_core.topics.message import COORDINATOR, Message
from zraft_core.topics.messages import Need, Reply, Report
from zraft_core.topics.producer import Ended, ProducerCore, Reach
from zraft_core.topics.registry_commands import (
    CloseProducer,
    CreateTopic,
    DeleteTopic,
)
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.stamps import MessageId

ROUNDS_MAX = 60
WINDOW = 8


Letter = tuple[GroupId, GroupId, Bundle | Report]
"""Sender, destination, content."""


class Stage(SimulatedRegistry):
    """Some groups, each the only partition of its topic unless `partitions` says that the first so many share one."""

    def __init__(self, groups: int, *, partitions: int = 1, settings: LeaderSettings | None = None) -> None:
        super().__init__(PartitionSettings(window=WINDOW))
        self._settings = settings or LeaderSettings(
            resend_ticks=1, resend_ticks_max=2, floor_ticks=1, advance_ticks=1, report_ticks=1
        )
        self.groups: dict[GroupId, HostedGroup] = {}
        self.names: dict[GroupId, str] = {}
        self.letters: list[Letter] = []
        """On their way until `carry` or `drop`."""
        self.replies: list[Reply] = []
        self.sent: Counter[tuple[str, GroupId, GroupId]] = Counter()
        self.producers: dict[ProducerId, ProducerCore] = {}
        self.messages: dict[MessageId, Message] = {}
        self.ended: dict[MessageId, Ended] = {}
        self._found("topic1", partitions)
        for at in range(partitions, groups):
            self._found(f"topic{at + 1}", 1)
        self.view()

    def _found(self, name: str, partitions: int) -> None:
        self.log(CreateTopic(name, partitions))
        topic = self.zxid
        for _ in range(partitions):
            self.found(topic, name)

    def found(self, topic: int, name: str) -> GroupId:
        group = self.found_group(topic)
        birth = self.registry.birth_of(group)

        def send(content: Bundle | Report) -> None:
            if isinstance(content, Bundle):
                for message in content.messages:
                    self.sent[type(message).__name__, group, content.to] += 1
                self.letters.append((group, content.to, over_wire(content)))
            else:
                self.letters.append((group, GroupId(0), content))

        def answer(reply: Reply) -> None:
            self.replies.append(reply)

        self.groups[group] = HostedGroup(birth, self._settings, send, answer)
        self.names[group] = name
        return group

    @property
    def ids(self) -> list[GroupId]:
        return list(self.groups)

    # -- producers

    def producer(self, reach: Reach = Reach.ALL, *, rounds: bool = False) -> ProducerCore:
        producer = ProducerCore(self.register(), self.registry.table(), window=WINDOW, reach=reach)
        producer.rounds = rounds
        self.producers[producer.producer] = producer
        return producer

    def round(self, producer: ProducerCore) -> Message | None:
        """The producer puts in order what is staged."""
        found = producer.take_round(64)
        if found is not None:
            self.messages[found.mid] = found
        return found

    def start(self, producer: ProducerCore, message: Message, *to: GroupId) -> None:
        """Send what the producer would send now for a message, to some of its destinations."""
        self.messages[message.mid] = message
        for group, request in producer.requests(message.mid.seq):
            if (not to or group in to) and group not in self.gone:
                self.groups[group].on_start(request)

    def answer(self, *, sender: GroupId | None = None) -> None:
        """Let producers hear what was answered so far, or what one group answered."""
        heard, self.replies = self.replies, []
        for reply in heard:
            if sender is None or reply.sender == sender:
                self.reply(reply)
            else:
                self.replies.append(reply)

    def reply(self, reply: Reply) -> None:
        if reply.mid.producer == COORDINATOR:
            self.hear(reply)
            return
        producer = self.producers.get(reply.mid.producer)
        for ended in () if producer is None else producer.on_reply(reply):
            self.ended[ended.mid] = ended

    def tables(self) -> None:
        """All producers fetch the table of groups."""
        for producer in self.producers.values():
            for ended in producer.on_table(self.registry.table()):
                self.ended[ended.mid] = ended

    def delete(self, group: GroupId) -> None:
        self.log(DeleteTopic(self.names[group]))

    def close(self, producer: ProducerCore) -> None:
        self.log(CloseProducer(producer.producer))

    # -- groups

    def commit(self, *groups: GroupId) -> None:
        for group in groups or self.ids:
            self.groups[group].commit(len(self.groups[group].tail))

    def tick(self, *groups: GroupId) -> None:
        for group in groups or self.ids:
            self.groups[group].tick()

    def carry(self, *, sender: GroupId | None = None, to: GroupId | None = None) -> None:
        """Deliver what is on its way now, or the part of it from or to one group; in one turn of each receiver."""
        for letter in self._taken(sender, to):
            self.deliver(letter)
        for group in self.running():
            self.groups[group].flush()

    def drop(self, *, sender: GroupId | None = None, to: GroupId | None = None) -> None:
        self._taken(sender, to)

    def _taken(self, sender: GroupId | None, to: GroupId | None) -> list[Letter]:
        taken = [x for x in self.letters if sender in (None, x[0]) and to in (None, x[1])]
        self.letters = [x for x in self.letters if x not in taken]
        return taken

    def deliver(self, letter: Letter) -> None:
        _, to, content = letter
        if isinstance(content, Bundle):
            if to not in self.gone:
                self.groups[to].hear(content)
        else:
            self.hear(content)

    def view(self, *groups: GroupId) -> None:
        """Groups hear of group 0's view and commit it."""
        for group, update in self.keeper.views():
            if not groups or group in groups:
                self.groups[group].on_bundle(Bundle(group, (update,)))
                self.commit(group)

    def need(self, group: GroupId, time: int) -> None:
        """A consumer asks a partition to advance, which it does."""
        self.groups[group].on_bundle(Bundle(group, (Need(time),)))
        self.tick(group)
        self.commit(group)

    def running(self) -> list[GroupId]:
        return [group for group in self.groups if group not in self.gone]

    def settle(self, what: str, done: Callable[[], bool]) -> None:
        """Let everything happen, in step and without loss, until `done`.

        Raises:
            BrokenPromiseError: it never is.
        """
        for _ in range(ROUNDS_MAX):
            if done():
                return
            running = self.running()
            self.view(*running)
            for _, request in [x for x in self.keeper.changes() if x[0] in running]:
                self.messages[request.message.mid] = request.message
            for group, request in self.keeper.changes():
                self.groups[group].on_start(request)
            for producer in self.producers.values():
                self.round(producer)
                for seq in producer.undecided():
                    for group, request in producer.requests(seq):
                        if group in running:
                            self.groups[group].on_start(request)
            self.commit(*running)
            self.tick(*running)
            self.carry()
            self.commit(*running)
            self.tables()
            self.answer()
        raise BrokenPromiseError("progress", what)

    # -- what came of it

    def order(self, group: GroupId) -> list[MessageId]:
        return [delivery.message.mid for delivery in self.groups[group].delivered]

    def merged(self, groups: Iterable[GroupId]) -> list[MessageId]:
        """What a consumer of several partitions gets, asking them to advance."""
        merger = Merger(MergePosition(dict.fromkeys(groups, 0)))
        out: list[MessageId] = []
        for group in merger.groups():
            hosted = self.groups[group]
            merger.feed(group, hosted.delivered, hosted.partition.frontier())
        while found := merger.take(100):
            out += [delivery.message.mid for delivery in found]
        return out

    def check(self) -> None:
        """All promises, as far as a directed schedule has a history of them."""
        checks.check_all(
            checks.History(
                self.groups,
                frozenset(self.gone),
                self.messages,
                dict.fromkeys(self.messages, 0),
                self.ended,
                {},
                frozenset(mid for mid in self.ended if self.messages[mid].round is None),
                [[], []],
                WINDOW,
                frozenset(pid for pid, producer in self.producers.items() if producer.rounds),
            )
        )
