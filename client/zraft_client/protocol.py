"""Requests to bytes and bytes to answers, without I/O: ids, sequence numbers, repeats, and the outcome of each call.

An exactly-once write carries the session's next `seq` and the `floor` up to which every one was settled. It
is packed once, when the call is made, so a repeat says what the first copy said whatever the caller does with
its objects meanwhile. When a connection is lost, what was under way is sent again on the next one, in the
order in which it was first sent; a write without a seq that a server may have taken is not, and is reported
as unknown.

Time is handed in as seconds of any monotonic clock.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

import msgpack
from attrs import define, field

from zraft_client.calls import Answer, Call, Kind, Place, Request, Settled, Sink
from zraft_client.errors import (
    ClientError,
    DeadlineError,
    EncodingError,
    FailedError,
    NotSentError,
    SessionExpiredError,
    StreamRefusedError,
    UnknownOutcomeError,
    WireError,
    error_of,
)
from zraft_client.pacing import delay_s
from zraft_core.errors import Code, ProtocolError
from zraft_core.messagepack import Decoder, RefusedValueError, shown
from zraft_core.wire.native.failures import FAILURE
from zraft_core.wire.native.pushes import OF_PUSHED

WINDOW: Final = 1024
"""The number of sequence numbers above the floor for which servers keep outcomes."""
FLYING_MAX: Final = 4000
"""Unanswered requests on one connection; servers accept 4,096, and subscriptions, pings and credit need some."""
PENDING_MAX: Final = 100_000
REQUEST_BYTES_MAX: Final = 1_048_575
"""The servers' default `client.jute_maxbuffer`."""
GIVEN_UP_KEPT_MAX: Final = 10_000
"""The number of calls that were given up and may still stand in the queue."""
ID_MAX: Final = 2**32 - 1
ERROR_CHARACTERS_MAX: Final = 1000
FIELDS_MAX: Final = 12
"""The most fields of a request; with id, seq and floor its map still has a header of one byte, by which servers
know the protocol.
"""
DEPTH_MAX: Final = 511
"""The greatest depth that servers can follow; MessagePack's packers may allow more."""
ANSWER_BYTES_MAX: Final = 128 * 1024 * 1024
"""Unread bytes of answers; the servers' `client.output_bytes_max` is half of it."""

_ID: Final = Struct(">4sI")
_EXACT: Final = Struct(">4sI5sQ7sQ")
_ID_KEY: Final = b"\xa2id\xce"
_SEQ_KEY: Final = b"\xa3seq\xcf"
_FLOOR_KEY: Final = b"\xa5floor\xcf"
_HEADS: Final = tuple(bytes((0x80 | count,)) for count in range(16))


