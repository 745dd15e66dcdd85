"""Marshal's `Marshaler`: administration of a group, and the source of its consumers."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from zraft_client.claims.consumer import Consumer
from zraft_client.claims.messages import PartitionOffsets
from zraft_client.claims.options import ConsumerOptions
from zraft_client.claims.port import ClaimsPort, Seen
from zraft_client.errors import BadArgumentsError, FailedError
from zraft_core.claims.answers import Accepted, ClaimAnswer, Refused
from zraft_core.claims.commands import ClaimCommand, Forget, Pause
from zraft_core.claims.values import Claim, Freshness, Owner, is_name
from zraft_core.errors import Code

INSTANCE_BYTES = 8


class Marshaler:
    """One process of one group. `client` must differ between processes and should be the same after a restart (M-2).

    Raises:
        BadArgumentsError: `client` or `group` is no name of 1 to 255 bytes.
    """

    def __init__(self, port: ClaimsPort, client: str, group: str) -> None:
        for what, name in (("client", client), ("group", group)):
            if not is_name(name):
                raise BadArgumentsError(f"{what}: found {name!r:.80}, expected 1 to 255 bytes")
        self.identity = Owner(client, secrets.token_hex(INSTANCE_BYTES))
        self.group = group
        self._port = port
        self._consumers: list[Consumer] = []

    def consumer(self, topics: Iterable[str], options: ConsumerOptions | None = None) -> Consumer:
        """`NewConsumer`: return one that is not started yet. A process has one per topic at most.

        Raises:
            BadArgumentsError: another consumer of this process has one of the topics.
        """
        self._consumers = [one for one in self._consumers if not one.is_closed]
        taken = {topic for one in self._consumers for topic in one.topics}
        topics = tuple(topics)
        if taken & set(topics):
            raise BadArgumentsError(
                f"topics: {sorted(taken & set(topics))} are consumed by another consumer of this process already"
            )
        consumer = Consumer(self._port, self.identity, self.group, topics, options)
        self._consumers.append(consumer)
        return consumer

    async def terminate(self, release: bool = True) -> None:
        """`Terminate`: end all consumers made here."""
        for one in self._consumers:
            await one.terminate(release)
        self._consumers.clear()

    # Looking ----------------------------------------------------------------------------------------------------

    async def claimed(self, topic: str, partition: int) -> bool:
        """`Claimed`: whether anybody of the group has the whole partition."""
        return await self.partition_claim(topic, partition) is not None

    async def partition_claim(self, topic: str, partition: int) -> Claim | None:
        """`GetPartitionClaim`: return the live claim of the whole partition."""
        return (await self._look(topic, partition)).view.whole

    async def range_claims(self, topic: str, partition: int) -> tuple[Claim, ...]:
        """Return the live claims of ranges of the partition, in order of their messages."""
        view = (await self._look(topic, partition)).view
        return tuple(claim for claim in view.claims if claim.upto is not None)

    async def last_partition_claim(self, topic: str, partition: int) -> Claim | None:
        """`GetLastPartitionClaim`: return the live claim, otherwise the one that ended last."""
        view = (await self._look(topic, partition)).view
        return view.whole or view.last

    async def partition_offsets(self, topic: str, partition: int) -> PartitionOffsets:
        """`GetPartitionOffsets`: return the group's offsets, whoever consumes."""
        seen = await self._look(topic, partition)
        whole = seen.view.whole
        committed = seen.view.floor if whole is None else max(seen.view.floor, whole.committed)
        return PartitionOffsets(seen.view.start, seen.earliest, seen.end, committed)

    async def state_report(self, topics: Iterable[str]) -> str:
        """`PrintState`: return a line per partition, and one per claim."""
        lines = []
        for topic in topics:
            for partition in range(await self._port.partitions(topic)):
                lines += _report(topic, partition, await self._look(topic, partition))
        return "\n".join(lines)

    async def _look(self, topic: str, partition: int) -> Seen:
        return await self._port.look(topic, partition, self.group)

    # Administering ----------------------------------------------------------------------------------------------

    async def pause_group(self, topics: Iterable[str], for_ms: int) -> None:
        """Pause the group: nobody claims for so long, and owners release what they have.

        Each partition counts for itself.

        Raises:
            FailedError: somebody else paused or resumed at the same time, or the time is out of bounds.
        """
        for topic, partition, seen in await self._looks(topics):
            until_ms = seen.view.log_time_ms + for_ms
            await self._demand(topic, partition, Pause(self.group, until_ms, seen.view.paused_at))

    async def resume_group(self, topics: Iterable[str]) -> None:
        """End a pause."""
        for topic, partition, seen in await self._looks(topics):
            if seen.view.paused:
                await self._demand(topic, partition, Pause(self.group, 0, seen.view.paused_at))

    async def forget_group(self, topics: Iterable[str]) -> None:
        """Remove the group's offsets; the next consumer begins as in a new group.

        Raises:
            FailedError: a member has a claim.
        """
        for topic, partition, seen in await self._looks(topics):
            if seen.view.last_epoch or seen.view.paused_at:
                await self._demand(topic, partition, Forget(self.group, seen.view.last_epoch))

    async def _looks(self, topics: Iterable[str]) -> list[tuple[str, int, Seen]]:
        return [
            (topic, partition, await self._look(topic, partition))
            for topic in topics
            for partition in range(await self._port.partitions(topic))
        ]

    async def _demand(self, topic: str, partition: int, command: ClaimCommand) -> None:
        answer: ClaimAnswer = await self._port.submit(topic, partition, command)
        if isinstance(answer, Refused):
            raise FailedError(
                f"{topic}/{partition}, group {self.group}: {type(command).__name__} was refused: "
                f"{answer.reason.name}; look at the group and try again",
                Code.BAD_VERSION,
            )
        assert isinstance(answer, Accepted)


def _report(topic: str, partition: int, seen: Seen) -> list[str]:
    view = seen.view
    paused = f", paused for {view.paused_until_ms - view.log_time_ms} ms" if view.paused else ""
    lines = [f"{topic}/{partition}: {seen.earliest} to {seen.end}, consumed to {view.start}{paused}"]
    for claim in view.claims:
        age = view.log_time_ms - claim.heard_ms
        covers = "all" if claim.upto is None else f"{claim.first} to {claim.upto}"
        state = Freshness(claim.freshness(view.log_time_ms)).name.lower()
        lines.append(
            f"  {covers}: {claim.owner.client} ({claim.owner.instance}), epoch {claim.epoch}, {state}, heard "
            f"{age} ms ago, committed {claim.committed}, claimed {claim.claimed}"
        )
    return lines
