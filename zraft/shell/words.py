"""Words of a line, as the user meant them. It knows no commands."""

from __future__ import annotations

from typing import Final

from zraft.shell.errors import UsageError

_QUOTES: Final = "\"'"
_ESCAPABLE: Final = "\"'\\ "


def split(line: str) -> tuple[str, ...]:
    """Return the words of a line.

    A quote opens at the beginning of a word only, so that JSON needs no quoting: `set /a {"b":"c"}`. Between
    double quotes and outside of quotes a backslash stands for itself, unless a quote, a blank or a backslash
    follows, which is then literal; between single quotes nothing is special.

    Raises:
        UsageError: a quote is not closed.
    """
    words: list[str] = []
    position, size = 0, len(line)
    while position < size:
        if line[position].isspace():
            position += 1
            continue
        word, position = _word(line, position)
        words.append(word)
    return tuple(words)


def _word(line: str, position: int) -> tuple[str, int]:
    start, size = position, len(line)
    quote = line[position] if line[position] in _QUOTES else ""
    position += len(quote)
    letters: list[str] = []
    while position < size:
        letter = line[position]
        if letter == quote:
            quote = ""
        elif not quote and letter.isspace():
            break
        elif letter == "\\" and quote != "'" and position + 1 < size and line[position + 1] in _ESCAPABLE:
            position += 1
            letters.append(line[position])
        else:
            letters.append(letter)
        position += 1
    if quote:
        raise UsageError(
            f"the {quote} at column {start + 1} is not closed; expected another {quote}, or \\{quote} for the "
            "character itself"
        )
    return "".join(letters), position


def quoted(word: str) -> str:
    """Return `word` as `split` would give it back."""
    if word and word[0] not in _QUOTES and not any(letter.isspace() or letter == "\\" for letter in word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
