"""Listings: which columns a narrow terminal has, what programs get, and how often a listing is shown."""

from __future__ import annotations

import json
import time

import click
import pytest
from click.testing import CliRunner

from zraft.cli import member_command, settings_command
from zraft.cli.listings.listing import Column, Grid, Listing, fitted, width_of
from zraft.cli.listings.listing_options import lists, rendered
from zraft.cli.topics import topic_command
from zraft.cli.znodes import subtree
from zraft.program.command_group import CommandGroup
from zraft_core.errors import ZraftError

GRID = Grid(
    (
        Column("server"),
        Column("latency\nms", right=True),
        Column("term", right=True, spare=1),
        Column("version", spare=2),
    ),
    (("[fd00::1]:2181", "1.4 / 3", "7", "3.9.5-zraft"), ("10.0.0.1:2181", "-", "12", "-")),
)


def test_a_table_that_fits_has_all_columns_and_no_blanks_at_its_ends() -> None:
    assert rendered((GRID,), 80).splitlines() == [
        "                latency",
        "server               ms  term  version",
        "[fd00::1]:2181  1.4 / 3     7  3.9.5-zraft",
        "10.0.0.1:2181         -    12  -",
    ]


def test_columns_go_in_their_order_until_the_table_fits_and_are_named() -> None:
    assert width_of(GRID) == 42
    assert fitted(GRID, 42) == (GRID, ())
    narrow, left_out = fitted(GRID, 41)
    assert [column.name for column in narrow.columns] == ["server", "latency\nms", "term"]
    assert left_out == ("version",)
    assert narrow.rows[1] == ("10.0.0.1:2181", "-", "12")
    assert fitted(GRID, 10)[1] == ("version", "term")
    assert rendered((GRID,), 25).splitlines()[-1] == (
        "(25 columns have no room for: version, term; --output json has all)"
    )


def test_nothing_is_cut_off_where_what_is_always_shown_is_too_wide() -> None:
    grid = Grid((Column("path"), Column("why", folds=True)), (("/" + "p" * 50, "because " * 20),))
    lines = rendered((grid,), 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert "".join(lines).count("p") == 51
    assert "".join(lines).count("because") == 20


def test_wide_characters_take_two_columns() -> None:
    assert width_of(Grid((Column("a"),), (("漢字",),))) == 4


@click.group(cls=CommandGroup)
def program() -> None:
    """A program with a listing."""


LOOKS: list[Listing | ZraftError | SystemExit] = []


@program.command()
@lists
def things() -> Listing:
    """List things."""
    found = LOOKS.pop(0)
    if not isinstance(found, Listing):
        raise found
    return found


ONE = Listing(({"thing": 1}, {"thing": 2}), (Grid((Column("thing"),), (("1",), ("2",))), "2 things"))
NONE = Listing((), ("no things",))


def test_json_has_a_line_per_value_and_tables_are_the_default() -> None:
    for arguments in (["--json"], ["--output", "json"], ["-o", "json"]):
        LOOKS[:] = [ONE]
        printed = CliRunner().invoke(program, ["things", *arguments]).output
        assert [json.loads(line) for line in printed.splitlines()] == [{"thing": 1}, {"thing": 2}]
    LOOKS[:] = [ONE]
    assert CliRunner().invoke(program, ["things"]).output == "thing\n1\n2\n2 things\n"


def test_the_width_is_that_of_a_terminal_and_a_pipe_gets_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Listing((), (GRID,))
    LOOKS[:] = [wide, wide]
    monkeypatch.setenv("COLUMNS", "41")
    assert "no room" not in CliRunner().invoke(program, ["things"]).output
    monkeypatch.setattr("zraft.cli.listings.listing_options.output_width", lambda: 41)
    assert "no room for: version" in CliRunner().invoke(program, ["things"]).output


def test_a_complaint_fails_the_command_after_its_listing_is_printed() -> None:
    LOOKS[:] = [Listing((), ("no things",), "some are missing"), Listing((), ("nobody leads",), exit_code=4)]
    result = CliRunner().invoke(program, ["things"])
    assert (result.exit_code, result.output) == (1, "no things\nError: some are missing\n")
    result = CliRunner().invoke(program, ["things"])
    assert (result.exit_code, result.output) == (4, "nobody leads\n")


def test_watch_prints_what_differs_goes_on_after_errors_and_ends_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if not LOOKS:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    LOOKS[:] = [ONE, ONE, ZraftError("nobody answers"), NONE]
    result = CliRunner().invoke(program, ["things", "--watch", "--interval", "7"])
    assert (result.exit_code, result.output) == (0, "thing\n1\n2\n2 things\nnobody answers\nno things\n")
    assert slept == [7] * 4
    LOOKS[:] = [ONE, SystemExit(130)]
    assert CliRunner().invoke(program, ["things", "--watch"]).exit_code == 0
    LOOKS[:] = [ZraftError("nobody answers")]
    assert CliRunner().invoke(program, ["things", "--watch"]).exit_code == 1


def test_tables_of_usual_clusters_fit_80_columns() -> None:
    """The cells are as long as they usually get."""
    cells: dict[tuple[Column, ...], tuple[str, ...]] = {
        member_command.COLUMNS: (
            *("254", "zk1.example.org:2181", "observer", "yes", "123456", "123456", "16", "0123abcd"),
        ),
        settings_command.COLUMNS: ("tree.container_never_used_ms_max", "31536000000", "31536000000"),
        topic_command.TOPIC_COLUMNS: ("orders-of-the-shop", "128 of 1024", "128", "500GiB, 365d"),
        topic_command.PARTITION_COLUMNS: (
            *("1023", "4294967301", "254", "254", "1, 2, 3", "4 (12345 entries behind, silent 12.3m)"),
            *("12345678 to 23456789", "123.4GiB", "365.0d", "moving"),
        ),
        subtree.COLUMNS: (
            *(
                "1048575",
                "100000",
                "123456",
                "0x1000001234567890",
                "2026-01-01 00:00:00Z",
                "worker-0000000001",
            ),
        ),
    }
    for columns, row in cells.items():
        lines = rendered((Grid(columns, (row,)),), 80).splitlines()
        assert max(map(len, lines)) <= 80, lines
