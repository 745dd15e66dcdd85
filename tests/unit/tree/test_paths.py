"""ZooKeeper's path rules."""

from __future__ import annotations

import pytest

from zraft.tree.paths import is_valid_name, is_valid_path, parent_of, split


@pytest.mark.parametrize(
    "path", ["/", "/a", "/a/b", "/ ", "/.a", "/a.", "/...", "/a/..b", "/é", "/\u00a0", "/\uf900", "/\uffef"]
)
def test_path_that_zookeeper_accepts_is_valid(path: str) -> None:
    assert is_valid_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "a/b",
        "//",
        "/a/",
        "/a//b",
        "//a",
        "/.",
        "/..",
        "/a/./b",
        "/a/../b",
        "/a/.",
        "/a/..",
        "/\0",
        "/a\0b",
    ],
)
def test_path_with_relative_empty_or_null_parts_is_invalid(path: str) -> None:
    assert not is_valid_path(path)


@pytest.mark.parametrize(
    "unit",
    [0x00, 0x01, 0x1F, 0x7F, 0x80, 0x9F, 0xD800, 0xDFFF, 0xE000, 0xF8FF, 0xFFF0, 0xFFFF, 0x10000, 0x10FFFF],
)
def test_edges_of_the_forbidden_ranges_are_invalid(unit: int) -> None:
    assert not is_valid_path(f"/a{chr(unit)}")
    assert not is_valid_name(chr(unit))


@pytest.mark.parametrize("unit", [0x20, 0x7E, 0xA0, 0xD7FF, 0xF900, 0xFFEF])
def test_neighbours_of_the_forbidden_ranges_are_valid(unit: int) -> None:
    assert is_valid_path(f"/a{chr(unit)}")


def test_name_holds_no_slash() -> None:
    assert not is_valid_name("a/b")
    assert not is_valid_name("é/b")


def test_parent_of_top_level_paths_is_the_root() -> None:
    assert (parent_of("/a"), parent_of("/a/b"), parent_of("/")) == ("/", "/a", "/")
    assert split("/a/b/c") == ("/a/b", "c")
    assert split("/c") == ("/", "c")
