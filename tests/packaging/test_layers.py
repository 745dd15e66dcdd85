"""The direction of imports, and the purity of what decides. Read from the source, so nothing can hide.

The rooms and their order are the contracts in pyproject.toml, which `lint-imports` checks, too.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from typing import Final

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

from tests.packaging.modules import REPOSITORY, ROOTS, imported, names_used_of, sources

KINDS: Final = {"forbidden": ForbiddenContract, "layers": LayersContract}

PURE: Final = (
    *("onyxlog.tasks.items", "onyxlog.tasks.channels", "onyxlog.tasks.layout", "onyxlog.tasks.reading"),
    *("onyxlog.tasks.pressure", "onyxlog.tasks.processing"),
    *("onyxlog.ids", "onyxlog.scheduling", "onyxlog.replica", "onyxlog.gossip", "onyxlog.audits.tables"),
    *(
        "onyxlog.peer.core",
        "onyxlog.peer.turns",
        "onyxlog.peer.backoff",
        "onyxlog.status",
        "onyxlog.job_status",
    ),
    # what jobs are and decide; what reads files and what runs tasks is not here
    *("onyxlog.jobs.acking", "onyxlog.jobs.aggregates", "onyxlog.jobs.barriers", "onyxlog.jobs.checkpoints"),
    *("onyxlog.jobs.flow_conditions", "onyxlog.jobs.functions", "onyxlog.jobs.grouping"),
    *("onyxlog.jobs.lifecycles", "onyxlog.jobs.plain", "onyxlog.jobs.predicates", "onyxlog.jobs.segments"),
    *(
        "onyxlog.jobs.specification",
        "onyxlog.jobs.state",
        "onyxlog.jobs.task_windows",
        "onyxlog.jobs.transform",
    ),
    *("onyxlog.jobs.triggers", "onyxlog.jobs.validation", "onyxlog.jobs.windows", "onyxlog.jobs.workflow"),
    "zraft.compatibility",
    "zraft.groups",
    "zraft.raft",
    "zraft.topics",
    "zraft.tree",
    "zraft.monitoring",
    *("zraft.server.clients.native", "zraft.server.clients.zookeeper"),
    *("zraft.server.coordination", "zraft.server.engine"),
    "zraft_core",
    *("zraft_core.messagepack", "zraft.config.properties", "zraft.config.zoo_cfg", "zraft.config.zoo_env"),
    *("zraft.operator.requests", "zraft.operator.protocol"),
    *(
        "zraft.cli.log_report",
        "zraft.cli.group_log_report",
        "zraft.offline.founders",
        "zraft.offline.walking",
    ),
    *("zraft.admin.commands", "zraft.admin.metrics", "zraft.server.operators.status", "zraft.admin.summary"),
    *("zraft_client.calls", "zraft_client.errors", "zraft_client.pacing", "zraft_client.protocol"),
    "zraft_client.requests",
    "zraft_client.values",
    *("zraft_client.claims.claiming", "zraft_client.claims.consumption", "zraft_client.claims.core"),
    *("zraft_client.claims.health", "zraft_client.claims.lease", "zraft_client.claims.messages"),
    *("zraft_client.claims.options", "zraft_client.claims.port", "zraft_client.claims.requests"),
    "zraft_client.claims.tracking",
    *("zraft_client.topics.dispatch", "zraft_client.topics.errors", "zraft_client.topics.payloads"),
    *("zraft_client.topics.records", "zraft_client.topics.requests", "zraft_client.topics.values"),
)
IMPURE: Final = frozenset(
    (
        "asyncio",
        "concurrent",
        "datetime",
        "glob",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "sched",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "structlog",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uuid",
        "uvloop",
    )
)
MODULES_MAX: Final = 25
"""Modules of one folder, without its `__init__`: so many names can be read at a glance."""
ONE_PER_KIND: Final = frozenset(("onyxlog.audits.rules", "onyxlog.replica.kinds"))
"""Folders that may have more, as all their modules are alike: one for each rule, and one for each kind of entry."""

DRIVER: Final = "zraft.server.engine.driver"
"""Free of asyncio, so that the simulator runs the code that ships."""


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def impurities(module: str, tree: ast.AST) -> Iterator[str]:
    for name in imported(tree):
        top = name.partition(".")[0]
        if top == "random":
            # The type of the generator that is handed in, but none of the module's own global one.
            if name not in ("random", "random.Random"):
                yield f"{module} imports {name}"
        elif top in IMPURE:
            yield f"{module} imports {name}"
    for attribute in names_used_of(tree, "random"):
        if attribute.attr != "Random":
            yield f"{module} uses random.{attribute.attr} in line {attribute.lineno}"
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "print", "input")
        ):
            yield f"{module} calls {node.func.id}() in line {node.lineno}"


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph(*sorted(ROOTS), cache_dir=None)


def broken(graph: grimp.ImportGraph) -> list[str]:
    """Names of the contracts that these imports break."""
    found = read_configuration(str(REPOSITORY / "pyproject.toml"))
    return [
        options["name"]
        for options in found["contracts_options"]
        if not KINDS[options["type"]](options["name"], found["session_options"], options)
        .check(deepcopy(graph), verbose=False)
        .kept
    ]


def test_rooms_import_only_rooms_below_them(imports: grimp.ImportGraph) -> None:
    assert broken(imports) == []


def test_every_module_of_zraft_has_a_room(imports: grimp.ImportGraph) -> None:
    """A new top-level module must be placed in the order, on purpose."""
    layers = read_configuration(str(REPOSITORY / "pyproject.toml"))["contracts_options"][0]["layers"]
    rooms = [room for layer in layers for room in layer.split(" | ")]
    packages = {"zraft", "zraft.server"}
    homeless = [
        module
        for module in imports.modules
        if module not in packages and not any(within(module, room) for room in rooms)
    ]
    assert not homeless


def test_to_import_zraft_alone_imports_nothing_else(imports: grimp.ImportGraph) -> None:
    """Its version is asked for by what must start quickly."""
    assert not imports.find_modules_directly_imported_by("zraft")


def circle(graph: grimp.ImportGraph) -> list[str]:
    """Modules that import each other in a circle, the first one again at its end; [] if there are none."""
    below = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_modules_import_each_other_in_a_circle(imports: grimp.ImportGraph) -> None:
    """What is imported for the type checker only counts as well."""
    assert circle(imports) == []


@pytest.mark.parametrize(
    ("importer", "name"),
    [
        ("zraft.tree.node", "zraft.tree.machine"),
        ("zraft.topics.registry_items", "zraft.topics.registry"),
        ("zraft.server.clients.connection", "zraft.server.process.node"),
        ("zraft_client.dictionary", "zraft_client.client"),
        ("zraft_core.wire.stat", "zraft_client.client"),
    ],
)
def test_a_planted_circle_is_found(imports: grimp.ImportGraph, importer: str, name: str) -> None:
    planted = deepcopy(imports)
    assert planted.find_shortest_chain(importer=name, imported=importer)
    planted.add_import(importer=importer, imported=name)
    assert {importer, name} <= set(circle(planted))


def test_imports_for_the_type_checker_are_in_the_graph(imports: grimp.ImportGraph) -> None:
    """Else circles of theirs, and imports of rooms above, would not be seen."""
    looked_at = 0
    for module, path in sources().items():
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                names = {name for name in imported(node) if name.rpartition(".")[0] in imports.modules}
                below = imports.find_modules_directly_imported_by(module)
                assert {n for n in names if not below & {n, n.rpartition(".")[0]}} == set()
                looked_at += len(names)
    assert looked_at


def crowded(modules: Iterable[str]) -> set[str]:
    """Folders with too many of these modules."""
    sizes = Counter(name.rpartition(".")[0] for name in modules)
    return {folder for folder, size in sizes.items() if size > MODULES_MAX} - ONE_PER_KIND


def modules_alone() -> set[str]:
    return {name for name, path in sources().items() if path.name != "__init__.py"}


def test_no_folder_has_more_modules_than_can_be_read_at_a_glance() -> None:
    assert crowded(modules_alone()) == set()


def test_a_planted_crowd_is_found() -> None:
    alike = {f"onyxlog.audits.rules.planted_{n}" for n in range(MODULES_MAX)}
    planted = {f"zraft.raft.membership.planted_{n}" for n in range(MODULES_MAX)}
    assert crowded(modules_alone() | alike | planted) == {"zraft.raft.membership"}


@pytest.mark.parametrize(
    ("importer", "name"),
    [
        ("zraft.raft.core", "zraft.tree.machine"),
        ("zraft.topics.leader", "zraft.raft.core"),
        ("zraft.storage.delivery.log", "zraft.raft.messages"),
        ("zraft.raft.core", "zraft.config.features"),
        ("zraft.topics.leader", "zraft.program.nearest"),
        ("zraft.checkers.linearizability", "zraft.raft.core"),
        ("zraft.tree.machine", "zraft.raft.messages"),
        ("zraft.tree.machine", "zraft.storage.frames"),
        ("zraft.tree.machine", "zraft.checkers.linearizability"),
        ("zraft.transport.codec", "zraft.storage.frames"),
        ("zraft.storage.wal", "zraft.transport.messages"),
        ("zraft.storage.wal", "zraft.config.server"),
        ("zraft.server.process.node", "zraft.config.knobs"),
        ("zraft.storage.wal", "zraft.server.process.node"),
        ("zraft.server.process.node", "zraft.cli.main"),
        ("zraft.server.process.node", "zraft.testing.servers"),
        ("zraft.cli.main", "zraft.testing.servers"),
        ("zraft.server.engine.driver", "zraft.server.process.node"),
        ("zraft.server.coordination.leadership", "zraft.server.clients.table"),
        ("zraft.groups.host", "zraft.server.partitions.machine"),
        ("zraft.shell.run", "zraft.server.operators.report"),
        ("zraft_core.errors", "zraft.raft.messages"),
        ("zraft_core.wire.jute", "zraft.storage.frames"),
        ("zraft_core.messagepack", "zraft_core.wire.jute"),
        ("zraft_core.messagepack", "zraft_core.layout"),
        ("zraft_core.layout", "zraft_core.topics.forms"),
        ("zraft_core.topics.message", "zraft_core.znodes.stat"),
        ("zraft_client.client", "zraft.server.process.node"),
        ("zraft_client.client", "zraft.tree.machine"),
        ("zraft.server.process.node", "zraft_client.client"),
        ("zraft.cli.main", "zraft_bench.main"),
        ("zraft_bench.main", "zraft.server.process.node"),
        ("onyxlog.peer.core", "zraft.server.partitions.machine"),
        ("onyxlog.scheduling.waiting", "onyxlog.peer.core"),
        ("onyxlog.replica.pool", "onyxlog.jobs.plain"),
    ],
)
def test_a_planted_wrong_import_is_found(imports: grimp.ImportGraph, importer: str, name: str) -> None:
    assert {importer, name} <= imports.modules
    planted = deepcopy(imports)
    planted.add_import(importer=importer, imported=name)
    assert broken(planted)


def test_what_the_rooms_allow_is_not_complained_about(imports: grimp.ImportGraph) -> None:
    planted = deepcopy(imports)
    planted.add_import(importer="zraft.server.process.node", imported="zraft_core.wire.jute")
    planted.add_import(importer="zraft.groups.host", imported="zraft.storage.wal")
    assert broken(planted) == []


def test_pure_packages_touch_no_clock_socket_disk_thread_log_or_global_randomness() -> None:
    looked_at = {
        module: path for module, path in sources().items() if any(within(module, package) for package in PURE)
    }
    assert len(looked_at) > len(PURE)
    wrong = [
        complaint
        for module, path in looked_at.items()
        for complaint in impurities(module, ast.parse(path.read_bytes()))
    ]
    assert not wrong, "\n".join(wrong)


def imports_of_driver() -> set[str]:
    """The driver and all modules of its package that it is made of."""
    paths = sources()
    found, new = set(), {DRIVER}
    while new:
        found |= new
        names = {name for module in new for name in imported(ast.parse(paths[module].read_bytes()))}
        new = {m for m in paths if m.startswith("zraft.server.") and any(within(n, m) for n in names)} - found
    return found


def test_the_driver_does_not_know_asyncio() -> None:
    modules = imports_of_driver()
    assert {"zraft.server.coordination.leadership", "zraft.server.coordination.touches"} <= modules
    wrong = [
        f"{module} imports {name}"
        for module in sorted(modules)
        for name in imported(ast.parse(sources()[module].read_bytes()))
        if name.partition(".")[0] in ("asyncio", "uvloop", "socket", "time", "threading")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from asyncio import sleep",
        "def f():\n    import socket",
        "from random import choice",
        "import random\nrandom.random()",
        "import structlog",
        "open('/etc/passwd')",
        "print('here')",
    ],
)
def test_a_planted_impurity_is_found(source: str) -> None:
    assert list(impurities("zraft.raft.core", ast.parse(source)))


def test_what_is_pure_is_not_complained_about() -> None:
    fine = "from random import Random\nimport random\nfrom zraft_core.ids import ServerId\ndef f(r: random.Random): ..."
    assert not list(impurities("zraft.raft.core", ast.parse(fine)))
