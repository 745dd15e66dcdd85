"""The grammar of a command's line: options, arguments, and errors that say what was expected."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

from zraft.shell.errors import UsageError

_NEGATIVE_NUMBER: Final = re.compile(r"-\d+")
INT32_MAX: Final = 2**31 - 1


@frozen
class Option:
    """`-name`, and the name of the value after it; "" for an option without one."""

    name: str
    help: str
    value: str = ""


@frozen
class Argument:
    """One word without a dash."""

    name: str
    required: bool = True
    is_path: bool = False
    choices: tuple[str, ...] = ()


@frozen(kw_only=True)
class Spec:
    """One command, for the parser, for `help` and for completion."""

    name: str
    summary: str
    example: str
    options: tuple[Option, ...] = ()
    arguments: tuple[Argument, ...] = ()
    usage_options: str | None = None
    """The options in the usage line, where `[-a] [-b value]` does not say it."""

    @property
    def usage(self) -> str:
        """The command's usage, as `help` shows it."""
        if self.usage_options is None:
            options = [
                f"[-{option.name}{f' {option.value}' * bool(option.value)}]" for option in self.options
            ]
        else:
            options = [self.usage_options]
        arguments = [
            argument.name if argument.required else f"[{argument.name}]" for argument in self.arguments
        ]
        return " ".join([self.name, *options, *arguments])

    def option(self, name: str) -> Option | None:
        """Return the option of this name, or None."""
        return next((option for option in self.options if option.name == name), None)


@frozen
class Invocation:
    """A parsed line. `options` maps an option to its value, or to "" if it takes none."""

    spec: Spec
    options: Mapping[str, str]
    arguments: tuple[str, ...]

    def has(self, name: str) -> bool:
        """Return whether an option was given."""
        assert self.spec.option(name) is not None, f"{self.spec.name} has no option -{name}"
        return name in self.options

    def argument(self, index: int) -> str | None:
        """Return an argument by its number, or None if it was not given."""
        return self.arguments[index] if index < len(self.arguments) else None

    @property
    def path(self) -> str:
        """The argument that is a path."""
        index = next(n for n, argument in enumerate(self.spec.arguments) if argument.is_path)
        return self.arguments[index]

    def number(self, name: str, *, lowest: int, highest: int = INT32_MAX) -> int | None:
        """Return the value of an option that counts, None if it was not given.

        Raises:
            UsageError: it is no whole number in these bounds.
        """
        text = self.options.get(name)
        if text is None:
            return None
        return checked_number(self.spec, name, text, lowest=lowest, highest=highest)


def checked_number(spec: Spec, name: str, text: str, *, lowest: int, highest: int) -> int:
    """Return the number in `text`.

    Raises:
        UsageError: it is no whole number in these bounds.
    """
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) and lowest <= int(text) <= highest:
        return int(text)
    raise UsageError(
        f"{spec.name} -{name}: found {text!r}, expected a whole number from {lowest} to {highest}"
    )


def parse(spec: Spec, words: Sequence[str]) -> Invocation:
    """Parse a line. Options may stand before and behind arguments, `-sw` is `-s -w`, and `--` ends the options.

    Raises:
        UsageError: an option is unknown, given twice or lacks its value; too few or too many arguments.
    """
    options: dict[str, str] = {}
    arguments: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            arguments += rest
        elif len(word) > 1 and word.startswith("-") and not _NEGATIVE_NUMBER.fullmatch(word):
            for option, attached in _options(spec, word):
                if option.name in options:
                    raise _misuse(spec, f"-{option.name} is given twice")
                value = attached
                if option.value and value is None:
                    value = next(rest, None)
                    if value is None:
                        raise _misuse(spec, f"-{option.name} lacks its value, {option.value}")
                options[option.name] = value or ""
        else:
            arguments.append(word)
    required = [argument for argument in spec.arguments if argument.required]
    if len(arguments) < len(required):
        missing = required[len(arguments)].name
        raise _misuse(spec, f"{missing} is missing")
    if len(arguments) > len(spec.arguments):
        found = arguments[len(spec.arguments)]
        raise _misuse(spec, f"found {found!r} behind the last argument; words with blanks go in quotes")
    for argument, given in zip(spec.arguments, arguments, strict=False):
        if argument.choices and given not in argument.choices:
            raise _misuse(
                spec, f"{argument.name}: found {given!r}, expected one of {', '.join(argument.choices)}"
            )
    return Invocation(spec, options, tuple(arguments))


def _options(spec: Spec, word: str) -> list[tuple[Option, str | None]]:
    """Yield the options in one word: `-file`, `-s`, `-sw`, or `-v7` with its value attached."""
    whole = spec.option(word[1:])
    if whole is not None:
        return [(whole, None)]
    found: list[tuple[Option, str | None]] = []
    for index, letter in enumerate(word[1:], 1):
        option = spec.option(letter)
        if option is None:
            known = ", ".join(f"-{known.name}" for known in spec.options) or "none"
            raise _misuse(
                spec,
                f"unrecognized option: {word}; expected one of {known}, or -- before a word that begins with a dash",
            )
        if option.value:
            found.append((option, word[index + 1 :] or None))
            return found
        found.append((option, None))
    return found


def _misuse(spec: Spec, what: str) -> UsageError:
    return UsageError(f"{spec.name}: {what}\nusage: {spec.usage}")