@define(eq=False)
class Calls:
    """All calls of one client, over one connection at a time."""

    rng: random.Random
    exactly_once: bool
    request_bytes_max: int = REQUEST_BYTES_MAX
    pending_max: int = PENDING_MAX
    ready: bool = field(default=False, init=False)
    """True while the connection takes requests."""
    failure: WireError | None = field(default=None, init=False)
    """Why nothing on this connection can be believed any more."""
    last_zxid: int = field(default=0, init=False)
    """The newest moment that any answer showed."""
    answers: int = field(default=0, init=False)
    repeats: int = field(default=0, init=False)
    _writable: bool = field(default=True, init=False)
    _next_id: int = field(default=1, init=False)
    _next_seq: int = field(default=1, init=False)
    _floor: int = field(default=0, init=False)
    _above_floor: set[int] = field(factory=set, init=False)
    _pending: deque[Call] = field(factory=deque, init=False)
    _flying: dict[int, Call] = field(factory=dict, init=False)
    _delayed: list[tuple[float, int, Call]] = field(factory=list, init=False)
    _sinks: dict[int, Sink] = field(factory=dict, init=False)
    _out: list[bytes] = field(factory=list, init=False)
    _packer: Any = field(init=False)
    _decoder: Decoder = field(init=False)
    _end: int = field(default=0, init=False)
    """The place at which the answer begins that has not come whole."""
    _given_up_pending: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._packer = msgpack.Packer()
        self._decoder = _fresh_decoder()

    # -- asking

    def call(self, request: Request[Any], deadline: float, waiter: Any, *, prompt: bool = False) -> Call:
        """Return a call of this request, packed; `submit` it.

        Raises:
            EncodingError: MessagePack cannot hold it, or it is larger than request_bytes_max.
        """
        fields = request.fields
        assert 0 < len(fields) <= FIELDS_MAX, f"a request of {len(fields)} fields"
        try:
            body = self._packer.pack(fields)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise EncodingError(
                f"{fields['type']}: {error}; keys and values are what MessagePack can hold: None, bool, integers of "
                "64 bits, float, str, bytes, and lists, tuples and dicts of those"
            ) from error
        if len(body) > self.request_bytes_max - 32:
            raise EncodingError(
                f"{fields['type']}: a request of {len(body)} bytes, expected at most {self.request_bytes_max} "
                "(request_bytes_max of the client, which should be client.jute_maxbuffer of the servers)"
            )
        if len(body) > DEPTH_MAX and _is_deeper_than(DEPTH_MAX, fields):
            raise EncodingError(f"{fields['type']}: nested too deeply, expected at most {DEPTH_MAX} levels")
        kind = request.kind
        if kind is Kind.WRITE and not self.exactly_once:
            kind = Kind.PLAIN
        count = len(fields) + (3 if kind is Kind.WRITE else 1)
        return Call(_HEADS[count], body[1:], kind, fields["type"], deadline, waiter, prompt)

    def submit(self, call: Call) -> None:
        """Send a call, or keep it until it can be sent.

        Raises:
            NotSentError: pending_max calls wait already.
        """
        if self.ready and not self._pending and self._has_room(call):
            self._fly(call)
        elif len(self._pending) >= self.pending_max:
            call.place = Place.SETTLED
            raise NotSentError(
                f"{call.what}: {self.pending_max} calls wait already (pending_max); wait for some of them first"
            )
        else:
            self._pending.append(call)

    def submit_now(self, call: Call) -> None:
        """Send what belongs to the connection itself, also before it is ready: hello, auth, ping."""
        assert call.prompt, "what belongs to a connection is never repeated"
        self._fly(call)

    def subscribe(self, call: Call, sink: Sink) -> int:
        """Send a subscription on this connection; return its id. Pushes go to `sink` until `unsubscribe`."""
        assert call.prompt, "a subscription belongs to its connection"
        self._fly(call)
        self._sinks[call.id] = sink
        return call.id

    def unsubscribe(self, subscription: int) -> bool:
        """Forget the sink; return whether the server must be told."""
        return self._sinks.pop(subscription, None) is not None and self.ready

    def post(self, fields: Mapping[str, Any]) -> None:
        """Send a map that has its own id and no answer: credit."""
        if self.ready:
            self._out.append(self._packer.pack(fields))

    def pause(self) -> None:
        """Note that the socket takes no more for now."""
        self._writable = False

    def resume(self) -> None:
        """Send what waited while the socket's buffer was full."""
        self._writable = True
        self.pump()

    def take_output(self) -> bytes:
        """Return everything to be written now."""
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def pump(self) -> None:
        """Send what waits, as far as there is room."""
        pending = self._pending
        while pending and self.ready:
            call = pending[0]
            if call.place is not Place.SETTLED:
                if not self._has_room(call):
                    return
                self._fly(call)
            pending.popleft()

    def _has_room(self, call: Call) -> bool:
        if not self._writable or len(self._flying) >= FLYING_MAX:
            return False
        return call.kind is not Kind.WRITE or call.seq != 0 or self._next_seq - self._floor <= WINDOW

    def _fly(self, call: Call) -> None:
        number = self._next_id
        flying = self._flying
        while number in flying or number in self._sinks:  # after four thousand million of them
            number = number % ID_MAX + 1
        self._next_id = number % ID_MAX + 1
        call.id = number
        call.place = Place.FLYING
        flying[number] = call
        if call.kind is Kind.WRITE:
            if not call.seq:
                call.seq = self._next_seq
                self._next_seq += 1
            else:
                self.repeats += 1
            tail = _EXACT.pack(_ID_KEY, number, _SEQ_KEY, call.seq, _FLOOR_KEY, self._floor)
        else:
            tail = _ID.pack(_ID_KEY, number)
        self._out += (call.head, call.body, tail)

    # -- answers

    def receive(self, data: bytes | memoryview, now: float) -> list[Settled]:
        """Return what these bytes settle. Pushes go to their sinks at once, in order.

        If the bytes do not follow the protocol, `failure` says why afterwards: the connection is of no use
        any more. Answers in front of that are settled all the same.

        Raises:
            StreamRefusedError: the server said why it ends the connection.
        """
        settled: list[Settled] = []
        call: Call | None = None
        message: Any = None
        decoder = self._decoder
        values = decoder.values
        flying = self._flying
        end = self._end
        try:
            decoder.feed(bytes(data))
            while True:
                begin = end
                try:
                    message = next(values)
                except StopIteration:
                    break
                except RefusedValueError as error:
                    self.answers += 1
                    end = values.tell()
                    self._cannot_hold(error.known, str(error), settled)
                    continue
                except (ValueError, TypeError):
                    if not decoder.look_closer(begin):
                        raise
                    values = decoder.values
                    end = 0
                    continue
                self.answers += 1
                end = values.tell()
                if "id" not in message:
                    raise StreamRefusedError(_text_of(message))
                call = flying.pop(message["id"], None)
                if call is None:
                    self._push(message, end - begin)
                    continue
                zxid = message.get("zxid", 0)
                if zxid > self.last_zxid:
                    self.last_zxid = zxid
                if message["type"] == "result":
                    self._settle(call)
                    settled.append((call, message, None))
                else:
                    self._refused(call, message, now, settled)
            self._end = decoder.forget(end)
        except WireError as error:
            self.failure = error
        except (KeyError, TypeError, ValueError, AttributeError, msgpack.exceptions.UnpackException) as error:
            self.failure = WireError(f"a server sent what is no answer: {_fault_of(message, error)}")
        if self.failure is not None:
            if call is not None and call.place is Place.FLYING:
                flying[call.id] = call  # its answer was none
        elif self._pending:
            self.pump()
        return settled

    def _cannot_hold(self, message: Answer, why: str, settled: list[Settled]) -> None:
        """Fail a call whose answer is a stored value that Python cannot hold.

        It concerns its caller, and nobody else.
        """
        number = message.get("id")
        call = self._flying.get(number) if type(number) is int else None
        if call is None:
            sink = self._sinks.get(number) if type(number) is int else None
            if sink is not None:
                sink.unreadable(FailedError(f"what is pushed is {why}", Code.DATA_INCONSISTENCY))
        elif call.kind is Kind.READ:
            del self._flying[call.id]
            self._settle(call)
            error = FailedError(f"{call.what}: the answer is {why}", Code.DATA_INCONSISTENCY)
            settled.append((call, None, error))
        else:
            raise WireError(f"a server sent what is no answer to {call.what}: {why}")

    def _push(self, message: Answer, size: int) -> None:
        zxid = message.get("zxid", 0)
        if zxid > self.last_zxid:
            self.last_zxid = zxid
        sink = self._sinks.get(message["id"])
        if sink is None:
            return  # the answer to a call that was given up, or to a subscription that was ended
        if message["type"] == "error":
            del self._sinks[message["id"]]
            failure = FAILURE.unpack_map(message, "error")
            sink.refused(error_of(failure.code, failure.error))
        else:
            sink.pushed(message, size)

    def _refused(self, call: Call, message: Answer, now: float, settled: list[Settled]) -> None:
        if message["type"] != "error":
            raise WireError(
                f"{call.what}: expected an answer of type result or error, found {shown(message.get('type'))}"
            )
        failure = FAILURE.unpack_map(message, "error")
        unknown, retriable = failure.unknown, failure.retriable
        name, text = failure.code, failure.error
        # another connection of the session came after this one: there is one that may ask
        again = retriable or (unknown and call.kind is not Kind.PLAIN) or name == Code.SESSION_MOVED.name
        if unknown:
            call.doubt = True
        if again and not call.prompt:
            call.attempts += 1
            call.place = Place.DELAYED
            due = now + delay_s(call.attempts, self.rng)
            heapq.heappush(self._delayed, (due, call.id, call))
            return
        self._settle(call)
        # in another session it can be asked again
        retriable = retriable or name == Code.SESSION_EXPIRED.name
        error: ClientError = error_of(name, text, retriable=retriable)
        if unknown and call.kind is Kind.PLAIN:
            error = UnknownOutcomeError(f"{call.what}: {text or name}")
        elif isinstance(error, SessionExpiredError) and call.doubt and call.kind is Kind.WRITE:
            error = _unknown_of_session(call)
        settled.append((call, None, error))

    def refuse_largest(self, why: str) -> list[Settled]:
        """Fail the longest call under way, as the server could not follow what was sent.

        Only a length can be wrong with it. Whichever request was too long, the longest is so, too; sent again
        it would end every connection.
        """
        if not self._flying:
            return []
        call = max(self._flying.values(), key=lambda one: len(one.body))
        del self._flying[call.id]
        self._settle(call)
        text = f"{call.what}: a request of {len(call.body)} bytes: {why}"
        error = UnknownOutcomeError(text) if call.doubt else EncodingError(text, Code.MARSHALLING_ERROR)
        return [(call, None, error)]

    def _settle(self, call: Call) -> None:
        call.place = Place.SETTLED
        seq = call.seq
        if not seq:
            return
        if seq == self._floor + 1:
            above = self._above_floor
            seq += 1
            while seq in above:
                above.remove(seq)
                seq += 1
            self._floor = seq - 1
        elif seq > self._floor:
            self._above_floor.add(seq)

    # -- time

    @property
    def next_due(self) -> float | None:
        """The time at which `due` has something to send, None if nothing waits for a moment."""
        return self._delayed[0][0] if self._delayed else None

    def due(self, now: float) -> None:
        """Send again what was refused a while ago."""
        again: list[Call] = []
        while self._delayed and self._delayed[0][0] <= now:
            call = heapq.heappop(self._delayed)[2]
            if call.place is Place.DELAYED:
                call.place = Place.PENDING
                again.append(call)
        # before later calls
        self._pending.extendleft(reversed(again))
        self.pump()

    def expire(self, now: float) -> tuple[list[Settled], float | None]:
        """Return calls whose deadline has passed, and the earliest deadline of the others."""
        late: list[Settled] = []
        earliest: float | None = None
        for call in self._unsettled():
            if call.deadline <= now:
                late.append((call, None, self.give_up(call)))
            elif earliest is None or call.deadline < earliest:
                earliest = call.deadline
        self.pump()
        return late, earliest

    def give_up(self, call: Call) -> ClientError:
        """Stop a call; return what is known of it then. The floor passes its number, which fences late copies."""
        place, call.place = call.place, Place.SETTLED
        if place is Place.FLYING:
            del self._flying[call.id]
            call.doubt = True
        elif place is Place.PENDING:
            self._given_up_pending += 1
            if self._given_up_pending > GIVEN_UP_KEPT_MAX:
                self._given_up_pending = 0
                self._pending = deque(one for one in self._pending if one.place is Place.PENDING)
        self._settle(call)
        if call.kind is Kind.READ:
            return DeadlineError(f"{call.what}: no answer within the deadline of the call")
        if call.doubt:
            return UnknownOutcomeError(
                f"{call.what}: no answer within the deadline of the call; it may have happened, or may yet happen",
            )
        if place is Place.DELAYED or call.attempts:
            return DeadlineError(f"{call.what}: refused until the deadline of the call; it did not happen")
        return NotSentError(f"{call.what}: no server could be asked within the deadline of the call")

    def _unsettled(self) -> list[Call]:
        return [
            *self._flying.values(),
            *(call for call in self._pending if call.place is Place.PENDING),
            *(call for _, _, call in self._delayed if call.place is Place.DELAYED),
        ]

    # -- connections and sessions

    def connection_made(self) -> None:
        """Begin a fresh connection: `submit_now` the hello, then `begin`."""
        self._decoder = _fresh_decoder()
        self._end = 0
        self._writable = True
        self.failure = None

    def begin(self) -> None:
        """Note that the connection takes requests from now on: what was under way goes first, in its old order."""
        self.ready = True
        self.pump()

    def connection_lost(self) -> list[Settled]:
        """Keep for the next connection what may be repeated; return the rest, with what is known of it."""
        self.ready = False
        self._out.clear()
        self._sinks.clear()
        settled: list[Settled] = []
        again: list[Call] = []
        for call in self._flying.values():
            call.doubt = True
            if call.prompt:
                call.place = Place.SETTLED
                settled.append((call, None, NotSentError(f"{call.what}: the connection was lost")))
            elif call.kind is Kind.PLAIN:
                call.place = Place.SETTLED
                text = "the connection was lost before it was answered; without a session it is not repeated"
                settled.append((call, None, UnknownOutcomeError(f"{call.what}: {text}")))
            else:
                call.place = Place.PENDING
                again.append(call)
        self._flying.clear()
        # in the order in which they were sent
        self._pending.extendleft(reversed(again))
        return settled

    def session_ended(self, *, renewing: bool) -> list[Settled]:
        """Begin to count anew for a new session; return the writes of the old one, with what is known of each.

        `renewing`: writes that were never sent are for the next session, and reads are sent again there; if
        not, they all failed: nobody knows whether there will be a next one.
        """
        assert not self.ready, "a session ends with its connection"
        settled: list[Settled] = []
        for call in self._unsettled():
            if not renewing or (call.kind is Kind.WRITE and call.seq):
                call.place = Place.SETTLED
                doubtful = call.doubt and call.kind is not Kind.READ
                error: ClientError = _unknown_of_session(call) if doubtful else _not_in_session(call)
                settled.append((call, None, error))
        self._next_seq = 1
        self._floor = 0
        self._above_floor.clear()
        return settled

    def close(self) -> list[Settled]:
        """End: return every call, with what is known of it."""
        self.ready = False
        settled: list[Settled] = [(call, None, self.give_up(call)) for call in self._unsettled()]
        self._pending.clear()
        self._delayed.clear()
        self._sinks.clear()
        self._out.clear()
        return settled

    @property
    def idle(self) -> bool:
        """True if no answer is expected."""
        return not self._flying

    @property
    def unsettled(self) -> int:
        """The number of calls that have no outcome yet."""
        return len(self._unsettled())


