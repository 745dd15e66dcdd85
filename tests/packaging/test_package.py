"""What is shipped: every package, its types, and modules that can be imported one at a time."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

import attrs
import pytest

import zraft
import zraft_core
from tests.packaging.distributions import DISTRIBUTIONS, data_files, package_dirs, packages_of, setup_cfg
from tests.packaging.modules import REPOSITORY, ROOTS, folder_of, imported, sources


def test_each_package_with_python_in_it_is_in_one_distribution() -> None:
    listed = [name for distribution in DISTRIBUTIONS for name in packages_of(distribution)]
    folders = {
        ".".join(path.parent.relative_to(root.parent).parts)
        for root in ROOTS.values()
        for path in root.rglob("*.py")
    }
    assert sorted(listed) == sorted(folders)
    assert {name.partition(".")[0] for name in packages_of("zraft-client")} == {"zraft_client", "zraft_core"}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_packages_are_looked_for_where_they_are(distribution: str) -> None:
    folder = REPOSITORY / DISTRIBUTIONS[distribution]
    mapped = package_dirs(distribution)
    assert mapped.pop("") == "."
    tops = {name.partition(".")[0] for name in packages_of(distribution)}
    outside = {name: ROOTS[name] for name in tops if ROOTS[name].parent != folder}
    assert {name: folder / path for name, path in mapped.items()} == outside


def test_servers_need_the_client_of_their_own_version() -> None:
    assert zraft.__version__ == zraft_core.__version__
    assert (
        f"zraft-client=={zraft_core.__version__}" in setup_cfg("zraft")["options"]["install_requires"].split()
    )


def test_the_client_has_few_dependencies() -> None:
    assert set(setup_cfg("zraft-client")["options"]["install_requires"].split()) <= {
        *("attrs>=23.2", "crc32c>=2.4", "msgpack>=1.0.7", "zstandard>=0.22")
    }


def test_the_client_imports_little() -> None:
    """A short program pays for it at every start; `.ci/release` shows how long that takes."""
    asking = "import sys, zraft_client; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    answer = subprocess.run(
        # without what an editable installation imports at every start
        [sys.executable, "-S", "-c", asking],
        env={
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "client"), str(Path(attrs.__file__).parents[1])])
        },
        capture_output=True,
        text=True,
        check=True,
    )
    found = set(answer.stdout.split())
    beside = {"__main__", *(name for name in found if "cython" in name)}
    assert found - sys.stdlib_module_names - beside == {
        *("attr", "attrs", "msgpack", "zraft_client", "zraft_core")
    }
    assert not found & {"multiprocessing", "sqlite3", "unittest", "xml"}


def test_every_package_has_an_init_that_says_what_it_owns() -> None:
    for distribution in DISTRIBUTIONS:
        for name in packages_of(distribution):
            init = folder_of(name) / "__init__.py"
            assert init.read_text(encoding="utf-8").startswith('"""'), init


def test_type_information_and_the_licence_are_shipped() -> None:
    for distribution, folder in DISTRIBUTIONS.items():
        for name in {name.partition(".")[0] for name in packages_of(distribution)}:
            assert (ROOTS[name] / "py.typed").exists()
            assert "py.typed" in setup_cfg(distribution)["options.package_data"][name].split()
        assert (REPOSITORY / folder / "LICENSE").read_bytes() == (REPOSITORY / "LICENSE").read_bytes()


def test_every_file_that_is_no_module_is_shipped() -> None:
    for distribution in DISTRIBUTIONS:
        for name in packages_of(distribution):
            files = {
                path.name for path in folder_of(name).iterdir() if path.is_file() and path.suffix != ".py"
            }
            assert files == set(data_files(distribution, name)), name


def test_names_of_shipped_files_stand_on_lines_of_their_own() -> None:
    """Setuptools takes names with blanks between them for one name, which no file has, and ships nothing."""
    for distribution in DISTRIBUTIONS:
        for name, value in setup_cfg(distribution)["options.package_data"].items():
            assert not [line for line in value.splitlines() if " " in line.strip()], name


