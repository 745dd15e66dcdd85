"""Many Raft groups in one server: one write, one datagram and one heartbeat for all of them. Pure.

Source: docs/explanation/groups.md.

The coordination group, number 0, holds the cluster's tree; every other group is a partition of a topic. Words
of this room:

- A group is *touched* or *stirred* when something happened to it, so that the next turn looks at it.
  `HostState.touch` makes that turn look at all that concerns the group, `HostState.stir` only at its entries.
- An *alarm* is the tick at which a group is looked at although nothing happened to it. A group without one is
  *asleep*. A *tick* is one millisecond in which this process ran.
- A *cover* is the set of groups for which the heartbeat between two servers speaks: the one leads them and
  the other has agreed to follow.
- A server is *silent* if it does not answer these heartbeats, and *unheard* if its own no longer arrive.
- A *frame* is the unit in which the log is written: what all groups of a server write in a turn is durable
  together.
- A group is *settled* if all that it holds is committed and durable and nothing is under way.
"""