def _text_of(message: Answer) -> str:
    """Return why a server closes the connection, in its words."""
    text = message.get("error")
    return text[:ERROR_CHARACTERS_MAX] if isinstance(text, str) else shown(message)


def _fault_of(message: Any, error: Exception) -> str:
    """Return what is wrong with a message, with the name of the field if one that all have is at fault."""
    try:
        OF_PUSHED.unpack_map(message, "answer")
    except ProtocolError as fault:
        return str(fault)
    return str(error) if isinstance(error, ProtocolError) else repr(error)


def _fresh_decoder() -> Decoder:
    return Decoder(hashes=True, bytes_max=ANSWER_BYTES_MAX)


def _is_deeper_than(levels: int, value: Any) -> bool:
    level = [value]
    for _ in range(levels):
        parts: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                parts += one.keys()
                parts += one.values()
            else:
                parts += one
        level = [part for part in parts if isinstance(part, list | tuple | dict)]
        if not level:
            return False
    return True


def _unknown_of_session(call: Call) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"{call.what}: the session ended before it was answered; it happened before that, or never",
        settled=True,
    )


def _not_in_session(call: Call) -> SessionExpiredError:
    return SessionExpiredError(
        f"{call.what}: the session ended before it was carried out", Code.SESSION_EXPIRED, retriable=True
    )
