"""Recipes over the asyncio client: lock, election, barrier, counter, queue. One file each, with fencing tokens.

Each is a small loop over a decision: given the present znodes, do I hold it, and whom do I wait for? Programs
without asyncio run them through `BlockingClient.run`.
"""

from zraft_client.recipes.barrier import Barrier
from zraft_client.recipes.counter import Counter
from zraft_client.recipes.election import Election
from zraft_client.recipes.lock import Lock
from zraft_client.recipes.queue import Claim, Queue

__all__ = ["Barrier", "Claim", "Counter", "Election", "Lock", "Queue"]
