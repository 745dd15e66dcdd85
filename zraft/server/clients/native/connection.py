"""One native client's connection, without I/O: MessagePack maps in, answers and what is pushed out.

Requests are answered in any order; writes take effect in the order in which they were sent, and everything leaves in
zxid order. A linearizable read waits for a read index that was asked for after it came; all that came in one turn
share one. Nothing is kept per request but a tuple until it is answered: no task, no future.

Source: docs/reference/protocol-native.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from zraft.config.features import LEVEL_OF_NATIVE
from zraft.server.clients.authentication.proofs import meets, proved_ids
from zraft.server.clients.authentication.sasl import AuthenticationError
from zraft.server.clients.connection import LARGE_BYTES, SUBMIT_BYTES_MAX, UNCOUNTED_BYTES, Phase
from zraft.server.clients.native.access import deny_change
from zraft.server.clients.native.members import change_of
from zraft.server.clients.native.pending_reads import NO_CONTACT, PendingReads, ReadBatch
from zraft.server.clients.native.reads import Failure, state_of
from zraft.server.clients.native.services import NativeServices, NativeSpeaker
from zraft.server.clients.native.subscriptions import Subscriptions
from zraft.server.clients.native.topics import cost_of, topic_command
from zraft.server.clients.turn_share import EACH_MIN
from zraft.tree.commands.outcomes import outcome_of
from zraft.tree.node import CONFIG
from zraft.tree.sessions.session import Session
from zraft_core.errors import Code, MarshallingError
from zraft_core.messagepack import Decoder, RefusedValueError
from zraft_core.wire.connect import ConnectRequest
from zraft_core.wire.native import answers, requests
from zraft_core.wire.native.dictionary_requests import GetState
from zraft_core.wire.native.failures import encode_error, encode_redirect, failure_text, text_of
from zraft_core.wire.native.framing import NativeFramingError, NativeReader
from zraft_core.wire.native.member_requests import Config
from zraft_core.wire.native.results import AuthResult, ConfigResult, HelloResult
from zraft_core.wire.native.session_requests import Authenticate, Close, Hello, Ping
from zraft_core.wire.native.subscription_requests import (
    Credit,
    SubscribeDictionary,
    SubscribeLog,
    SubscribePath,
    Unsubscribe,
)
from zraft_core.wire.native.topic_answers import encode_topic_outcome
from zraft_core.wire.native.zatt import ZattResult, decode_one_shot, encode_zatt_map, encode_zatt_result
from zraft_core.wire.requests import Credentials
from zraft_core.znodes.acl import Ids
from zraft_core.znodes.txn import CLOSE_SESSION, MEMBERS, ONCE, PUT, SET_DATA, TOPICS, Command

HELD_TWICE: Final = 2
"""The factor for what has come: it is kept as it came, and once more for the walk over it, or by what reads
it.
"""

MESSAGE_SHIFT: Final = 6
"""A message costs at most about as much per 64 bytes as another request, whatever stands in it."""
ODD_MESSAGE_SHIFT: Final = 4
"""Among messages with maps whose keys are no text it is per 16 bytes."""

OUTSTANDING_MAX: Final = 4_096
"""Requests of one connection that are not answered; beyond it nothing more is read."""

BEFORE: Final = (Hello, Ping, Close, Authenticate)
"""The requests that anybody may make where auth.required_schemes is set."""

Waiting = tuple[int | None, str, Command]
"""(id, type, command) of a write on its way; no id: Zatt's form."""


