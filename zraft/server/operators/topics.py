"""Operators' requests about topics: pages from the registry, and changes as commands of the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from zraft.config.features import LEVEL_OF_GIVING_UP, LEVEL_OF_TOPICS
from zraft.operator.requests import (
    Done,
    OperatorReply,
    PartitionLine,
    Refused,
    TopicAlter,
    TopicCreate,
    TopicDelete,
    TopicDescribe,
    TopicDescription,
    TopicGiveUp,
    TopicLine,
    TopicList,
    TopicListing,
    TopicRetain,
)
from zraft.server.operators.status import TopicsStatus
from zraft.topics.registry import Registry
from zraft_core.errors import Code
from zraft_core.ids import GroupId
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.registry_commands import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    GiveUp,
    RegistryCommand,
    RetainTopic,
)
from zraft_core.topics.registry_values import (
    TOPIC_NAME_BYTES_MAX,
    Refusal,
    Result,
    Retention,
    Topic,
    is_topic_name,
    numbered,
)
from zraft_core.znodes.txn import TOPICS, Command

Reply = Callable[[OperatorReply], None]
Submit = Callable[[Command, Callable[[object], None]], None]
TopicLook = TopicList | TopicDescribe
TopicChange = TopicCreate | TopicAlter | TopicRetain | TopicDelete

PAGE: Final = 500
"""Topics or partitions in one answer: some tens of kilobytes."""
_NEEDS_LEVEL: Final = (
    f"topics need feature level {LEVEL_OF_TOPICS}, which a cluster reaches by itself about a second after all of its "
    "members can do it: upgrade all servers first, or raise the knob features_max that holds it down"
)

_UNKNOWN: Final = "it is unknown whether it was done, for this server was far behind: look and try again"


def answer(registry: Registry, request: TopicLook) -> OperatorReply:
    """Return a page of topics, or of one topic's partitions."""
    match request:
        case TopicList(after):
            names = sorted(registry.names)
            start = bisect_right(names, after)
            page = names[start : start + PAGE]
            return TopicListing(
                tuple(_line(registry, registry.topics[registry.names[name]]) for name in page),
                start + PAGE < len(names),
                len(registry.producers) - 1,  # without group 0 itself
                len(registry.deleting),
            )
        case TopicDescribe(name, first):
            topic = registry.topics.get(registry.names.get(name, 0))
            if topic is None:
                return Refused(_why(Refusal.NO_TOPIC, name))
            return _description(registry, topic, first)


def _line(registry: Registry, topic: Topic) -> TopicLine:
    return TopicLine(
        topic.name,
        topic.topic,
        len(topic.partitions),
        topic.wanted,
        sum(not registry.groups[group].placed for group in topic.partitions),
        topic.retention.bytes_min,
        topic.retention.age_ms_max,
    )


def _description(registry: Registry, topic: Topic, first: int) -> TopicDescription:
    groups = list(numbered(topic.partitions, topic.adding, topic.wanted, registry.given_up))
    rows = []
    for number, group in groups[first : first + PAGE]:
        record = registry.groups[group]
        state = "ready" if record.placed else "moving"
        if group in topic.adding:
            state = "adding"
        elif group in registry.given_up:
            state = "given up"
        servers = tuple(int(server) for server, _ in record.wanted)
        rows.append(PartitionLine(number, group, record.preferred, servers, state))
    return TopicDescription(
        topic.name,
        topic.topic,
        topic.wanted,
        topic.retention.bytes_min,
        topic.retention.age_ms_max,
        tuple(rows),
        first + PAGE < len(groups),
    )


def topics_status(registry: Registry) -> TopicsStatus:
    """Return the counts of topics and partitions."""
    return TopicsStatus(
        topics=len(registry.topics),
        partitions=sum(len(topic.partitions) for topic in registry.topics.values()),
        partitions_missing=sum(map(registry.missing, registry.topics.values())),
        partitions_moving=sum(not record.placed for record in registry.living.values()),
        partitions_deleting=len(registry.deleting),
        producers=len(registry.producers) - 1,  # without group 0 itself
        producers_closed=len(registry.closed),
    )


