"""The command line: what it hands to the server, and what it says to somebody who got it wrong."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest
from click.testing import CliRunner, Result

from zraft import __version__
from zraft.cli.main import main
from zraft.config.knobs import KNOBS
from zraft.config.server import ServerConfig
from zraft_core.address import Address

CLUSTER = "1=10.0.0.1:2181,2=10.0.0.2:2181,3=10.0.0.3:2181"
SERVE = ["serve", "--id", "2", "--data", "state", "--address", "10.0.0.2:2181", "--cluster", CLUSTER]


def run(*arguments: str, environ: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, arguments, env=environ)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServerConfig]:
    """Puts a recorder in the place of the server; its exit code is 7."""
    configs: list[ServerConfig] = []

    def run_server(config: ServerConfig) -> NoReturn:
        configs.append(config)
        sys.exit(7)

    node = types.ModuleType("zraft.server.process.node")
    node.run_server = run_server  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zraft.server.process.node", node)
    monkeypatch.setattr("zraft.program.logs.configure_logging", lambda **_: None)
    return configs


def test_serve_hands_over_what_the_flags_say_and_exits_with_the_servers_code(served: Any) -> None:
    result = run(*SERVE, "--key", "a.key", "--key", "b.key", "--admin", "[::1]:8080", "--log-format", "json")
    assert result.exit_code == 7, result.output
    [config] = served
    assert (config.id, config.data, config.address) == (2, Path("state"), Address("10.0.0.2", 2181))
    assert sorted(config.cluster) == [1, 2, 3]
    assert config.key_files == (Path("a.key"), Path("b.key"))
    assert config.admin == Address("::1", 8080)
    assert config.log_format == "json"
    assert not config.insecure_peers


def test_serve_takes_any_knob_by_set_over_environment_and_file(served: Any, tmp_path: Path) -> None:
    file = tmp_path / "zraft.toml"
    file.write_text("insecure_peers = true\ntick_time_ms = 1000\n[raft]\nheartbeat_ticks = 20\n")
    result = run(
        *SERVE,
        "--config",
        str(file),
        "--set",
        "raft.heartbeat_ticks=40",
        environ={"ZRAFT_RAFT__HEARTBEAT_TICKS": "30", "ZRAFT_TICK_TIME_MS": "500"},
    )
    assert result.exit_code == 7, result.output
    assert served[0].raft.heartbeat_ticks == 40
    assert served[0].tick_time_ms == 500
    assert served[0].insecure_peers


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            SERVE,
            "Error: key: not set, and a cluster of 3 servers needs one; make it with `zraft key new FILE`",
        ),
        (SERVE[:3], "Error: data: not set; pass --data"),
        ([*SERVE, "--insecure-peers", "--id", "0"], "Error: id (on the command line): found '0'"),
        ([*SERVE, "--insecure-peers", "--set", "tick"], "Error: --set: found 'tick', expected KNOB=VALUE"),
        (
            [*SERVE, "--insecure-peers", "--set", "tick=1"],
            "Error: tick (on the command line): there is no such",
        ),
        ([*SERVE, "--insecure-peers", "--log-format", "xml"], "expected one of console, json"),
        ([*SERVE, "--config", "missing.toml"], "Error: config: cannot read missing.toml"),
        (["status", "--connect", "nowhere"], "Error: --connect: found 'nowhere', expected HOST:PORT"),
        (["dev", "--servers", "3", "--port", "65535"], "Error: --port: found 65535, expected at most 65533"),
        (["dev", "--set", "tick"], "Error: --set: found 'tick', expected KNOB=VALUE"),
    ],
)
def test_a_mistake_is_answered_by_a_message_that_names_the_knob(
    served: Any, arguments: list[str], complaint: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert complaint in result.output
    assert "Traceback" not in result.output
    assert not served


def test_help_and_version_are_there_for_every_command() -> None:
    assert f"zraft, version {__version__}" in run("--version").output
    for command in ([], ["serve"], ["dev"], ["status"], ["shell"], ["key"], ["key", "new"]):
        result = run(*command, "--help")
        assert result.exit_code == 0
        assert result.output.startswith("Usage:")


def variables(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """(option, its environment variable) of a command and all below it."""
    for option in command.params:
        if isinstance(option.envvar, str):
            yield option.opts[0], option.envvar
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from variables(below, click.Context(below, parent=context, info_name=name))


def test_a_variable_of_a_command_for_clients_does_not_stop_a_server(served: Any) -> None:
    found = set(variables(main, click.Context(main, info_name="zraft")))
    assert {("--connect", "ZRAFT_CONNECT"), ("--auth", "ZRAFT_AUTH")} <= found
    environ = {
        variable: "" for _, variable in found if variable not in {knob.variable for knob in KNOBS.values()}
    }
    assert run(*SERVE, "--key", "a.key", environ=environ).exit_code == 7
    (config,) = served
    assert config.id == 2


def test_commands_take_the_servers_from_the_environment_unless_they_are_named() -> None:
    environ = {"ZRAFT_CONNECT": "127.0.0.1:1"}
    for words in (
        ["get", "/a"],
        ["status"],
        ["member", "list"],
        ["topic", "list"],
        ["shell"],
        ["doctor"],
    ):
        result = run(
            *words, "--timeout", "0.5", *(["ls", "/"] if words == ["shell"] else []), environ=environ
        )
        assert result.exit_code == 1, result.output
        assert "127.0.0.1:1" in result.output, words
        assert "2181" not in result.output, words
    assert "127.0.0.1:2" in run("status", "--connect", "127.0.0.1:2", environ=environ).output


def test_serve_refuses_an_interpreter_that_drops_assertions() -> None:
    answer = subprocess.run(
        [sys.executable, "-O", "-m", "zraft", *SERVE, "--insecure-peers"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2
    assert "Python runs with -O" in answer.stderr


def test_the_serve_path_loads_neither_rich_tables_nor_http_nor_the_supervisor() -> None:
    """Three servers of `zraft dev` start on two cores: what serve does not use it does not import."""
    code = (
        "import sys, zraft.cli.main, zraft.config.knobs, zraft.config.server\n"
        "heavy = {'rich', 'aiohttp', 'asyncio', 'structlog', 'zraft.cli.dev', 'zraft.cli.status_table'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"


def test_serve_takes_a_zoo_cfg_with_or_without_the_flag(served: Any, tmp_path: Path) -> None:
    file = tmp_path / "zoo.cfg"
    file.write_text(f"dataDir={tmp_path}\nclientPort=2182\nmystery=1\n")
    for arguments in (["serve", str(file)], ["serve", "--config", str(file)]):
        assert run(*arguments).exit_code == 7
    assert [config.address for config in served] == [Address("0.0.0.0", 2182)] * 2
    both = run("serve", str(file), "--config", str(file))
    assert both.exit_code == 2
    assert "expected one settings file" in both.output


def test_a_secret_is_no_argument(served: Any) -> None:
    """Arguments can be read by everybody on the machine."""
    result = run(*SERVE, "--insecure-peers", "--set", "auth.super_digest=super:xQJmxLMiHGwaqBvst5y6rkB6HQs=")
    assert result.exit_code == 2
    assert "auth.super_digest, which is a secret" in result.output
    assert "ZRAFT_AUTH__SUPER_DIGEST" in result.output
    assert "xQJmx" not in result.output
    assert served == []
