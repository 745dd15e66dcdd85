"""The command line: every command is there, options are told, contradictions are refused before anything is started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from zraft_bench.main import COMMANDS, main

REPOSITORY = Path(__file__).parents[2]


def invoke(*arguments: str) -> tuple[int, str]:
    answer = CliRunner().invoke(main, list(arguments))
    return answer.exit_code, answer.output


def test_the_commands_are_those_of_the_documentation() -> None:
    text = (REPOSITORY / "docs" / "how-to" / "benchmarking.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `zraft-bench ")]
    named = [
        word.split()[0]
        for row in rows
        for word in re.findall(r"`(?:zraft-bench )?([^`]+)`", row.split("|")[1])
    ]
    assert named == list(COMMANDS)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(command: str) -> None:
    code, text = invoke(command, "--help")
    assert code == 0
    assert "Usage: " in text


def test_local_has_zatts_options_and_defaults() -> None:
    """Z-25: servers 4, clients 16, entries 1,000, bytes 100."""
    _, text = invoke("local", "--help")
    flat = " ".join(text.split())
    for option, default in (
        ("-s, --servers", "4"),
        ("-c, --clients", "16"),
        ("-e, --entries", "1000"),
        ("-d, --size", "100"),
    ):
        after = flat[flat.index(option) :]
        assert f"[default: {default};" in after[: after.index("]") + 1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("head",), "--address, --connect: expected one of them"),
        (("head", "--address", "127.0.0.1:1", "--connect", "127.0.0.1:2"), "expected one of them"),
        (("head", "--connect", "127.0.0.1:2", "--restart"), "drop --restart"),
        (("local", "--connect", "127.0.0.1:2", "--docker"), "drop --docker"),
        (("client", "--head", "nowhere"), "--head"),
        (("compare", "--system", "zookeeper", "--zookeeper", "x"), "--zookeeper"),
        (("local", "--schedule", "matrixx"), "matrixx"),
        (("local", "-c", "0"), "-c"),
        (("local", "--rate", "0"), "--rate"),
    ],
)
def test_contradictions_are_refused(arguments: tuple[str, ...], complaint: str) -> None:
    code, text = invoke(*arguments)
    assert code == 2, text
    assert complaint in text
