"""Session of lines: each is parsed, its conversation driven over the client, and the outcome shown."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from attrs import frozen

from zraft.shell.catalogue import help_text, spec_of
from zraft.shell.client import Client, ClientNotice, State, StateNotice, four_letter
from zraft.shell.commands import COMMANDS, Context
from zraft.shell.conversation import Ask, Conversation, ForgetWatches, Output, note, plain
from zraft.shell.display import Display
from zraft.shell.errors import EXIT_OK, EXIT_USAGE, NotConnectedError, ShellError, UsageError
from zraft.shell.grammar import Invocation, checked_number, parse
from zraft.shell.target import Target, parse_target
from zraft.shell.words import quoted, split
from zraft_core.errors import ConfigError
from zraft_core.wire.client import Reply

HISTORY_MAX: Final = 1000
HISTORY_SHOWN: Final = 11
"""The number of the latest commands that are shown, as many as ZooKeeper's client shows."""

WITHOUT_SESSION: Final = frozenset(
    {"close", "connect", "help", "history", "printwatches", "quit", "redo", "version"}
)


@frozen
class ShellSettings:
    """Settings of the shell.

    `wait_s` is how long to wait for a connection, if `patient` also while nobody listens.
    """

    target: Target
    session_timeout_ms: int
    wait_s: float
    tls: ssl.SSLContext | None = None
    patient: bool = False


class ShellSession:
    """The state between two lines: the client, the history, whether to continue."""

    def __init__(self, settings: ShellSettings, display: Display, context: Context) -> None:
        self.client: Client | None = None
        self.target = settings.target
        self.over = False
        """True once somebody typed quit."""
        self.on_state_change: Callable[[], None] = lambda: None
        """Called when the connection came or went."""
        self._settings = settings
        self._display = display
        self._context = context
        self._history: deque[tuple[int, tuple[str, ...]]] = deque(maxlen=HISTORY_MAX)
        self.count = 0
        """Lines run so far, which is the number of the next one."""

    def open(self) -> None:
        """Begin a session in the background."""
        self.client = Client(
            self.target,
            session_timeout_ms=self._settings.session_timeout_ms,
            wait_s=self._settings.wait_s,
            notify=self._noticed,
            tls=self._settings.tls,
            patient=self._settings.patient,
        )
        self.client.start()

    async def close(self) -> None:
        """End the client's session."""
        client, self.client = self.client, None
        if client is not None:
            await client.close()

    async def run_line(self, line: str) -> int:
        """Run one line; return its exit code. Empty lines and comments do nothing, successfully."""
        if line.lstrip().startswith("#"):
            return EXIT_OK
        try:
            words = split(line)
        except UsageError as error:
            self._display.error(str(error))
            return error.exit_code
        return await self.run_words(words)

    async def run_words(self, words: Sequence[str]) -> int:
        """Run one command; return its exit code. Errors are shown; only bugs and cancellations are raised."""
        if not words:
            return EXIT_OK
        if words[0] != "redo":
            self._remember(tuple(words))
        try:
            spec = spec_of(words[0])
            await self._run(parse(spec, words[1:]))
        except ShellError as error:
            self._display.error(str(error))
            return error.exit_code
        except ConfigError as error:
            self._display.error(str(error))
            return EXIT_USAGE
        return EXIT_OK

    def _remember(self, words: tuple[str, ...]) -> None:
        self._history.append((self.count, words))
        self.count += 1

    async def _run(self, call: Invocation) -> None:
        name = call.spec.name
        if name in COMMANDS:
            conversation = COMMANDS[name](call, self._context)
            if name in WITHOUT_SESSION:
                await self._drive(conversation, None)
            else:
                await self._drive(conversation, self.client)
            return
        match name:
            case "help":
                self._display.show(plain(help_text(call.argument(0)), None))
            case "history":
                self._show_history()
            case "redo":
                await self._redo(call)
            case "quit":
                self.over = True
            case "close":
                await self._close()
            case "connect":
                await self._connect(call)
            case "printwatches":
                self._printwatches(call)
            case "four-letter":
                await self._four_letter(call)
            case _:
                raise AssertionError(f"{name} is in the catalogue, and nobody runs it")

    async def _drive(self, conversation: Conversation, client: Client | None) -> None:
        """Send what a conversation asks, and show what it shows, until it ends."""
        try:
            step = next(conversation)
            while True:
                answer: Sequence[Reply] = ()
                failure: NotConnectedError | None = None
                match step:
                    case Output():
                        self._display.show(step)
                    case ForgetWatches(path, type_):
                        if client is not None:
                            client.forget_watches(path, type_)
                    case Ask(requests):
                        try:
                            if client is None:
                                raise NotConnectedError("Not connected (`connect` begins a session)")
                            answer = await client.ask(requests)
                        except NotConnectedError as error:
                            failure = error
                step = conversation.send(answer) if failure is None else conversation.throw(failure)
        except StopIteration:
            return
        finally:
            conversation.close()

    # -- commands about the shell itself

    def _show_history(self) -> None:
        shown = list(self._history)[-HISTORY_SHOWN:]
        for number, words in shown:
            line = " ".join(map(quoted, masked(words)))
            self._display.show(plain(f"{number} - {line}", {"number": number, "command": line}))

    async def _redo(self, call: Invocation) -> None:
        number = checked_number(call.spec, "cmdno", call.arguments[0], lowest=0, highest=2**31 - 1)
        words = next((words for known, words in self._history if known == number), None)
        if words is None:
            raise UsageError(f"Command index out of range: found {number}, expected one that `history` shows")
        self._remember(words)
        await self._run(parse(spec_of(words[0]), words[1:]))

    async def _close(self) -> None:
        if self.client is None:
            raise NotConnectedError("Not connected")
        await self.close()
        self.on_state_change()

    async def _connect(self, call: Invocation) -> None:
        text = call.argument(0)
        if text is not None:
            self.target = parse_target(text, "connect")
        await self.close()
        self.open()
        assert self.client is not None, "opened just now"
        await self.client.wait_connected()

    def _printwatches(self, call: Invocation) -> None:
        wanted = call.argument(0)
        if wanted is not None:
            self._display.shows_watches = wanted == "on"
            return
        shown = "on" if self._display.shows_watches else "off"
        self._display.show(note(f"printwatches is {shown}", {"printwatches": shown}))

    async def _four_letter(self, call: Invocation) -> None:
        if self.client is None:
            raise NotConnectedError("Not connected (`connect` begins a session)")
        await self.client.wait_connected()
        server = self.client.server
        if server is None:
            raise NotConnectedError("Not connected: the connection broke just now")
        word = call.arguments[0]
        answer = await four_letter(server, word, self._settings.wait_s, self._settings.tls)
        self._display.show(plain(answer.removesuffix("\n"), {"server": str(server), "answer": answer}))

    def _noticed(self, notice: ClientNotice) -> None:
        self._display.notice(notice)
        if isinstance(notice, StateNotice):
            self.on_state_change()

    @property
    def prompt(self) -> str:
        """The prompt of ZooKeeper's client: which server, connected or not, the number of the next line."""
        server = self.client.server if self.client is not None else None
        state = self.client.state if self.client is not None else State.CLOSED
        return f"[zk: {server or self.target}({state.value}) {self.count}] "


def masked(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the line without the password of an addauth."""
    return (*words[:2], "…") if words[0] == "addauth" and len(words) > 2 else words