class NativeConnection(NativeSpeaker):
    """One client that speaks the native protocol; see `Clients.native`."""

    __slots__ = (
        "_decoder",
        "_hello_id",
        "_is_let_in",
        "_reader",
        "_reads",
        "_subscriptions",
        "last_id",
        "last_kind",
    )

    queue: deque[Waiting]

    def __init__(self, clients: NativeServices, address: str, ids: Ids) -> None:
        super().__init__(clients, address, ids)
        self.queue = deque()
        self._reader = NativeReader(clients.settings.jute_maxbuffer)
        self._decoder: Decoder | None = None
        """Holds what is complete and not looked at yet; None while that is nothing."""
        self._reads = PendingReads(self)
        self._subscriptions = Subscriptions(self)
        self._hello_id = 0
        self._is_let_in = not clients.settings.auth.required_schemes
        self.last_kind = "NA"
        self.last_id = -1

    @property
    def last_operation(self) -> str:
        """The name of what it asked for last, for operators."""
        return self.last_kind

    @property
    def last_number(self) -> int:
        """The xid or id of the last request; -1 before the first."""
        return self.last_id

    @property
    def outstanding(self) -> int:
        """Requests that are not answered."""
        return len(self.queue) + len(self._reads) + self._subscriptions.outstanding

    @property
    def answered(self) -> bool:
        """True if everything that was read from the client is answered, so that it can be closed."""
        # The next request can go to another server.
        return self.outstanding == self._subscriptions.polls and self._decoder is None

    @property
    def holds_promises(self) -> bool:
        """True if the client has been told, or awaits, what cannot be kept without contact with a quorum."""
        # Without a session and with nothing asked, there is nothing to lose: a client that asks now is told
        # to go elsewhere.
        if self.closing:
            return False
        return self.phase in (Phase.ATTACHING, Phase.ATTACHED) or (
            self.phase is Phase.OPEN and bool(self.outstanding or self._subscriptions)
        )

    def connection_lost(self) -> None:
        """Take note that the client is gone."""
        self.clients.forget(self)

    # -- input

    @property
    def backlog_bytes(self) -> int:
        """Bytes of complete requests that wait for a turn that has time for them."""
        return 0 if self._decoder is None else self._decoder.left

    @property
    def wants_read(self) -> bool:
        """False while the shell must not read more from this client."""
        return self.clients.sums.may_read(
            self, HELD_TWICE * len(self._reader.partial), HELD_TWICE * self.backlog_bytes
        )

    def account(self) -> bool:
        """Count what is kept of what the client sent, and return `wants_read`."""
        unfinished = HELD_TWICE * len(self._reader.partial)
        if self._decoder is not None or unfinished > UNCOUNTED_BYTES or self.counted:
            self.clients.sums.count_input(self, unfinished, HELD_TWICE * self.backlog_bytes)
            return self.wants_read
        return True

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self.phase is Phase.CLOSED or self.ending or self.closing:
            return
        if self.clients.availability.deaf and self.phase is not Phase.NEW:
            return
        try:
            complete = self._reader.feed(data)
        except NativeFramingError as error:
            self._break_off(str(error))
            return
        if self.phase is Phase.ATTACHED:
            self.clients.touches.touch(self.session, self.clients.turn.now)
        if not complete:
            return
        self.clients.count_requests(self, self._reader.count, len(data))
        idle = self._decoder is None
        if self._decoder is None:
            self._decoder = Decoder(hashes=False)
        else:
            self._decoder.forget(self._decoder.values.tell())
        self._decoder.feed(complete)
        if (
            idle
            and self.phase is not Phase.ATTACHING
            and not self.unsent
            and not self._reads.ready
            and len(complete) <= LARGE_BYTES  # what may take long is taken in a turn, which is timed
            and (not self.clients.turn.full or (not self.queue and self.clients.turn.lets_pass(len(data))))
        ):
            self._take()
        else:
            self.clients.on_backlog(self)

    def take_backlog(self) -> None:
        """Handle what was kept, since there is room again, unless it stands behind a request that takes longer."""
        self._reads.answer_ready()
        if self._reads.ready:
            self.clients.on_backlog(self)
        elif self._decoder is not None and self.phase is not Phase.ATTACHING and not self.ending:
            self._take()
        if self.counted:
            self.account()

    def _take(self) -> None:
        """Handle what is complete, in order. The hot path: one call for all that one read of the socket brought."""
        clients = self.clients
        decoder = self._decoder
        assert decoder is not None, "there is something to handle"
        values = decoder.values
        shift = ODD_MESSAGE_SHIFT if decoder.is_slow else MESSAGE_SHIFT
        queue = self.queue
        # A few pass a full turn: see `TurnShare.lets_pass`.
        room = min(clients.turn.room or EACH_MIN, OUTSTANDING_MAX - self.outstanding)
        commands: list[Command] = []
        reads: list[requests.Read] = []
        size = taken = 0
        before = values.tell()
        while taken < room and not self.ending and not self.closing and self.phase is not Phase.ATTACHING:
            try:
                message = next(values)
            except StopIteration:
                self._decoder = None
                break
            except RefusedValueError as error:
                after = values.tell()
                taken += 1 + (after - before >> shift)
                before = after
                self._malformed(error.known, str(error))
                continue
            except (ValueError, TypeError) as error:
                if decoder.look_closer(before):
                    values = decoder.values
                    shift = ODD_MESSAGE_SHIFT
                    before = 0
                    continue
                self._break_off(f"a message that Python cannot hold: {error}")
                break
            after = values.tell()
            weight, before = after - before, after
            taken += 1 + (weight >> shift)
            try:
                request = self._decode(message)
            except MarshallingError as error:
                self._malformed(message, str(error))
                continue
            if request.__class__ is requests.Write:
                command = self._admit(request)
                if command is None:
                    continue
                if size + weight > SUBMIT_BYTES_MAX and commands:
                    clients.submit(self, commands, size)
                    commands = []
                    size = 0
                commands.append(command)
                size += weight
                queue.append((request.id, request.kind, command))
            elif request.__class__ is requests.Read:
                self._reads.sort(request, reads)
            else:
                if commands:
                    # They were sent before, so they go with the ids of before.
                    clients.submit(self, commands, size)
                    commands = []
                    size = 0
                taken += self._act(request)
        clients.turn.taken += taken
        if commands:
            clients.submit(self, commands, size)
        if reads:
            self._reads.waiting += len(reads)
            clients.request_sync(ReadBatch(self, reads))
        self._reads.answer_ready()
        if self.ending:
            self._decoder = None
        elif self._reads.ready or (self._decoder is not None and self.phase is not Phase.ATTACHING):
            clients.on_backlog(self)

    def _decode(self, message: Any) -> requests.Request:
        """Return the decoded request.

        Raises:
            MarshallingError: the message is no request.
        """
        number = requests.id_of(message)
        if number is None:
            # Zatt's clients ask once and wait for the end.
            self.ending = True
            request: requests.Request = decode_one_shot(message)
        else:
            self.last_id = number
            request = requests.decode_request(message)
        self.last_kind = request.kind if request.__class__ is requests.Write else requests.shown_type(message)
        if not self._is_let_in:
            self._guard(request)
        if self.phase is Phase.NEW and request.__class__ is not Hello:
            self.clients.opened(self)
        return request

    def _guard(self, request: requests.Request) -> None:
        """Let a request pass if the client has said who it is (auth.required_schemes).

        Raises:
            MarshallingError: the client must say so first.
        """
        required = self.clients.settings.auth.required_schemes
        if meets(self.ids_of_writes, required):
            self._is_let_in = True
        elif not isinstance(request, BEFORE):
            self.ending = True
            raise UnprovedError(
                f"a request before authentication by {' or '.join(sorted(required))} (auth.required_schemes)"
            )

    def _malformed(self, message: Any, why: str) -> None:
        """Answer what is no request; one without an id ends the connection, as nobody could tell what it was about."""
        if self.phase is Phase.NEW:
            self.clients.opened(self)
        try:
            number = requests.id_of(message)
        except MarshallingError:
            number = None
        code = Code.BAD_ARGUMENTS
        if self.ending and not self._is_let_in:
            code = Code.SESSION_CLOSED_REQUIRE_SASL_AUTH
            self.clients.notice(self, why)
        self.write_answer(encode_error(number, code, why))
        if number is None or self.ending:
            self._end()

    def _break_off(self, why: str) -> None:
        """Say that the stream cannot be followed, and close."""
        self.clients.notice(self, why)
        self.write_answer(encode_error(None, Code.BAD_ARGUMENTS, why))
        self._end()

    def _end(self) -> None:
        """End the connection: what was said so far is the last."""
        self.ending = self.closing = True
        self._decoder = None
        if not self.dirty:
            self.clients.mark_dirty(self)

    # -- writes

    def _admit(self, write: requests.Write) -> Command | None:
        """Return the command to submit; None if the write was answered already."""
        clients = self.clients
        number = write.id
        view = clients.view
        if not write.forward and view is not None and not view.leads:
            leader = view.leader_address()
            if leader is not None:
                self.write_answer(encode_redirect(number, *leader))
                self._end_one_shot(number)
            else:
                self._refuse(number, Code.CONNECTION_LOSS, "no leader is known now; try again")
            return None
        if not clients.availability.serving:
            self._refuse(number, Code.CONNECTION_LOSS, NO_CONTACT)
            return None
        level = clients.machine.feature_level
        if level < LEVEL_OF_NATIVE:
            self._refuse(
                number,
                Code.UNIMPLEMENTED,
                f"the cluster works at feature level {level}, native writes need {LEVEL_OF_NATIVE}: it rises by itself, "
                "about a second after all members run a release that knows it; try again",
                retriable=True,
            )
            return None
        command = write.command
        if command[0] == TOPICS:
            found = topic_command(self, write)
            if isinstance(found[0], Code):
                self._refuse(number, *found, retriable=found[0] is Code.UNIMPLEMENTED)
                return None
            command = found
        if write.seq is None:
            if write.kind == "will" and not self.session:
                self._refuse(number, Code.BAD_ARGUMENTS, "will: it needs a session; say hello first")
                return None
            return command
        if not self.session:
            self._refuse(number, Code.BAD_ARGUMENTS, f"{write.kind}: seq needs a session; say hello first")
            return None
        return ONCE, write.seq, write.floor, command

    def _refuse(self, number: int | None, code: Code, why: str, *, retriable: bool | None = None) -> None:
        """Answer a request that was not taken: nothing of it has happened."""
        if number is None:
            self.write_answer(encode_zatt_result(ZattResult(False, code=code.name, error=why)))
            self._end()
        else:
            self.write_answer(encode_error(number, code, why, retriable=retriable))

    def _end_one_shot(self, number: int | None) -> None:
        if number is None:
            self._end()

    def complete(self, result: Any, zxid: int) -> None:
        """Answer the oldest write, which was applied with this result at this zxid."""
        if self.closing:
            return  # something before it ended the connection: nothing more is said
        queue = self.queue
        number, kind, command = queue.popleft()
        if self.unpushed and not self._push_first():
            return
        if command[0] == CLOSE_SESSION:
            self._write(answers.encode_result(number or 0, zxid))
            self._end()
            return
        outcome = outcome_of(command, result, zxid, self.clients.machine.position)
        inner: Command = command[3] if command[0] == ONCE else command
        if number is None:
            self._complete_one_shot(kind, inner, outcome[2])
        elif outcome[2] == Code.BAD_ARGUMENTS and command[0] == ONCE and self._is_forgotten(command):
            why = f"seq {command[1]} is not above the floor that this session has told: it was answered, and is forgotten"
            self._write(encode_error(number, Code.BAD_ARGUMENTS, f"{kind}: {why}"))
        elif command[0] == ONCE and not answers.is_outcome_of(inner, outcome):
            why = f"seq {command[1]} is that of another request of this session, and this one was not carried out"
            self._write(encode_error(number, Code.BAD_ARGUMENTS, f"{kind}: {why}"))
        elif inner[0] == MEMBERS and not outcome[2]:
            self._write(answers.encode_result(number, zxid, ConfigResult(inner[3][0][0])))
        elif inner[0] == TOPICS:
            denied = deny_change(self, kind, inner) if outcome[2] == Code.NO_AUTH else ""
            self._write(encode_topic_outcome(number, outcome, denied))
        else:
            self.out.append(answers.encode_outcome(number, inner, outcome))
            if not self.dirty:
                self.clients.mark_dirty(self)
        if self._decoder is not None:
            self._take_more()

    @property
    def is_interleaved(self) -> bool:
        """True while something else stands among its writes, so that each is to be answered before the next is executed."""
        return self.ending or bool(self.unpushed)

    def complete_run(self, results: Sequence[Any], zxid: int) -> None:
        """Answer as many of the oldest writes, which were applied one behind the other, the last of them at this zxid."""
        if self.closing:
            return
        behind = len(results)
        position = self.clients.machine.position
        for result in results:
            behind -= 1
            number, _, command = self.queue.popleft()
            assert number is not None, "it is asked once, and then the connection ends"
            if command[0] == PUT:
                answer = answers.encode_put(number, zxid - behind, position - behind, result)
            else:
                if command[0] != SET_DATA:
                    result = result[0], tuple(result[1].stat())
                outcome = zxid - behind, position - behind, 0, result
                answer = answers.encode_outcome(number, command, outcome)
            self.out.append(answer)
        if not self.dirty:
            self.clients.mark_dirty(self)
        if self._decoder is not None:
            self._take_more()

    def _take_more(self) -> None:
        """Take what is not looked at yet, if nothing stands before it and this turn has room."""
        turn = self.clients.turn
        if not self.queue and not turn.full and not turn.rests_ms and not self.wants_flush:
            self.take_backlog()

    def _is_forgotten(self, command: Command) -> bool:
        """Return whether a numbered command's answer is one that the client has said it received."""
        session = self.machine.sessions.get(self.session)
        kept = session.kept if session is not None else None
        return bool(command[1] <= max(command[2], 0 if kept is None else kept.floor))

    def _complete_one_shot(self, kind: str, command: Command, code: int) -> None:
        server = command[3][0][0] if kind == "config" else None
        if not code or (kind == "append" and code == Code.NO_NODE):
            # The key that was to be deleted does not exist: that is what was wanted.
            result = ZattResult(True, server)
        else:
            result = ZattResult(False, server, Code(code).name, failure_text(Code(code), command))
        self._write(encode_zatt_result(result))
        self._end()

    # -- reads

    def on_read_index(self, reads: list[requests.Read]) -> None:
        """Answer reads: all that was committed when they came is applied here."""
        if self.phase is not Phase.CLOSED:
            self._reads.on_read_index(reads)
            self._go_on()

    def answer_floors(self) -> bool:
        """Answer reads that waited long enough; return False if none waits any more.

        Such a read waits for this server to apply more, or for its time to be over. Called once per
        turn.
        """
        waits = self._reads.answer_floors()
        self._go_on()
        return waits

    def _go_on(self) -> None:
        if self._reads.ready or self._decoder is not None:
            self.clients.on_backlog(self)

    def answer_zatt(self, read: requests.Read) -> None:
        """Answer a message without id, and close."""
        if read.kind == "diagnostic":
            self._write(encode_zatt_map(self.view.diagnostic()))
        else:
            assert isinstance(read.query, GetState)
            try:
                self._write(answers.map_of(state_of(self, read.query.directory)))
            except Failure as failure:
                # Any map would pass for the state.
                self.clients.refuse(self, failure.text)
                return
        self._end()

    # -- everything else

    def _act(self, request: requests.Request) -> int:
        """Carry out a request that is neither read nor write; return for how many more it counts in this turn."""
        match request:
            case Ping():
                self.answer(request.id)
            case Hello():
                self._greet(request)
            case Close():
                self._close(request.id)
            case Authenticate():
                self._authenticate(request)
            case Config():
                self._configure(request)
            case Credit():
                if not self.clients.feeds.grant(self, request.subscription, request.bytes):
                    # It may have ended on the way; nobody waits for an answer.
                    self.last_kind = "credit"
            case Unsubscribe():
                self._subscriptions.unsubscribe(request)
            case SubscribeDictionary() | SubscribeLog() | SubscribePath():
                self._subscriptions.subscribe(request)
            case requests.Write() | requests.Read():
                raise AssertionError(f"{request} is handled where it is read")
            case _:
                self._subscriptions.act_on_topics(request)
                return cost_of(request)
        return 0

    def _greet(self, hello: Hello) -> None:
        if self.phase is not Phase.NEW:
            self._refuse(hello.id, Code.BAD_ARGUMENTS, "hello: it must be the first request of a connection")
            return
        self._hello_id = hello.id
        self.request = ConnectRequest(
            0, hello.last_zxid, hello.timeout_ms, hello.session, hello.password, None
        )
        self.clients.attach(self, self.request)

    def attached(self, session: Session) -> None:
        """Greet the client, whose session is ours now, and handle what it already sent."""
        self.phase = Phase.ATTACHED
        self.session = session.id
        self.timeout_ms = session.timeout_ms
        self.third_ms = session.timeout_ms // 3
        view = self.clients.view
        greeting = HelloResult(
            session.id,
            session.password,
            session.timeout_ms,
            0 if view is None else view.server,
            None if view is None else view.cluster,
        )
        self.answer(self._hello_id, greeting)
        self.take_backlog()

    def refuse_session(self, request: ConnectRequest) -> None:
        """Tell the client that the session is gone or not its own, in the form that clients know, then close."""
        self.write_answer(
            encode_error(self._hello_id, Code.SESSION_EXPIRED, f"hello: {text_of(Code.SESSION_EXPIRED)}")
        )
        self._end()

    def send_elsewhere(self) -> None:
        """Send the client to another server, since this one cannot serve it now."""
        assert self.request is not None, "it asked for a session"
        zxid = self.machine.last_zxid
        why = (
            NO_CONTACT
            if not self.clients.availability.serving
            else f"hello: this server has applied up to zxid {zxid:#x}, the client has seen "
            f"{self.request.last_zxid_seen:#x}; ask another one, or this one later"
        )
        self.write_answer(encode_error(self._hello_id, Code.CONNECTION_LOSS, why))
        self._end()

    def _close(self, number: int) -> None:
        self.ending = True
        if not self.session:
            self.answer(number)
            self._end()
        elif self.clients.availability.serving:
            self.queue.append((number, "close", (CLOSE_SESSION,)))
            self.clients.submit(self, [(CLOSE_SESSION,)], 1)
        else:
            self._refuse(number, Code.CONNECTION_LOSS, NO_CONTACT)
            self._end()

    def _authenticate(self, offer: Authenticate) -> None:
        token = None
        try:
            if offer.scheme == "sasl":
                ids, token = self.clients.log_in(self, offer.credentials)
            else:
                proved = proved_ids(
                    Credentials(offer.scheme, offer.credentials),
                    self.ids_of_writes,
                    self.clients.settings.auth,
                )
                if proved is None:
                    raise AuthenticationError(f"authentication with scheme {offer.scheme!r} failed")
                ids = proved
        except AuthenticationError as error:
            self.clients.notice(self, str(error))
            self.write_answer(encode_error(offer.id, Code.AUTH_FAILED, f"auth: {error}"))
            self._end()
            return
        self.ids = self.ids_of_writes = ids
        self.answer(offer.id, AuthResult(token))

    def _configure(self, config: Config) -> None:
        """Add or delete a member: nobody may unless the operator has said so, and then who may write /zookeeper/config."""
        clients = self.clients
        if not clients.settings.reconfig_enabled:
            code = Code.RECONFIG_DISABLED
            self._refuse(config.id, code, text_of(code))
            return
        if config.id is None and clients.view is not None and not clients.view.leads:
            leader = clients.view.leader_address()
            if leader is not None:
                self.write_answer(encode_redirect(None, *leader))
                self._end()
                return
        if not clients.availability.serving:
            self._refuse(config.id, Code.CONNECTION_LOSS, NO_CONTACT)
            return
        change = change_of(config, self.machine.members)
        if len(change) == 2:
            self._refuse(config.id, *change)
            return
        node = self.machine.nodes.get(CONFIG)
        assert node is not None, f"{CONFIG} cannot be deleted"
        # An id that was free may have been given away since.
        command: Command = (MEMBERS, False, node.mzxid, (change,))
        self.queue.append((config.id, "config", command))
        clients.submit(self, [command], len(config.address))

    def on_stalled(self) -> None:
        """Take note that the client does not take what is written: it is told only what it cannot do without."""
        self.clients.feeds.on_stalled(self)

    def on_taken(self) -> None:
        """Take note that the client has taken all that was written: it may be told what was put off."""
        self.clients.feeds.on_taken(self)
        self.clients.on_topics(self)

    def on_release(self) -> None:
        """Free what the client sent, and what is left of the connection in other tables, since it is over."""
        self._subscriptions.release()
        self.clients.feeds.forget(self)
        self._reader.clear()
        self._decoder = None
        self._reads.clear()
        self.queue.clear()

    # -- topics

    def push_topics(self) -> bool:
        """Tell what was gathered; False if something is left for the next turn."""
        return self.closing or self._subscriptions.push_topics()

    def answer(self, number: int, result: object = None) -> None:
        """Answer a request that has succeeded, with a result of one of the declared classes, if it has any."""
        self.write_answer(answers.encode_result(number, self.machine.last_zxid, result))

    def refuse(self, number: int, code: Code, why: str, *, retriable: bool | None = None) -> None:
        """Answer a request that came to nothing."""
        self._refuse(number, code, why, retriable=retriable)

    # -- output

    def push(self, message: bytes) -> None:
        """Push an event, after what else was changed before it."""
        self.write_answer(message)

    def write_pushed(self, message: bytes) -> None:
        """Write a part of a subscription; what must come before it was written."""
        self._write(message)

    def write_answer(self, message: bytes) -> None:
        """Write a message after everything that the client must be told before it."""
        if not self.unpushed or self._push_first():
            self._write(message)

    def _push_first(self) -> bool:
        """Write what the client is to be told of before its next answer; False if that is too much, which is the end."""
        if self.closing:
            return False
        self.clients.feeds.push_to(self)
        if not self.is_overfull:
            return True
        self.unpushed = True  # whoever goes on to write comes here again, and is told that it is the end
        self.clients.refuse(
            self, "what it subscribed to is more than client.output_bytes_max before its next answer"
        )
        return False

    def write_parts(self, parts: tuple[bytes, ...]) -> None:
        """Write a message of which large parts are not to be copied, after everything before it."""
        self.pieces += len(parts) - 1
        for part in parts:
            self.write_answer(part)

    def _write(self, message: bytes) -> None:
        self.out.append(message)
        self.out_bytes += len(message)
        if not self.dirty:
            self.clients.mark_dirty(self)


class UnprovedError(MarshallingError):
    """The client has not said who it is, and must."""
