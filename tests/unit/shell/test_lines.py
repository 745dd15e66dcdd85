"""Lines are cut into words, words into options and arguments; what is wrong is said with what was expected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft.shell.catalogue import ALIASES, SPECS, help_text, spec_of
from zraft.shell.errors import UsageError
from zraft.shell.grammar import parse
from zraft.shell.paths import checked_path
from zraft.shell.words import quoted, split


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", ()),
        ("  ls \t /a  ", ("ls", "/a")),
        ('set /a "b c"', ("set", "/a", "b c")),
        ("set /a 'say \"b\"'", ("set", "/a", 'say "b"')),
        ('set /a ""', ("set", "/a", "")),
        ('set /a {"b":"c"}', ("set", "/a", '{"b":"c"}')),
        ('set /a it"s', ("set", "/a", 'it"s')),
        (r"set /a C:\dir", ("set", "/a", r"C:\dir")),
        (r"get /a\ b", ("get", "/a b")),
        (r'set /a "a \"b\" \\ \n"', ("set", "/a", r'a "b" \ \n')),
        (r"set /a '\x'", ("set", "/a", r"\x")),
        ('"a"b', ("ab",)),
    ],
)
def test_a_line_is_cut_into_words(line: str, words: tuple[str, ...]) -> None:
    assert split(line) == words


@pytest.mark.parametrize("line", ['set /a "b', "set /a 'b", 'set /a "b\\"'])
def test_an_open_quote_is_an_error_that_says_where(line: str) -> None:
    with pytest.raises(UsageError, match="at column 8 is not closed"):
        split(line)


@given(st.lists(st.text()))
def test_quoted_words_come_out_of_a_line_as_they_went_in(words: list[str]) -> None:
    assert split(" ".join(map(quoted, words))) == tuple(words)


@given(st.text())
def test_no_line_however_strange_raises_anything_but_a_usage_error(line: str) -> None:
    try:
        words = split(line)
        parse(spec_of(words[0]) if words else SPECS["ls"], words[1:])
    except UsageError:
        pass


def test_options_stand_anywhere_together_or_apart() -> None:
    for words in (["-s", "-w", "/a"], ["-sw", "/a"], ["/a", "-w", "-s"], ["-w", "/a", "-s"]):
        call = parse(SPECS["get"], words)
        assert (set(call.options), call.path) == ({"s", "w"}, "/a")
    for words in (["-v", "7", "/a"], ["-v7", "/a"], ["/a", "-v", "7"]):
        assert parse(SPECS["delete"], words).options == {"v": "7"}
    assert parse(SPECS["set"], ["-sv7", "/a", "x"]).options == {"s": "", "v": "7"}


def test_a_word_that_looks_like_an_option_is_an_argument_behind_two_dashes_or_if_it_is_a_number() -> None:
    assert parse(SPECS["set"], ["/a", "-5"]).arguments == ("/a", "-5")
    assert parse(SPECS["set"], ["-s", "--", "/a", "-v"]).arguments == ("/a", "-v")
    assert parse(SPECS["set"], ["/a", "-"]).arguments == ("/a", "-")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ls", "ls: path is missing\nusage: ls [-s] [-w] [-R] path"),
        ("ls /a /b", "ls: found '/b' behind the last argument; words with blanks go in quotes\nusage: "),
        ("ls -q /a", "ls: unrecognized option: -q; expected one of -s, -w, -R, or -- before"),
        ("ls -s -s /a", "ls: -s is given twice"),
        ("delete /a -v", "delete: -v lacks its value, version"),
        ("printwatches maybe", "printwatches: on|off: found 'maybe', expected one of on, off"),
        ("whoami -x", "whoami: unrecognized option: -x; expected one of none"),
        ("lss /", "Command not found: lss (did you mean ls? `help` lists all commands)"),
        ("getacl /", "Command not found: getacl (did you mean getAcl? "),
        ("xyzzy", "Command not found: xyzzy (`help` lists all commands)"),
    ],
)
def test_a_mistake_is_named_with_what_was_expected(line: str, message: str) -> None:
    words = split(line)
    with pytest.raises(UsageError) as raised:
        parse(spec_of(words[0]), words[1:])
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("name", SPECS)
def test_help_teaches_each_command_by_an_example_that_is_right(name: str) -> None:
    spec = SPECS[name]
    words = split(spec.example)
    assert words[0] == name
    parse(spec, words[1:])
    text = help_text(name)
    assert spec.usage in text
    assert f"example: {spec.example}" in text
    for option in spec.options:
        assert f"  -{option.name} " in text
        assert f"-{option.name}" in spec.usage


def test_help_lists_every_command_in_one_line_each() -> None:
    listed = [line.split()[0] for line in help_text(None).splitlines()[: len(SPECS)]]
    assert listed == sorted(SPECS, key=str.lower)
    assert all(len(line) <= 120 for line in help_text(None).splitlines())
    assert spec_of("exit") is SPECS["quit"]
    assert all(target in SPECS for target in ALIASES.values())


@pytest.mark.parametrize("path", ["/", "/a", "/a/b c", "/ä", "/…/…", "/a.b", "/\U0001f600"])
def test_paths_that_zookeeper_takes_are_taken(path: str) -> None:
    assert checked_path(path) == path


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a\x00", "/\x7f", "/\ud800", "/\uf000"]
)
def test_paths_that_no_server_takes_are_refused(path: str) -> None:
    with pytest.raises(UsageError):
        checked_path(path)
    if path == "/a/":
        assert checked_path(path, sequential=True) == path
    elif path != "//":
        with pytest.raises(UsageError):
            checked_path(path, sequential=True)
