"""Reads a Dockerfile as far as ours goes, so that tests look at the file itself and cannot drift from it.

python -m tests.images.dockerfile DIRECTORY     copies exactly what the image is built from into a new directory
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path, PurePosixPath
from typing import Final

from attrs import frozen

REPOSITORY: Final = Path(__file__).parents[2]
KNOWN: Final = frozenset(
    (
        *("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM"),
        *("HEALTHCHECK", "RUN", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
    )
)


@frozen
class Instruction:
    name: str
    text: str


@frozen
class Stage:
    """`name` is what `AS` says, or empty."""

    image: str
    name: str
    steps: tuple[Instruction, ...]

    def last(self, name: str) -> str:
        """The text of the last instruction of that name, which is the one in force."""
        return [step.text for step in self.steps if step.name == name][-1]

    def environment(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for step in self.steps:
            if step.name == "ENV":
                found |= dict(word.partition("=")[::2] for word in shlex.split(step.text))
        return found


def read_dockerfile(path: Path = REPOSITORY / "Dockerfile") -> list[Stage]:
    """Its stages. An instruction that this does not know is an error: it would go unlooked at."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    text = re.sub(r"\\\n\s*", " ", text)
    stages: list[Stage] = []
    steps: list[Instruction] = []
    image = name = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        assert word in KNOWN, f"the test does not know what {word} does"
        if word == "FROM":
            if image:
                stages.append(Stage(image, name, tuple(steps)))
            image, _, name = rest.partition(" AS ")
            steps = []
        else:
            steps.append(Instruction(word, rest.strip()))
    return [*stages, Stage(image, name, tuple(steps))]


def exec_form(text: str) -> list[str]:
    """The words of an instruction in JSON form; the shell form has no place in ours, signals would not arrive."""
    words = json.loads(text)
    assert all(isinstance(word, str) for word in words)
    return words  # type: ignore[no-any-return]


def ignored(path: str, rules: Path = REPOSITORY / ".dockerignore") -> bool:
    """Would the engine not even see this file? The last rule that matches counts, as its documentation says."""
    verdict = False
    for rule in filter(None, map(str.strip, rules.read_text().splitlines())):
        if rule.startswith("#"):
            continue
        negated, pattern = rule.startswith("!"), rule.lstrip("!")
        expression = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*") + "(/.*)?"
        if re.fullmatch(expression, path):
            verdict = not negated
    return verdict


def copied(stage: Stage) -> dict[PurePosixPath, Path]:
    """The files of the checkout that a stage copies: each by its path below the stage's working directory.

    What `.dockerignore` hides from the engine is not among them. A source that is not there, or is
    hidden, is an error, as it is for the engine.
    """
    found: dict[PurePosixPath, Path] = {}
    for step in stage.steps:
        if step.name != "COPY" or step.text.startswith("--from="):
            continue
        *sources, target = step.text.split()
        for name in sources:
            source = REPOSITORY / name
            assert source.exists(), f"COPY {step.text}: {name} is not there"
            assert not ignored(name), f"COPY {step.text}: .dockerignore hides {name}"
            if source.is_file():
                place = PurePosixPath(target, name) if target.endswith("/") else PurePosixPath(target)
                found[place] = source
                continue
            for path in source.rglob("*"):
                if path.is_file() and not ignored(path.relative_to(REPOSITORY).as_posix()):
                    found[PurePosixPath(target, path.relative_to(source))] = path
    return found


def copy_sources(directory: Path) -> None:
    """Copy into `directory`, which must be new, what the stage that installs the packages copies from the checkout."""
    directory.mkdir(parents=True)
    for place, path in copied(read_dockerfile()[0]).items():
        (directory / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, directory / place)


if __name__ == "__main__":
    copy_sources(Path(sys.argv[1]))
