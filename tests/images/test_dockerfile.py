"""The image: what the Dockerfile and compose.yaml promise, and its steps carried out in a clean directory.

There is no engine here, so the build is done by hand: the RUN and COPY steps as the Dockerfile has them, below a fresh
root, by another user than root where this process may become one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.bench.dockerfile import REPOSITORY, Stage, exec_form, ignored, read_dockerfile
from zraft.address import Address
from zraft.knobs import load_config
from zraft.status import UnreachableError, ask
from zraft_bench.containers import USER
from zraft_bench.main import main
from zraft_bench.processes import HOST, free_ports


def stages() -> tuple[Stage, Stage]:
    build, final = read_dockerfile()
    return build, final


def test_the_service_is_the_command_and_nobody_is_root() -> None:
    _, final = stages()
    assert exec_form(final.last("ENTRYPOINT")) == ["/opt/zraft/bin/zraft"]
    assert exec_form(final.last("CMD")) == ["serve"]
    assert final.last("USER") == f"{USER}:{USER}"
    assert final.last("STOPSIGNAL") == "SIGTERM"
    assert "2181/tcp 2181/udp" in final.last("EXPOSE")


def test_the_final_image_has_only_what_was_installed() -> None:
    """Small: no source, no compiler, no cache of pip."""
    build, final = stages()
    assert [step.text for step in final.steps if step.name == "COPY"] == [
        "--from=build /opt/zraft /opt/zraft"
    ]
    assert build.image == final.image == "python:3.11-slim"
    installs = [step.text for step in build.steps if "pip install" in step.text]
    assert installs
    assert all("--no-cache-dir" in text for text in installs)


def test_everything_that_is_copied_is_there_and_nothing_else_reaches_the_engine() -> None:
    build, _ = stages()
    for step in build.steps:
        if step.name == "COPY":
            *sources, _ = step.text.split()
            for source in sources:
                assert (REPOSITORY / source).exists()
                assert not ignored(source)
    for unwanted in (
        "tests",
        ".git",
        ".venv",
        "zraft-data",
        "zraft/__pycache__/x.pyc",
        "cluster.key",
        "docs",
    ):
        assert ignored(unwanted), unwanted
    assert not ignored("zraft/server/node.py")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (1, "0.0.0.0:2181", "/data/zraft", 1)),
        (
            {
                "ZRAFT_ID": "2",
                "ZRAFT_ADDRESS": "0.0.0.0:2181",
                "ZRAFT_CLUSTER": "1=zraft1:2181,2=zraft2:2181,3=zraft3:2181",
                "ZRAFT_KEY": "/keys/cluster.key",
            },
            (2, "0.0.0.0:2181", "/data/zraft", 3),
        ),
        (
            {
                "ZOO_MY_ID": "3",
                "ZOO_SERVERS": "server.1=a:2888:3888;2181 server.2=b:2888:3888;2181 server.3=c:2888:3888;2181",
                "ZRAFT_KEY": "/keys/cluster.key",
            },
            (3, "0.0.0.0:2181", "/data/zraft", 3),
        ),
        ({"ZOO_DATA_DIR": "/elsewhere"}, (1, "0.0.0.0:2181", "/elsewhere/zraft", 1)),
    ],
)
def test_both_kinds_of_environment_configure_it(
    given: dict[str, str], expected: tuple[int, str, str, int]
) -> None:
    config = load_config(flags={}, environ=stages()[1].environment() | given)
    assert (config.id, str(config.address), str(config.data), len(config.cluster)) == expected


def test_compose_has_three_servers_an_admin_page_and_a_bench_profile() -> None:
    """Read as text: a parser of YAML is no dependency of the project."""
    text = (REPOSITORY / "compose.yaml").read_text()
    assert re.findall(r'ZRAFT_ID: "(\d)"', text) == ["1", "2", "3"]
    shared = dict(re.findall(r"^  (ZRAFT_\w+): (\S+)$", text, re.MULTILINE))
    for number in ("1", "2", "3"):
        config = load_config(flags={}, environ=stages()[1].environment() | shared | {"ZRAFT_ID": number})
        assert len(config.cluster) == 3
        assert str(config.admin) == "0.0.0.0:8080"
    assert re.findall(r'"127\.0\.0\.1:(\d+):2181", "127\.0\.0\.1:(\d+):8080"', text) == [
        ("2181", "8081"),
        ("2182", "8082"),
        ("2183", "8083"),
    ]
    assert "profiles: [bench]" in text
    command = re.search(r"command: (\[\"local\".*\])", text)
    assert command is not None
    words = exec_form(command[1])
    answer = CliRunner().invoke(main, [*words, "--help"])
    assert answer.exit_code == 0


# -- carried out

UNPRIVILEGED = 61_234
"""Without an entry in any list of users, as in a container."""


def somebody_else() -> dict[str, object]:
    """For subprocess: another user, if this process may become one."""
    if os.getuid() != 0:
        return {}
    return {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}


def base_python() -> tuple[str, dict[str, object]]:
    """An interpreter that can make virtual environments, and whom it can run as: root's own may be root's alone."""
    own = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    found = [
        path
        for name in ("python3.13", "python3.12", "python3.11")
        if (path := shutil.which(name, path="/usr/bin"))
    ]
    for user in (somebody_else(), {}):
        for python in (own, *found):
            try:
                done = subprocess.run(
                    [python, "-c", "import ensurepip, venv"],
                    cwd="/",
                    capture_output=True,
                    check=False,
                    **user,  # type: ignore[call-overload]
                )
            except OSError:
                continue
            if done.returncode == 0:
                return python, user
    raise AssertionError("no Python here has the modules venv and ensurepip (apt-get install python3-venv)")


def carry_out(stage: Stage, root: Path, user: dict[str, object]) -> None:
    """The RUN and COPY steps of a stage, with absolute paths of the image meant below `root`; `python` is in /python."""
    values = {}
    place = root

    def inside(text: str) -> str:
        # Paths of the image begin a word; those that the copied commands print do not matter.
        return re.sub(r"(^|[\s=\"'])/(?=\w)", lambda match: f"{match[1]}{root}/", text)

    for step in stage.steps:
        if step.name == "ARG":
            name, _, default = step.text.partition("=")
            values[name] = default.strip('"')
        elif step.name == "WORKDIR":
            place = root / step.text.lstrip("/")
            place.mkdir(parents=True, exist_ok=True)
        elif step.name == "COPY":
            *sources, target = step.text.split()
            for source in sources:
                copied = place / target / Path(source).name if target == "./" else place / target
                if (REPOSITORY / source).is_dir():
                    shutil.copytree(
                        REPOSITORY / source,
                        copied,
                        ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
                    )
                else:
                    shutil.copy(REPOSITORY / source, copied)
        elif step.name == "RUN":
            if user:
                for path in (root, *root.rglob("*")):
                    os.chown(path, UNPRIVILEGED, UNPRIVILEGED, follow_symlinks=False)
            # What only root of a container may do, and nobody needs here: all is the user's already.
            command = re.sub(r"chown \S+( /\w+)+ && ", "", step.text)
            command = inside(command)
            environment = {"PATH": f"{root}/python:/usr/bin:/bin", "HOME": str(root)}
            environment |= values  # arguments are variables of the shell
            environment |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                cwd=place,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                **user,  # type: ignore[call-overload]
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_steps_work_in_a_clean_root_and_the_service_is_healthy() -> None:
    """What is installed by them starts by ENTRYPOINT and CMD with the image's environment, and its health check passes."""
    with tempfile.TemporaryDirectory(prefix="zraft-image-") as name:
        root = Path(name) / "build"
        root.mkdir()
        os.chmod(name, 0o755)
        build, final = stages()
        python, user = base_python()
        (root / "python").mkdir()
        (root / "python" / "python").symlink_to(python)
        carry_out(build, root, user)
        # The environment is not copied: it knows its own place, which in the image is the same in both stages.
        carry_out(
            Stage(final.image, "", tuple(step for step in final.steps if step.name == "RUN")), root, user
        )
        port = free_ports(1)[0]
        environment = {
            "PATH": "/usr/bin:/bin",
            **{k: v.replace("/data", f"{root}/data") for k, v in final.environment().items() if k != "PATH"},
            "ZRAFT_ID": "1",
            "ZRAFT_ADDRESS": f"{HOST}:{port}",
            "ZRAFT_CLUSTER": f"1={HOST}:{port}",
            "HEALTH_ADDRESS": f"{HOST}:{port}",
        }
        command = [str(root) + exec_form(final.last("ENTRYPOINT"))[0], *exec_form(final.last("CMD"))]
        health = exec_form(final.last("HEALTHCHECK").partition("CMD ")[2])
        health[0] = str(root) + health[0]
        before = subprocess.run(
            health,
            env=environment,
            cwd=root / "data",
            capture_output=True,
            check=False,
            **user,  # type: ignore[call-overload]
        )
        assert before.returncode != 0, "healthy before it runs"
        log = (Path(name) / "log").open("wb")
        server = subprocess.Popen(
            command,
            env=environment,
            cwd=root / "data",
            stdout=log,
            stderr=log,
            **user,  # type: ignore[call-overload]
        )
        try:
            until = time.monotonic() + 60
            while True:
                try:
                    if ask(Address(HOST, port), "srvr", 2.0).find("Mode: ") >= 0:
                        break
                except UnreachableError:
                    pass
                assert server.poll() is None, (Path(name) / "log").read_text()
                assert time.monotonic() < until
                time.sleep(0.1)
            after = subprocess.run(
                health,
                env=environment,
                cwd=root / "data",
                capture_output=True,
                check=False,
                **user,  # type: ignore[call-overload]
            )
            assert after.returncode == 0, after.stderr
            bench = [str(root / "opt/zraft/bin/zraft-bench"), "--help"]
            assert subprocess.run(bench, env=environment, capture_output=True, check=False).returncode == 0
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
            log.close()
