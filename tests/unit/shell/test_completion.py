"""What Tab offers at the end of a line."""

from __future__ import annotations

import pytest

from zraft.shell.catalogue import SPECS
from zraft.shell.completion import CANDIDATES_MAX, Children, Words, complete


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("getA", Words(("getAcl", "getAllChildrenNumber"), 4)),
        ("GETAC", Words(("getAcl",), 5)),
        ("  wh", Words(("whoami",), 2)),
        ("ex", Words(("exit",), 2)),
        ("nonsense ", Words((), 0)),
        ("help getA", Words(("getAcl", "getAllChildrenNumber"), 4)),
        ("help ls ", Words((), 0)),
        ("ls -", Words(("-R", "-s", "-w"), 1)),
        ("ls /a -", Words(("-R", "-s", "-w"), 1)),
        ("addWatch -m ", Words(("PERSISTENT", "PERSISTENT_RECURSIVE"), 0)),
        ("addWatch -m PERSISTENT_", Words(("PERSISTENT_RECURSIVE",), 11)),
        ("printwatches o", Words(("off", "on"), 1)),
        ("four-letter sr", Words(("srst", "srvr"), 2)),
        ("ls ", Words(("/",), 0)),
        ("ls /", Children("/", "", 1)),
        ("ls -s /a/b", Children("/a", "b", 4)),
        ("delete -v 7 /a/", Children("/a", "", 3)),
        ("delete -v ", Words((), 0)),
        ("set /a ", Words((), 0)),
        ("set /a /", Words((), 0)),
        ("ls /a ", Words((), 0)),
        ('get "/a b', Children("/", "a b", 5)),
        ('get "/a b/c', Children("/a b", "c", 7)),
        ("getEphemerals /w", Children("/", "w", 2)),
        ("version ", Words((), 0)),
    ],
)
def test_what_completes_a_line(line: str, expected: Words | Children) -> None:
    assert complete(line) == expected


def test_an_empty_line_is_completed_by_every_command() -> None:
    found = complete("")
    assert isinstance(found, Words)
    assert set(found.candidates) == {*SPECS, "exit"}


def test_children_are_offered_as_paths_in_order_quoted_where_a_line_needs_it() -> None:
    assert Children("/", "a", 2).candidates(("b", "ab", "a c")) == ('"/a c"', "/ab")
    assert Children("/x", "", 3).candidates(("b", "a")) == ("/x/a", "/x/b")


def test_of_a_million_children_only_so_many_are_offered() -> None:
    names = tuple(str(n) for n in range(100_000))
    assert len(Children("/", "", 1).candidates(names)) == CANDIDATES_MAX


def test_a_word_in_open_quotes_is_one_word_however_many_blanks_it_has() -> None:
    assert complete('set "/a b" "c d') == Words((), 0)
    assert complete("ls '/a b c") == Children("/", "a b c", 7)
