"""The code blocks of a Markdown document, with what HTML comments in front of them say about running them.

docs/explanation/testing.md, "Examples of the documents", has the comments. A block in a language of `RUN` is run; any other
only shows a form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

RUN: Final = frozenset({"sh", "python", "console"})
FORMS: Final = frozenset({"", "text", "toml", "crontab", "java", "mermaid"})
"""Layouts, formats, configuration, output, drawings: nothing that a shell or Python would take."""

PROMPT: Final = re.compile(r"^\[zk: [^\]]*\] ?", re.MULTILINE)

_COMMENT: Final = re.compile(r"<!-- (set-up|run|file|output|not run)(?::? ?(.*?))? ?-->", re.DOTALL)
_STAYS: Final = re.compile(r'stays until "([^"]+)"')
_MACHINES: Final = re.compile(r"on machines? ([1-9](?: [1-9])*)")
_FAILS: Final = re.compile(r"fails")
_ONCE: Final = re.compile(r"once, .+")


class Way(Enum):
    """What is done with a block."""

    SHELL = "sh"
    PYTHON = "python"
    SESSION = "session of zraft shell"
    FILE = "file"
    OUTPUT = "output of the block before"
    NOT_RUN = "not run"
    FORM = "form"


@frozen
class Block:
    """A code block, or commands in a comment `set-up`, which only the first round runs.

    `detail` is the name of the file, or the reason why the block is not run. `machines` are those whose commands it has;
    `stays_until` is what a command that does not end prints when it is ready. What runs `once` is left out in later rounds.
    """

    document: str
    line: int
    way: Way
    text: str
    language: str = ""
    detail: str = ""
    machines: tuple[int, ...] = ()
    stays_until: str | None = None
    fails: bool = False
    once: bool = False

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


class DocumentError(Exception):
    """A comment or a block that nobody understands."""


def blocks_of(document: Path) -> tuple[Block, ...]:
    """In the order of the document.

    Raises:
        DocumentError: names the line.
    """
    return tuple(_blocks(document.relative_to(ROOT).as_posix(), document.read_text(encoding="utf-8")))


def _blocks(document: str, text: str) -> Iterator[Block]:
    lines = text.split("\n")
    comment: re.Match[str] | None = None
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        indent = len(line) - len(line.lstrip())
        line = line[indent:]
        if line.startswith("<!-- "):
            begun = number
            while "-->" not in line:
                line += "\n" + lines[number][indent:]
                number += 1
            comment = _COMMENT.fullmatch(line)
            if comment is None:
                raise DocumentError(f"{document}:{begun}: no known comment: {line}")
            if comment[1] == "set-up":
                head, _, commands = comment[2].partition("\n")
                yield _with_options(Block(document, begun, Way.SHELL, commands, "sh", once=True), head)
                comment = None
        elif line.startswith("```"):
            begun = number
            while lines[number].strip() != "```":
                number += 1
            content = "".join(f"{one[indent:]}\n" for one in lines[begun:number])
            yield _block(document, begun, line.removeprefix("```"), content, comment)
            comment = None
            number += 1
        elif line and comment is not None:
            raise DocumentError(f"{document}:{number}: expected a code block right after {comment[0]}")


def _block(document: str, line: int, language: str, text: str, comment: re.Match[str] | None) -> Block:
    if language not in RUN | FORMS:
        raise DocumentError(f"{document}:{line}: no known language: {language!r}")
    said, detail = (comment[1], comment[2] or "") if comment is not None else ("", "")
    if said == "not run":
        if not detail:
            raise DocumentError(f"{document}:{line}: not run, and why?")
        return Block(document, line, Way.NOT_RUN, text, language, detail)
    if said == "file":
        return Block(document, line, Way.FILE, text, language, detail)
    if said == "output":
        return Block(document, line, Way.OUTPUT, text, language)
    if language == "python":
        return _with_options(Block(document, line, Way.PYTHON, text, language), detail)
    if language == "console":
        return _with_options(Block(document, line, Way.SESSION, text, language), detail)
    if language == "sh":
        return _with_options(Block(document, line, Way.SHELL, text, language), detail)
    if said:
        raise DocumentError(f"{document}:{line}: a block in {language or 'no language'} cannot be run")
    return Block(document, line, Way.FORM, text, language)


def _with_options(block: Block, options: str) -> Block:
    stays, machines, fails = _STAYS.search(options), _MACHINES.search(options), _FAILS.search(options)
    once = _ONCE.search(options)
    rest = options
    for found in (once, stays, machines, fails):
        if found is not None:
            rest = rest.replace(found[0], "")
    if rest.strip(" ,"):
        raise DocumentError(f"{block}: no known option: {rest.strip(' ,')!r}")
    return evolve(
        block,
        machines=tuple(map(int, machines[1].split())) if machines is not None else (),
        stays_until=stays[1] if stays is not None else None,
        fails=fails is not None,
        once=block.once or once is not None,
    )
