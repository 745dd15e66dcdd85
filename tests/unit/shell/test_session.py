"""Lines run one after the other: what is remembered, shown, and where it is written."""

from __future__ import annotations

import io
import json
from datetime import UTC

import pytest

from tests.unit.shell.fake_server import Asked, FakeServer, sensible
from zraft.shell.commands import Context
from zraft.shell.conversation import Output, TextKind, note
from zraft.shell.display import Display
from zraft.shell.session import ShellSession, ShellSettings
from zraft.shell.target import Target
from zraft.shell.watches import Notice, WatchNotice
from zraft_core.address import Address
from zraft_core.wire.events import EventType, encode_watch_event
from zraft_core.wire.opcodes import Opcode

NOWHERE = Target((Address("127.0.0.1", 1),))


def session(target: Target = NOWHERE, wait_s: float = 0.05) -> tuple[ShellSession, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    settings = ShellSettings(target, 30_000, wait_s)
    return ShellSession(settings, Display(out, err), Context(zone=UTC, read_file=lambda path: path)), out, err


async def run(*lines: str) -> tuple[list[int], str, str]:
    """Exit codes, output and errors of lines that need no server."""

    one, out, err = session()
    return [await one.run_line(line) for line in lines], out.getvalue(), err.getvalue()


async def test_empty_lines_and_comments_are_nothing() -> None:
    assert await run("", "   ", "# ls /", "  # x") == ([0, 0, 0, 0], "", "")


async def test_history_is_numbered_and_hides_passwords_and_redo_runs_a_line_again() -> None:
    codes, out, err = await run(
        "version", "addauth digest bob:secret", 'create "/a b" x', "redo 0", "redo 9", "history"
    )
    assert codes == [0, 1, 1, 0, 2, 0]
    shown = out.splitlines()
    assert shown[0] == shown[1]
    assert shown[2:] == [
        *("0 - version", "1 - addauth digest …", '2 - create "/a b" x', "3 - version", "4 - history"),
    ]
    assert "Command index out of range: found 9" in err
    assert "secret" not in out + err


async def test_without_a_session_commands_say_so_and_the_shells_own_work() -> None:
    codes, out, err = await run(
        "ls /", "close", "four-letter ruok", "printwatches", "help ls", "removewatches -l /a"
    )
    assert codes == [1, 1, 1, 0, 0, 0]
    assert err.splitlines() == [
        "Not connected (`connect` begins a session)",
        "Not connected",
        "Not connected (`connect` begins a session)",
    ]
    assert out.startswith("printwatches is on\nList a znode's children.\n")


async def test_connect_to_nowhere_is_a_misuse_and_to_nobody_a_failure() -> None:
    codes, _, err = await run("connect a:x", "connect 127.0.0.1:1", "close")
    assert codes == [2, 1, 0]
    assert err.startswith("connect: found 'a:x'")


async def test_the_prompt_says_where_and_how_far() -> None:
    async def prompts() -> list[str]:
        async with FakeServer() as server:
            target = Target((server.address,), "/app")
            one, _, _ = session(target, 20.0)
            shown = [one.prompt]
            await one.run_line("connect")
            shown.append(one.prompt.replace(str(server.address), "SERVER"))
            await one.run_line("close")
            shown.append(one.prompt.replace(str(target), "TARGET"))
            return [shown[0].replace(str(target), "TARGET"), *shown[1:]]

    assert await prompts() == [
        "[zk: TARGET(CLOSED) 0] ",
        "[zk: SERVER(CONNECTED) 1] ",
        "[zk: TARGET(CLOSED) 2] ",
    ]


@pytest.mark.parametrize("on", [True, False])
async def test_printwatches_decides_whether_events_are_shown(on: bool) -> None:
    async def watched() -> str:
        def event_first(asked: Asked, number: int) -> bytes:
            event = encode_watch_event(8, EventType.NODE_CREATED, "/a")
            answer = sensible(asked, number)
            assert answer is not None
            return (event if asked.opcode == Opcode.EXISTS else b"") + answer

        async with FakeServer(event_first) as server:
            one, out, _ = session(Target((server.address,)), 20.0)
            one.open()
            await one.run_line(f"printwatches {'on' if on else 'off'}")
            await one.run_line("stat -w /a")
            await one.close()
            return out.getvalue()

    event = "\nWATCHER::\n\nWatchedEvent state:SyncConnected type:NodeCreated path:/a\n"
    assert (await watched()).startswith(event if on else "cZxid")


def shown(output: Output, **how: bool) -> str:
    out = io.StringIO()
    Display(out, io.StringIO(), **how).show(output)
    return out.getvalue()


def test_plain_output_has_no_colours_and_a_terminal_gets_no_control_characters() -> None:
    output = Output(
        {"a": "\x1b"}, ((TextKind.PLAIN, "\x1b[2J"), (TextKind.STAT, "a = 1\nb = 2"), (TextKind.NAMES, "[x]"))
    )
    assert shown(output) == "\x1b[2J\na = 1\nb = 2\n[x]\n"
    assert shown(output, terminal=True) == "\\x1b[2J\na = 1\nb = 2\n[x]\n"
    coloured = shown(output, terminal=True, colours=True)
    assert coloured == "\\x1b[2J\n\x1b[36ma\x1b[0m = 1\n\x1b[36mb\x1b[0m = 2\n\x1b[32m[x]\x1b[0m\n"
    assert json.loads(shown(output, json=True)) == {"a": "\x1b"}
    assert shown(note("x"), json=True) == ""


def test_json_says_events_too() -> None:
    out = io.StringIO()
    Display(out, io.StringIO(), json=True).notice(WatchNotice(Notice.NodeDeleted, "/a", 7))
    assert json.loads(out.getvalue()) == {"watch": {"type": "NodeDeleted", "path": "/a", "zxid": 7}}