@pytest.mark.parametrize(
    ("command", "module"),
    [("zraft", "zraft.cli.main"), ("zraft-bench", "zraft_bench.main"), ("onyxlog", "onyxlog.main")],
)
def test_the_command_exists_where_the_entry_point_says(command: str, module: str) -> None:
    lines = setup_cfg("zraft")["options.entry_points"]["console_scripts"].strip().split("\n")
    assert f"{command} = {module}:main" in lines
    assert len(lines) == 3
    assert callable(importlib.import_module(module).main)


def test_every_module_opens_with_what_it_owns() -> None:
    without = [
        name for name, path in sources().items() if not path.read_text(encoding="utf-8").startswith('"""')
    ]
    assert not without


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
    assert not [name for name in sources() if name.rpartition(".")[2] in drawers]


IMPORT_EACH_ALONE = """
import os, sys, traceback

# What is not ours is imported once: nobody's module depends on whether another one has imported it.
import aiohttp.web, asyncio, attrs, click, crc32c, cryptography.x509, kazoo.client, msgpack, prometheus_client
import prompt_toolkit, rich.progress, rich.table, structlog, uvloop, zstandard

failed = []
for name in sys.argv[1:]:
    # A forked child of an interpreter that has imported nothing of ours is as good as a fresh one, and quicker.
    child = os.fork()
    if child == 0:
        try:
            __import__(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        failed.append(name)
sys.exit("cannot be imported alone: " + ", ".join(failed) if failed else 0)
"""


def import_path() -> list[Path]:
    return sorted({root.parent for root in ROOTS.values()})


def import_each_alone(*names: str) -> subprocess.CompletedProcess[str]:
    # -W error: a warning at import is a warning in every program that uses us
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_EACH_ALONE, *names],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(folder) for folder in import_path())},
        capture_output=True,
        text=True,
        check=False,
    )


OF_AN_EXTRA: Final = ("pyarrow", "pyspark")
"""What is installed with the extra `audits` only: modules that cannot do without are imported where it is."""


def needs_any(module: ast.Module, packages: Collection[str]) -> bool:
    """Whether it imports one of them as soon as it is imported itself."""
    imports = ast.Module([one for one in module.body if isinstance(one, ast.Import | ast.ImportFrom)], [])
    return any(name.partition(".")[0] in packages for name in imported(imports))


def test_few_modules_need_an_extra_to_be_imported() -> None:
    found = {name for name, path in sources().items() if needs_any(ast.parse(path.read_bytes()), OF_AN_EXTRA)}
    assert found == {
        "onyxlog.audits.jobs.frames",
        "onyxlog.audits.jobs.keyed",
        "onyxlog.audits.source.data_source",
    }


@pytest.mark.timeout(600)  # a process for each of some nine hundred modules: minutes on a busy machine
@pytest.mark.parametrize("package", ROOTS)
def test_every_module_can_be_imported_alone_and_without_a_warning(package: str) -> None:
    missing = [name for name in OF_AN_EXTRA if importlib.util.find_spec(name) is None]
    names = [
        name
        for name, path in sources().items()
        if name.partition(".")[0] == package
        and name != "zraft.__main__"
        and not needs_any(ast.parse(path.read_bytes()), missing)
    ]
    assert names
    answer = import_each_alone(*names)
    assert answer.returncode == 0, answer.stderr


def test_a_module_that_cannot_be_imported_is_noticed() -> None:
    answer = import_each_alone("zraft_core.ids", "zraft.no_such_module")
    assert answer.returncode == 1
    assert answer.stderr.endswith("cannot be imported alone: zraft.no_such_module\n")


def test_byte_code_is_kept_for_every_process_that_a_test_starts() -> None:
    """A caller's PYTHONDONTWRITEBYTECODE would double the start of every server, so tests do not inherit it."""
    answer = subprocess.run(
        [sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (answer.stdout, sys.dont_write_bytecode) == ("False\n", False)
