"""Java's properties format: what a zoo.cfg is written in."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft.config.properties import parse_properties
from zraft_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("  a \t=  1  \n", {"a": "1"}),
        ("a:1\nb 2\nc\t=\t3", {"a": "1", "b": "2", "c": "3"}),
        ("a", {"a": ""}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("server.1=zk1:2888:3888;2181", {"server.1": "zk1:2888:3888;2181"}),
        ("# a=1\n! b=2\n\n   # c=3\r\nd=4\r", {"d": "4"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=one \\\n    two", {"a": "one two"}),
        ("a=one\\\n", {"a": "one"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a\\=b\\ c=1", {"a=b c": "1"}),
        ("a=\\u00e4\\tx", {"a": "ä\tx"}),
        ("a=C:\\\\data", {"a": "C:\\data"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("a=x\x0cy\x85z", {"a": "x\x0cy\x85z"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text, "zoo.cfg") == expected


def test_a_unicode_escape_without_its_digits_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"zoo\.cfg, line 2: found \\u12, expected four hexadecimal digits"):
        parse_properties("a=1\ndataDir=C:\\u12", "zoo.cfg")


@given(st.text(max_size=60) | st.text(alphabet="a=:\\ \n#!u0", max_size=30))
def test_no_text_raises_anything_but_a_config_error(text: str) -> None:
    with suppress(ConfigError):
        parse_properties(text, "zoo.cfg")
