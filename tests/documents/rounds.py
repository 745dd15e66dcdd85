"""A reader of a document, who types what its blocks say, from top to bottom, and then all of it again."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.documents.blocks import PROMPT, ROOT, Block, Way
from tests.documents.machines import Machines

ROUNDS: Final = 2
DEADLINE_S: Final = 300.0
"""For a block to end, or for one that stays to be ready."""
POLL_S: Final = 0.05
SERVER: Final = ("127.0.0.1", 2181)
"""Where programs of the documents find a server."""
SESSIONS_END_S: Final = 2.0
"""How long a server may take to learn of a closed session. An abandoned one expires later than that."""

ANYTHING: Final = "…"
VARYING: Final = (
    (re.compile(r"0x[0-9a-f]+"), "0x…"),
    (re.compile(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \w+ \d{4}"), "TIME"),
)
"""What another run shows otherwise: zxids and session ids, and times. Both sides of a comparison are changed alike."""

_EXPORT: Final = '\n{{ unset N; export -p; printf "cd %q\\n" "$PWD"; }} >{state}\n'


class FailedError(Exception):
    """A block did not do what its document says."""


class Reader:
    """Reads in a directory that holds a copy of `examples/`, as a checkout does.

    Exported variables and `cd` last from block to block, as in a terminal.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._machines = Machines()
        self._numbers = itertools.count(1)
        self._staying: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        (directory / "home").mkdir(parents=True)
        self._work = directory / "work"
        self._work.mkdir()
        shutil.copytree(
            ROOT / "examples", self._work / "examples", ignore=shutil.ignore_patterns("__pycache__")
        )
        self._state = directory / "state"

    def read(self, blocks: Sequence[Block], rounds: int) -> None:
        """Raises FailedError: a block failed; the message has its place and its output."""
        for number in range(1, rounds + 1):
            printed = ""
            self._state.write_text(f"cd '{self._work}'\n", encoding="utf-8")
            for block in blocks:
                if block.once and number > 1:
                    continue
                begun = time.monotonic()
                try:
                    printed = self._read(block, printed)
                except FailedError as error:
                    raise FailedError(f"{block}, round {number}: {error}\n{self._logs()}") from error
                if block.way is Way.NOT_RUN:
                    print(f"{block} not run: {block.detail}", flush=True)
                elif block.way is not Way.FORM:
                    print(f"{block} round {number}: {time.monotonic() - begun:.1f} s", flush=True)

    def end(self) -> None:
        """Kill what blocks have left running."""
        for process in self._staying.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _read(self, block: Block, printed: str) -> str:
        """Do what one block says; `printed` is the output of the one before, the result that of this one."""
        match block.way:
            case Way.FORM | Way.NOT_RUN:
                return printed
            case Way.OUTPUT:
                compare(block.text, printed)
                return printed
            case Way.FILE:
                self._file(block)
                return ""
            case Way.SESSION:
                words = PROMPT.split(block.text)[1:]
                typed = "".join(part.partition("\n")[0] + "\n" for part in words)
                compare(
                    "".join(part.partition("\n")[2] for part in words),
                    # 1 if the last command failed, which is for the document to say.
                    self._shell(block, "zraft shell || [ $? -eq 1 ]", typed),
                )
                return ""
            case Way.PYTHON:
                program = self._directory / f"{Path(block.document).stem}-{block.line}.py"
                program.write_text(block.text, encoding="utf-8")
                before = sessions()
                output = self._shell(block, f"python -W error '{program}'")
                compare_sessions(before)
                return output
            case Way.SHELL:
                return self._shell(block, block.text)

    def _file(self, block: Block) -> None:
        if block.detail.startswith("examples/"):
            compare(block.text, (ROOT / block.detail).read_text(encoding="utf-8"))
            return
        path = self._work / block.detail
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def _shell(self, block: Block, commands: str, typed: str = "") -> str:
        outputs = [self._on(machine, block, commands, typed) for machine in block.machines or (1,)]
        if block.stays_until is not None:
            for machine in block.machines or (1,):
                outputs.append(self._wait_ready(block, machine, block.stays_until))
        return "".join(outputs)

    def _on(self, machine: int, block: Block, commands: str, typed: str) -> str:
        staying = self._staying.get((str(block), machine))
        if staying is not None and staying.poll() is None:
            return ""
        number = f"export N={machine}\n" if block.machines else ""
        script = f". '{self._state}'\n{number}{commands}"
        if block.stays_until is None:
            script += _EXPORT.format(state=f"'{self._state}'")
        output = self._output(block, machine)
        # A file and no argument: an example that looks for a process by its command line finds no other one.
        typing = output.with_suffix(".sh")
        typing.write_text(script, encoding="utf-8")
        words = self._machines.on(machine, ["bash", "-e", "-o", "pipefail", str(typing)])
        # A file and no pipe: what a block leaves running in the background keeps a pipe open.
        with output.open("wb") as file, (self._directory / "typed").open("w+b") as keyboard:
            keyboard.write(typed.encode())
            keyboard.seek(0)
            process = subprocess.Popen(
                words, stdin=keyboard, stdout=file, stderr=subprocess.STDOUT, process_group=0
            )
        if block.stays_until is not None:
            self._staying[str(block), machine] = process
            return ""
        try:
            code = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise FailedError(f"not over after {DEADLINE_S:g} s; it printed:\n{_text(output)}") from error
        if (code != 0) is not block.fails:
            expected = "a failure" if block.fails else "0"
            raise FailedError(f"exit code {code}, expected {expected}; it printed:\n{_text(output)}")
        return _text(output)

    def _output(self, block: Block, machine: int) -> Path:
        return self._directory / f"{Path(block.document).stem}-{block.line}-{machine}.out"

    def _wait_ready(self, block: Block, machine: int, sign: str) -> str:
        """Wait for the sign; return what was printed up to the end of its line."""
        output, process = self._output(block, machine), self._staying[str(block), machine]
        deadline = time.monotonic() + DEADLINE_S
        while sign not in (printed := _text(output)) or "\n" not in printed.partition(sign)[2]:
            if process.poll() is not None:
                raise FailedError(f"it ended with code {process.returncode}; it printed:\n{_text(output)}")
            if time.monotonic() > deadline:
                raise FailedError(f"no {sign!r} after {DEADLINE_S:g} s; it printed:\n{_text(output)}")
            time.sleep(POLL_S)
        before, _, after = printed.partition(sign)
        return before + sign + after.partition("\n")[0] + "\n"

    def _logs(self) -> str:
        return "\n".join(
            f"-- {output.name}\n{_text(output)[-2_000:]}"
            for output in sorted(self._directory.glob("*.out"))
            if any(output == self._output_of(key) for key in self._staying)
        )

    def _output_of(self, key: tuple[str, int]) -> Path:
        document, _, line = key[0].rpartition(":")
        return self._directory / f"{Path(document).stem}-{line}-{key[1]}.out"


