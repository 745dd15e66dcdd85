"""The direction of imports, and the purity of what decides. Read from the source, so nothing can hide."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.packaging.modules import ROOTS, imported, names_used_of, sources

SHARED: Final = (
    "zraft.errors",
    "zraft.frozen",
    "zraft.ids",
    "zraft.messagepack",
    "zraft.nearest",
    "zraft.__version__",
)
STATE: Final = ("zraft.raft", "zraft.tree")
EDGES: Final = ("zraft.wire", "zraft.storage", "zraft.transport")
SETTINGS: Final = (
    "zraft.address",
    "zraft.listening",
    "zraft.config",
    "zraft.config_fields",
    "zraft.topic_config",
)

ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    # the longest matching name decides; a module may always import its own package
    "zraft": (),
    "zraft.errors": (),
    "zraft.frozen": (),
    "zraft.ids": (),
    "zraft.messagepack": ("zraft.errors",),
    "zraft.nearest": (),
    "zraft.raft": SHARED,
    # group 0's share of topics is part of its state
    "zraft.tree": (
        *(*SHARED, "zraft.topics.codec", "zraft.topics.message", "zraft.topics.registry"),
        *("zraft.topics.registry_commands", "zraft.topics.registry_image", "zraft.topics.registry_items"),
        "zraft.topics.registry_values",
    ),
    # partitions of topics, each a group of its own; knows neither Raft nor the tree of group 0
    "zraft.topics": SHARED,
    "zraft.topics.placement": (*SHARED, "zraft.topics", "zraft.groups.description"),
    "zraft.claims": SHARED,
    "zraft.wire": (*SHARED, *STATE),
    "zraft.wire.reconfig": (*SHARED, *STATE, "zraft.wire", "zraft.address"),
    # what is about topics is decoded whole
    "zraft.wire.native_topics": (*SHARED, *STATE, "zraft.wire", "zraft.claims", "zraft.topics"),
    "zraft.wire.native_topic_answers": (*SHARED, *STATE, "zraft.wire", "zraft.topics"),
    "zraft.storage": (*SHARED, *STATE),
    # files of partitions: knows neither consensus nor the log that it is fed from
    "zraft.storage.delivery": (
        *(*SHARED, "zraft.storage.directory", "zraft.storage.durable", "zraft.storage.errors"),
        "zraft.storage.filesystem",
    ),
    "zraft.transport": (*SHARED, *STATE, "zraft.address"),
    "zraft.transport.udp": (*SHARED, "zraft.address", "zraft.listening"),
    # many groups of one server; group 0 has its own driver
    "zraft.groups": (
        *(*SHARED, "zraft.raft", "zraft.storage.records", "zraft.storage.recovery"),
        "zraft.transport.messages",
    ),
    "zraft.address": SHARED,
    "zraft.config": (*SHARED, *SETTINGS, "zraft.tree.features"),
    "zraft.config_fields": SHARED,
    "zraft.topic_config": (*SHARED, "zraft.config_fields"),
    "zraft.properties": SHARED,
    "zraft.zoo_cfg": (*SHARED, *SETTINGS),
    "zraft.zoo_env": (*SHARED, "zraft.zoo_cfg"),
    "zraft.zoo_source": (*SHARED, "zraft.properties", "zraft.zoo_cfg", "zraft.zoo_env"),
    "zraft.knobs": (*SHARED, *SETTINGS, "zraft.zoo_cfg", "zraft.zoo_source"),
    "zraft.logs": (*SHARED, *SETTINGS),
    "zraft.limited_log": SHARED,
    "zraft.http_places": (),
    "zraft.http_service": (*SHARED, *SETTINGS, "zraft.http_places", "zraft.limited_log"),
    # values, and what is made of them; a server hands in where they come from
    "zraft.admin": (*SHARED, "zraft.http_places", "zraft.wire"),
    "zraft.admin.http": (*SHARED, *SETTINGS, "zraft.http_service", "zraft.wire", "zraft.admin"),
    # values and bytes; the client of it is outside of a server
    "zraft.operator": SHARED,
    "zraft.operator.client": (*SHARED, *SETTINGS, "zraft.operator", "zraft.reaching", "zraft.transport"),
    "zraft.server": (
        *(*SHARED, *SETTINGS, *STATE, *EDGES, "zraft.admin"),
        *("zraft.claims", "zraft.groups", "zraft.topics"),
        *("zraft.limited_log", "zraft.operator.protocol", "zraft.operator.requests"),
    ),
    "zraft.testing": (
        *(*SHARED, *SETTINGS, *STATE, *EDGES),
        *("zraft.claims", "zraft.groups", "zraft.server", "zraft.topics"),
    ),
    # whole servers of partitions, whose consumers claim
    "zraft.testing.partitions": (
        *SHARED,
        *STATE,
        *EDGES,
        "zraft.claims",
        "zraft.groups",
        "zraft.server",
        "zraft.testing",
        "zraft.topics",
    ),
    # says what clients and partitions may say, claims included
    "zraft.testing.fuzz": (
        *(*SHARED, *SETTINGS, *STATE, *EDGES, "zraft.claims", "zraft.server", "zraft.testing"),
        "zraft.topics",
    ),
    # runs what decides on both sides of a claim
    "zraft.testing.claims": (
        *(*SHARED, "zraft.claims", "zraft_client.claims"),
        *("zraft.testing.broken", "zraft.testing.planted_registry", "zraft.testing.schedule"),
        *("zraft.testing.seed_command", "zraft.testing.seed_runs"),
    ),
    # judges what real servers did, by what they and their consumers wrote down
    "zraft.testing.topic_chaos": (
        *(
            *SHARED,
            *STATE,
            "zraft.claims",
            "zraft.server.partition_entries",
            "zraft.server.partition_machine",
        ),
        *("zraft.testing.broken", "zraft.testing.claims.checks", "zraft.testing.multicast.checks"),
    ),
    # the outside of a server: they talk to it through its port
    "zraft.status": (*SHARED, *SETTINGS),
    "zraft.command_group": SHARED,
    "zraft.status_table": (*SHARED, *SETTINGS, "zraft.status"),
    "zraft.listening": (*SHARED, "zraft.address"),
    "zraft.reaching": (*SHARED, "zraft.address"),
    "zraft.state_directory": (),
    "zraft.dev_clusters": (*SHARED, "zraft.address", "zraft.state_directory"),
    "zraft.dev": (*SHARED, *SETTINGS, "zraft.dev_clusters", "zraft.status", "zraft.transport.keys"),
    "zraft.shell": (
        *SHARED,
        *SETTINGS,
        "zraft.reaching",
        "zraft.state_directory",
        "zraft.tree.acl",
        "zraft.tree.events",
        "zraft.tree.node",
        "zraft.wire",
    ),
    "zraft.group_log_report": (
        *(*SHARED, "zraft.claims.commands", "zraft.topics.commands", "zraft.topics.message"),
        *("zraft.topics.view", "zraft.server.partition_entries"),
    ),
    "zraft.log_report": (
        *(*SHARED, *STATE, "zraft.storage.records", "zraft.storage.delivery.values"),
        *("zraft.topics.codec", "zraft.topics.registry_values", "zraft.group_log_report"),
    ),
    "zraft.log_command": (*SHARED, *STATE, "zraft.storage", "zraft.log_report"),
    # without a running server: states from files, and directories from states
    "zraft.offline": (*SHARED, *STATE, "zraft.address", "zraft.storage", "zraft.wire"),
    "zraft.offline_options": (*SHARED, *SETTINGS, "zraft.knobs", "zraft.offline", "zraft.storage"),
    "zraft.snapshot_command": (
        *(*SHARED, *STATE, "zraft.storage", "zraft.log_report"),
        *("zraft.offline", "zraft.offline_options", "zraft.operator", "zraft.operator_options"),
    ),
    "zraft.recover_command": (*SHARED, *STATE, "zraft.storage", "zraft.offline", "zraft.offline_options"),
    "zraft.import_command": (
        *(*SHARED, *SETTINGS, *STATE, "zraft.storage", "zraft.offline", "zraft.offline_options"),
        *("zraft.shell.secure", "zraft.wire.client_requests"),
    ),
    # commands: what they need beyond the command line is imported when they run
    "zraft.key_command": (*SHARED, "zraft.transport.keys"),
    "zraft.operator_options": (
        *(*SHARED, *SETTINGS, "zraft.dev_clusters", "zraft.operator", "zraft.transport.keys"),
    ),
    "zraft.member_command": (*SHARED, *SETTINGS, "zraft.operator", "zraft.operator_options"),
    "zraft.settings_command": (*SHARED, "zraft.operator", "zraft.operator_options"),
    "zraft.topic_command": (*SHARED, "zraft.operator", "zraft.operator_options"),
    # composition roots
    "zraft.main": ("zraft",),
    "zraft.__main__": ("zraft.main",),
    # peers that play a log: through the client library; never a server's inside
    "onyxlog": (),
    "onyxlog.errors": SHARED,
    "onyxlog.ids": (),
    "onyxlog.scheduling": ("onyxlog.ids", "onyxlog.errors"),
    "onyxlog.replica": ("onyxlog.ids", "onyxlog.errors", "onyxlog.scheduling", "zraft.messagepack"),
    "onyxlog.gossip": (*SHARED, "onyxlog.ids", "onyxlog.errors", "onyxlog.replica.pool"),
    "onyxlog.jobs": (*SHARED, "onyxlog.ids", "onyxlog.errors", "onyxlog.scheduling"),
    "onyxlog.plugins": (
        *SHARED,
        "onyxlog.ids",
        "onyxlog.errors",
        "onyxlog.access",
        "onyxlog.jobs",
        "zraft_client",
    ),
    "onyxlog.tasks": (
        *(*SHARED, *SETTINGS, "zraft.limited_log", "zraft.transport"),
        *("onyxlog.ids", "onyxlog.errors", "onyxlog.jobs"),
        *(
            "onyxlog.access",
            "onyxlog.plugins",
            "onyxlog.replica",
            "onyxlog.peer.log_port",
            "onyxlog.peer.task_runner",
        ),
    ),
    "onyxlog.peer": (*SHARED, *SETTINGS, "zraft_client", "onyxlog"),
    "onyxlog.peer.gossip_link": (*SHARED, *SETTINGS, "zraft.transport.udp"),
    "onyxlog.peer.gossip_seal": (
        *(*SHARED, "zraft.transport.keys", "zraft.transport.sealing"),
        *("onyxlog.ids", "onyxlog.gossip.codec"),
    ),
    "onyxlog.peer.monitoring": (*SHARED, *SETTINGS, "zraft.http_service", "onyxlog"),
    "onyxlog.peer.messenger": (*SHARED, *SETTINGS, "zraft.transport.keys", "zraft_client", "onyxlog"),
    "onyxlog.testing": (*SHARED, "zraft.address", "zraft_client", "onyxlog"),
    # reads what servers and peers left; runs where no server does
    "onyxlog.audits": (
        *SHARED,
        *SETTINGS,
        *STATE,
        "zraft.storage",
        "zraft.topics",
        "zraft.claims",
        "onyxlog",
    ),
    "onyxlog.audits.generating": (*SHARED, *STATE, "zraft.storage", "zraft.offline"),
    "onyxlog.audits.generate": ("onyxlog.audits.generating",),
    "onyxlog.audits.errors": ("onyxlog.errors",),
    "onyxlog.audits.java": ("onyxlog.audits.errors",),
    "onyxlog.audits.session": (*SHARED, "zraft.address", "zraft.reaching", "onyxlog.audits"),
    "onyxlog.audits.tables": ("onyxlog.audits",),
    # what must hold: values in, violations out
    "onyxlog.audits.rules": (
        *(
            *SHARED,
            "zraft.claims",
            "zraft.testing.checkers",
            "onyxlog.ids",
            "onyxlog.errors",
            "onyxlog.replica",
        ),
        *("onyxlog.audits.errors", "onyxlog.audits.measurements", "onyxlog.audits.tables"),
        *("onyxlog.audits.measured_gossip", "onyxlog.audits.measured_multicast"),
        # re-execution: the state machine that servers run
        *("zraft.raft.membership", "zraft.tree"),
    ),
    "onyxlog.audits.rules.catalogue": (
        "onyxlog.audits.rules",
        "onyxlog.audits.errors",
        "onyxlog.audits.snapshot_states",
    ),
    "onyxlog.audits.snapshot_states": (
        *SHARED,
        "zraft.storage",
        "zraft.offline",
        "zraft.tree",
        "onyxlog.audits.rules",
    ),
    "onyxlog.audits.jobs": (
        *("onyxlog.audits.errors", "onyxlog.audits.measurements", "onyxlog.audits.tables"),
        *("onyxlog.audits.costs", "onyxlog.audits.rules"),
    ),
    "onyxlog.audits.costs": (),
    "onyxlog.audits.report": ("onyxlog.audits",),
    "onyxlog.audit_command": (*SHARED, "onyxlog"),
    "onyxlog.audit_follow_command": (*SHARED, "onyxlog"),
    "onyxlog.audits.source": (
        *(*SHARED, *STATE, "zraft.storage", "zraft.topics", "zraft.claims", "zraft.testing.checkers.history"),
        "zraft.server.partition_entries",
        *("onyxlog.ids", "onyxlog.errors", "onyxlog.audits", "onyxlog.replica", "onyxlog.peer.recording"),
        "onyxlog.peer.publishing",
    ),
    # what programs and people use of it
    "onyxlog.access": ("zraft.errors", "zraft.shell.secure", "zraft_client"),
    "onyxlog.api": ("zraft_client", "onyxlog"),
    "onyxlog.job_status": ("onyxlog.ids", "onyxlog.replica", "onyxlog.scheduling.waiting"),
    "onyxlog.observing": ("onyxlog",),
    "onyxlog.running": (*SHARED, *SETTINGS, "zraft.transport.keys", "onyxlog"),
    "onyxlog.status": ("onyxlog",),
    "onyxlog.status_view": ("onyxlog",),
    "onyxlog.command_options": (*SHARED, *SETTINGS, "zraft.reaching", "onyxlog"),
    "onyxlog.peer_command": (*SHARED, *SETTINGS, "zraft.logs", "onyxlog"),
    "onyxlog.main": (*SHARED, *SETTINGS, "zraft.command_group", "onyxlog"),
    "onyxlog.__main__": ("onyxlog.main",),
    # what people import, and what measures through it: the outside of a server, in packages of their own
    "zraft_client": (*SHARED, "zraft.address", "zraft.wire"),
    "zraft_client.topics": (
        *(*SHARED, "zraft.address", "zraft.claims", "zraft.topics", "zraft.wire", "zraft_client"),
    ),
    "zraft_client.kafkalite": (*SHARED, "zraft.address", "zraft_client"),
    "zraft_client.claims": (*SHARED, "zraft.claims", "zraft_client.errors", "zraft_client.line"),
    "zraft_bench": (
        *(*SHARED, *SETTINGS, "zraft.command_group", "zraft.reaching", "zraft.status", "zraft_client"),
        "onyxlog.gossip",
    ),
    "zraft_bench.zookeeper_target": (*SHARED, *SETTINGS, "zraft.wire", "zraft_bench"),
}

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
    *("zraft.groups", "zraft.raft", "zraft.topics", "zraft.tree", "zraft.claims", "zraft.wire"),
    *("zraft.messagepack", "zraft.properties", "zraft.zoo_cfg", "zraft.zoo_env"),
    *("zraft.operator.requests", "zraft.operator.protocol"),
    *("zraft.log_report", "zraft.group_log_report", "zraft.offline.founders", "zraft.offline.walking"),
    *("zraft.admin.commands", "zraft.admin.metrics", "zraft.admin.status", "zraft.admin.summary"),
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
DRIVER: Final = "zraft.server.driver"
"""Free of asyncio, so that the simulator runs the code that ships."""


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def rule_of(module: str) -> str:
    matching = [name for name in ALLOWED if within(module, name)]
    return max(matching, key=len)


def wrong_imports(module: str, tree: ast.AST) -> Iterator[str]:
    rule = rule_of(module)
    # `zraft` itself stands for all of zraft only in the composition root
    own = () if rule == "zraft" else (rule,)
    for name in imported(tree):
        if name.partition(".")[0] in ROOTS and not any(
            within(name, allowed) for allowed in (*own, *ALLOWED[rule])
        ):
            yield f"{module} imports {name}, which its layer ({rule}) does not know"


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


def test_imports_go_from_the_edge_to_the_core_only() -> None:
    wrong = [
        complaint
        for module, path in sources().items()
        for complaint in wrong_imports(module, ast.parse(path.read_bytes()))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_module_has_a_rule_of_its_own() -> None:
    """A new top-level module must be placed in a layer, on purpose."""
    assert [module for module in sources() if rule_of(module) == "zraft"] == ["zraft"]


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
    assert {"zraft.server.leadership", "zraft.server.touches"} <= modules
    wrong = [
        f"{module} imports {name}"
        for module in sorted(modules)
        for name in imported(ast.parse(sources()[module].read_bytes()))
        if name.partition(".")[0] in ("asyncio", "uvloop", "socket", "time", "threading")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("zraft.raft.core", "from zraft.tree import txn"),
        ("zraft.raft.core", "from zraft import tree"),
        ("zraft.tree.machine", "import zraft.raft.messages"),
        ("zraft.topics.leader", "from zraft.raft.core import Raft"),
        ("zraft.wire.jute", "from zraft.storage.frames import Frame"),
        ("zraft.storage.wal", "from zraft.server.node import Node"),
        ("zraft.server.node", "from zraft.main import main"),
        ("zraft.server.node", "def late():\n    from zraft.knobs import load_config"),
        ("zraft.server.node", "import zraft"),
        ("zraft.testing.simulate", "from zraft.main import main"),
        ("zraft.errors", "from zraft.ids import ServerId"),
        ("zraft", "from zraft.raft import messages"),
        ("zraft_client.client", "from zraft.server.node import Node"),
        ("zraft_client.client", "from zraft.tree.acl import Acl"),
        ("zraft_bench.main", "from zraft.wire import jute"),
        ("zraft.server.node", "import zraft_client"),
        ("zraft.main", "from zraft_bench.main import main"),
    ],
)
def test_a_planted_wrong_import_is_found(module: str, source: str) -> None:
    assert list(wrong_imports(module, ast.parse(source)))


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


def test_what_the_layers_allow_is_not_complained_about() -> None:
    fine = "from random import Random\nimport random\nfrom zraft.ids import ServerId\ndef f(r: random.Random): ..."
    assert not list(impurities("zraft.raft.core", ast.parse(fine)))
    assert not list(wrong_imports("zraft.raft.core", ast.parse(fine)))
    assert not list(
        wrong_imports("zraft.server.node", ast.parse("from zraft.wire import jute\nimport zraft.config"))
    )
    assert not list(wrong_imports("zraft.wire.words", ast.parse("from zraft import __version__")))
