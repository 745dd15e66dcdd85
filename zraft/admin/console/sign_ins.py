"""Sign-ins to the console, and who may still try. Pure: clock and randomness are handed in.

A sign-in lives in memory: it ends with the server, after some time, or when others need its place.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from attrs import evolve, frozen

from zraft_core.znodes.acl import Ids

SIGNED_IN_MAX: Final = 32
"""The number of sign-ins at a time; the one that asked for nothing for longest goes for another one."""
IDLE_S: Final = 1_800.0
"""A sign-in ends after so long without a request."""
LIFE_S: Final = 43_200.0
"""A sign-in ends after so long in any case."""
FAILURES_MAX: Final = 5
"""Wrong passwords at once, from this machine and from elsewhere each."""
FAILURE_S: Final = 10.0
"""The time after which one more wrong password may be tried."""
SECRET_BYTES: Final = 24


@frozen
class SignedIn:
    """A sign-in: the user's name, what the user has proved, and what changes must carry. Times are s of the clock."""

    user: str
    ids: Ids
    csrf: str
    since: float
    seen: float


class SignIns:
    """The sign-ins of one server, and the attempts that are left."""

    def __init__(self, token: str | None, now: Callable[[], float], entropy: Callable[[int], bytes]) -> None:
        """Begin with nobody.

        Args:
            token: whoever has it may sign in; None: nobody can with a token.
            now: returns s of a clock that only goes forward.
            entropy: returns that many random bytes.
        """
        self._token = token
        self._now = now
        self._entropy = entropy
        self._found: OrderedDict[str, SignedIn] = OrderedDict()
        self._failures = {True: 0.0, False: 0.0}
        self._counted_at = {True: 0.0, False: 0.0}

    def __len__(self) -> int:
        return len(self._found)

    def is_token(self, offered: str) -> bool:
        """Return whether this is the token. It is too long to be guessed, so trying it is not bounded."""
        return self._token is not None and hmac.compare_digest(self._token.encode(), offered.encode())

    def may_try(self, *, local: bool) -> bool:
        """Return whether a password may be tried now, from this machine (`local`) or from elsewhere."""
        now = self._now()
        over = (now - self._counted_at[local]) / FAILURE_S
        self._failures[local] = max(0.0, self._failures[local] - over)
        self._counted_at[local] = now
        return self._failures[local] <= FAILURES_MAX - 1

    def failed(self, *, local: bool) -> None:
        """Count a wrong password."""
        self._failures[local] += 1

    def begin(self, user: str, ids: Ids) -> str:
        """Begin a sign-in; return the secret by which the browser shows it."""
        self._forget_ended()
        if len(self._found) >= SIGNED_IN_MAX:
            self._found.popitem(last=False)
        now = self._now()
        secret = self._entropy(SECRET_BYTES).hex()
        self._found[secret] = SignedIn(user, ids, self._entropy(SECRET_BYTES).hex(), now, now)
        return secret

    def find(self, secret: str | None) -> SignedIn | None:
        """Return the sign-in that a browser shows, and note that it is in use; None if it is none, or over."""
        if secret is None:
            return None
        self._forget_ended()
        found = self._found.get(secret)
        if found is not None:
            self._found[secret] = evolve(found, seen=self._now())
            self._found.move_to_end(secret)
        return found

    def end(self, secret: str | None) -> None:
        """End a sign-in, if it is one."""
        if secret is not None:
            self._found.pop(secret, None)

    def _forget_ended(self) -> None:
        now = self._now()
        for secret, one in list(self._found.items()):
            if now - one.seen > IDLE_S or now - one.since > LIFE_S:
                del self._found[secret]