def compare(shown: str, found: str) -> None:
    """Raise FailedError unless `found` is what a document shows, in which `…` stands for anything."""
    for pattern, instead in VARYING:
        shown, found = pattern.sub(instead, shown), pattern.sub(instead, found)
    wanted = ".*".join(map(re.escape, shown.rstrip().replace("0x…", "0xANY").split(ANYTHING)))
    if not re.fullmatch(wanted, found.rstrip().replace("0x…", "0xANY"), re.DOTALL):
        raise FailedError(f"the document shows:\n{shown}\nbut it printed:\n{found}")


def compare_sessions(before: int | None) -> None:
    """Raise FailedError if more sessions are open than before: what a reader copies should leave none behind."""
    if before is None:
        return
    deadline = time.monotonic() + SESSIONS_END_S
    while (after := sessions()) is not None and after > before:
        if time.monotonic() > deadline:
            raise FailedError(f"it left sessions open: {after} are open, {before} were open before it")
        time.sleep(POLL_S)


def sessions() -> int | None:
    """The number of open sessions in the cluster; None if no server is at `SERVER`."""
    try:
        with (
            socket.create_connection(SERVER, SESSIONS_END_S) as connection,
            connection.makefile("rb") as lines,
        ):
            connection.sendall(b"mntr")
            numbers = dict(line.split(b"\t") for line in lines.read().splitlines() if b"\t" in line)
    except ConnectionRefusedError:
        return None
    return int(numbers[b"zk_global_sessions"])


def _text(output: Path) -> str:
    return output.read_text(encoding="utf-8", errors="replace")
