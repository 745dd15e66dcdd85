"""Special parts of the coordination group (group 0): founding, members, sessions and leadership. Pure.

Words of this room:

- The *roster* names the servers that found a cluster, each with its disk.
- An *origin* is a server that has clients: it numbers their commands in batches and sends these to the
  leader.
- The *row* of an origin is the number of its last batch in the state, by which every batch is applied exactly
  once.
- A *touch* is anything heard of a session. Servers report touches to the leader, which expires silent
  sessions.
- A server has *contact* at a moment at which it knows that a leader with a quorum existed. Without contact it
  falls silent towards its clients.
- A *leadership* is the time from a leader's first applied entry until it steps down, and the object that
  lives so long.
- *Log time* is the time that entries carry. It passes only while leaders run, and is the same on every
  server.
"""
