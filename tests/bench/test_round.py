"""The command that shows what a write costs."""

from __future__ import annotations

import re

from click.testing import CliRunner

from tests.bench.round import main


def test_each_server_is_shown_with_what_woke_it_and_what_it_used() -> None:
    shown = CliRunner().invoke(main, ["--writes", "40", "--clients", "2"], catch_exceptions=False)
    assert shown.exit_code == 0
    rows = {
        row[0]: [float(cell) for cell in row[1:]]
        for row in (
            re.split(r"\s*│\s*", line.strip(" │")) for line in shown.output.splitlines() if "│" in line
        )
        if len(row) == 10
    }
    assert [server.partition(", ")[2] for server in rows].count("follows") == 2
    *_, total = rows.values()
    assert list(rows)[-1] == "all"
    client, datagram, _, _, turns, datagrams, calls, microseconds, disk = total
    assert client == 1.0, "each write is one request"
    assert min(datagram, turns, datagrams) > 0
    assert calls > 50
    assert microseconds > disk > 0