def topic_metrics(registry: Registry) -> dict[str, int]:
    """Return the same under the names of `mntr`."""
    found = topics_status(registry)
    return {
        "topics": found.topics,
        "topic_partitions": found.partitions,
        "topic_partitions_missing": found.partitions_missing,
        "topic_partitions_moving": found.partitions_moving,
        "topic_partitions_deleting": found.partitions_deleting,
        "topic_producers": found.producers,
        "topic_producers_closed": found.producers_closed,
    }


def change(level: int, request: TopicChange, submit: Submit, reply: Reply) -> None:
    """Append a change to the log, and answer when it is applied here.

    It is refused below the feature level that topics need.
    """
    if level < LEVEL_OF_TOPICS:
        reply(Refused(_NEEDS_LEVEL, retriable=True))  # a young cluster has it in a second
        return
    if isinstance(request, TopicCreate) and not is_topic_name(request.name):
        reply(Refused(_why(Refusal.BAD_NAME, request.name[:TOPIC_NAME_BYTES_MAX])))
        return
    command, text = _command(request)

    def done(result: object) -> None:
        if not isinstance(result, Result):
            code = result if isinstance(result, Code) else Code.SYSTEM_ERROR
            known = _UNKNOWN if code is Code.OPERATION_TIMEOUT else f"the cluster answered {code.name}"
            reply(Refused(known))
        elif result.refusal is None:
            reply(Done(text))
        else:
            reply(Refused(_why(result.refusal, request.name), retriable=result.refusal is Refusal.CHANGING))

    submit((TOPICS, encode_registry(command)), done)


def give_up(
    registry: Registry,
    level: int,
    request: TopicGiveUp,
    reason: str | None,
    submit: Submit,
    reply: Reply,
) -> None:
    """Give up a partition, or refuse; without `sure`, only say what would be given up.

    If its topic exists, a new and empty partition takes its place.

    Args:
        reason: why the partition has no majority, as the leader of the coordination group knows; None if it has one.
    """
    group = GroupId(request.group)
    if level < LEVEL_OF_GIVING_UP:
        needed = (
            f"this needs feature level {LEVEL_OF_GIVING_UP}, in force is {level}: upgrade all servers first"
        )
        reply(Refused(needed, retriable=True))
    elif group in registry.given_up:
        reply(Done(f"group {group} is given up already"))
    elif group not in registry.groups:
        reply(Refused(f"group {group}: there is no such group; it may be removed by now"))
    elif reason is None:
        ends = ", so it ends by itself" if group in registry.deleting else ""
        reply(
            Refused(
                f"group {group}: a majority of its disks answers{ends}; see `zraft status` for what it waits for"
            )
        )
    elif not request.sure:
        reply(Done(f"{reason}{_lost(registry, group)}"))
    else:
        place = "" if group in registry.deleting else "; an empty partition takes its place"

        def done(result: object) -> None:
            if isinstance(result, Result) and result.refusal is None:
                reply(Done(f"group {group} is given up: what waits for it goes on without it{place}"))
            else:
                reply(Refused(_UNKNOWN))

        submit((TOPICS, encode_registry(GiveUp(group))), done)


def _lost(registry: Registry, group: GroupId) -> str:
    """Return in words what is lost with a partition of a topic that exists; nothing if its topic is deleted."""
    record = registry.groups[group]
    topic = registry.topics.get(record.topic)
    if topic is None:
        return ""
    numbers = numbered(topic.partitions, topic.adding, topic.wanted, registry.given_up)
    number = next(number for number, one in numbers if one == group)
    return (
        f". It is partition {number} of topic {topic.name}: all that was delivered there and not read, the "
        f"offsets of its consumers and their claims are lost. An empty partition takes its place; its offsets begin above "
        f"those of this one, so consumers see that there is a gap"
    )


def _command(request: TopicChange) -> tuple[RegistryCommand, str]:
    match request:
        case TopicCreate(name, partitions, size, age):
            return CreateTopic(name, partitions, Retention(size, age)), f"topic {name} is created"
        case TopicAlter(name, partitions):
            return AlterTopic(name, partitions), f"topic {name} gets {partitions} partitions"
        case TopicRetain(name, size, age):
            return RetainTopic(name, Retention(size, age)), f"what is kept of topic {name} is changed"
        case TopicDelete(name):
            return DeleteTopic(name), f"topic {name} is deleted"


def _why(refusal: Refusal, name: str) -> str:
    return f"topic {name}: {refusal.value}"
