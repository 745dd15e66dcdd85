"""The command `zraft`: reads the command line, assembles the parts, and turns errors into messages.

This is a composition root: it may import anything and nothing imports it. What a command needs is imported
inside it, so that three servers of `zraft dev` do not each load the table printer of `zraft status`.
"""

from __future__ import annotations

import gc
import linecache
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zraft import __version__
from zraft.cli.connection_options import connect_option, tls_options
from zraft.cli.listings.listing_options import lists
from zraft.cli.set_option import read_settings
from zraft.program.command_group import CommandGroup
from zraft_core.errors import ConfigError

if TYPE_CHECKING:
    from zraft.cli.listings.listing import Listing
    from zraft.config.zoo_cfg import ConfigNote


@click.group(
    cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="zraft")
def main() -> None:
    """Run and administer a Raft-replicated coordination service that ZooKeeper clients can use.

    \b
    Try it, three real servers on this machine:
        zraft dev
        zraft status
    \b
    Run it, on three machines (the same key file on each):
        zraft key new cluster.key
        zraft serve --id 1 --data /var/lib/zraft --address 10.0.0.1:2181 --key cluster.key \\
            --cluster 1=10.0.0.1:2181,2=10.0.0.2:2181,3=10.0.0.3:2181
    \b
    Use it, and look after it:
        zraft put /greeting hello
        zraft get /greeting
        zraft doctor
    \b
    Exit codes of all commands:
        0    done
        1    refused, failed, or no server was reached
        2    the command line or a settings file is wrong
        3    it is not known whether a change was done; look, and repeat it if not
        130  ended by Ctrl-C
    Some have more of their own (`zraft doctor`: 4; `zraft lock`: 124 to 127); docs/reference/commands.md has them all.
    """


@main.command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--id", "server", metavar="N", help="The number of this server in --cluster, 1 to 254.")
@click.option(
    "--data", metavar="DIR", help="The data directory of this server, made if absent; never share or copy it."
)
@click.option("--address", metavar="HOST:PORT", help="Where to listen: TCP for clients, UDP for peers.")
@click.option(
    "--cluster", metavar="1=HOST:PORT,…", help="All servers, this one included; give the same list to each."
)
@click.option(
    "--key", metavar="FILE", multiple=True, help="The cluster key; give two while the key is rotated."
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Read settings from a file: TOML, or ZooKeeper's zoo.cfg.",
)
@click.option("--admin", metavar="HOST:PORT", help="Where the admin HTTP server listens.")
@click.option(
    "--insecure-peers", is_flag=True, help="Run a cluster without a key: anyone who can send may vote."
)
@click.option("--log-format", metavar="FORMAT", help="Write the log as console (key=value) or json.")
@click.option(
    "--set", "settings", metavar="KNOB=VALUE", multiple=True, help="Set any other knob; may be repeated."
)
def serve(
    file: Path | None,
    server: str | None,
    data: str | None,
    address: str | None,
    cluster: str | None,
    key: tuple[str, ...],
    config: Path | None,
    admin: str | None,
    insecure_peers: bool,
    log_format: str | None,
    settings: tuple[str, ...],
) -> None:
    """Run one server until SIGTERM or SIGINT.

    \b
    A server of a cluster of three:
        zraft serve --id 2 --data /var/lib/zraft --address 10.0.0.2:2181 --key cluster.key \\
            --cluster 1=10.0.0.1:2181,2=10.0.0.2:2181,3=10.0.0.3:2181
    \b
    A single server, which needs no key:
        zraft serve --id 1 --data ./data --address 127.0.0.1:2181 --cluster 1=127.0.0.1:2181
    \b
    A server that has run ZooKeeper so far (docs/how-to/migration.md):
        zraft serve --config /etc/zookeeper/zoo.cfg --key cluster.key

    Every option is also a key of the --config file and an environment variable: --address is ZRAFT_ADDRESS,
    raft.heartbeat_ticks is ZRAFT_RAFT__HEARTBEAT_TICKS. A flag wins over these, these over
    the ZOO_… variables of ZooKeeper's image, those over the file. FILE without --config is the same.
    docs/reference/configuration.md lists them all.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        # Reading a log and a snapshot takes a while; a server that is asked to stop meanwhile has nothing to
        # hand over. The running server installs its own handlers later.
        signal.signal(number, _stop_the_start)
    if not __debug__:
        raise ConfigError(
            "PYTHONOPTIMIZE: Python runs with -O, which removes the checks a server stops at rather than damage data; "
            "run it without -O and with PYTHONOPTIMIZE not set"
        )
    if file is not None and config is not None:
        raise ConfigError(f"config: found {file} and --config {config}, expected one settings file")
    with _imports_of_a_server():
        from zraft.config.knobs import load_config

    notes: list[ConfigNote] = []
    flags: dict[str, object] = read_settings(settings)
    given = {
        "id": server,
        "data": data,
        "address": address,
        "cluster": cluster,
        "key": key or None,
        "admin": admin,
        "insecure_peers": insecure_peers or None,
        "log_format": log_format,
    }
    flags.update({name: value for name, value in given.items() if value is not None})
    settled = load_config(flags=flags, file=file or config, on_note=notes.append)

    with _imports_of_a_server():
        from zraft.program.logs import configure_logging
        from zraft.server.process.node import run_server

    configure_logging(format=settled.log_format, level=settled.log_level)
    _log_notes(notes)
    run_server(settled)


@contextmanager
def _imports_of_a_server() -> Iterator[None]:
    """Import what is inside without two things that would take a fifth of a start and that no server needs.

    The garbage collector would look through modules, which stay. They are frozen in the end, or the next collection
    would do it. And structlog imports rich if it is installed, for tracebacks in colour; servers log them as text.
    """
    gc.disable()
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["rich"]
        # attrs keeps the source of each method that it generated, two megabytes, for tracebacks through them.
        linecache.clearcache()
        gc.freeze()
        gc.enable()


def _stop_the_start(_number: int, _frame: object) -> None:
    """Stop on SIGTERM or SIGINT before the server runs. What was being read or begun is safe, as after a crash."""
    sys.exit(0)


def _log_notes(notes: Sequence[ConfigNote]) -> None:
    import structlog

    log = structlog.get_logger()
    for note in notes:
        write = {"info": log.info, "warning": log.warning}[note.level.value]
        write("setting of ZooKeeper's", key=note.key, note=note.text)


@main.command(short_help="Run a cluster of real servers on this machine, for development.")
@click.option(
    "--servers", default=3, show_default=True, type=click.IntRange(1, 9), help="How many servers to run."
)
@click.option(
    "--port",
    default=2181,
    show_default=True,
    type=click.IntRange(1, 65_535),
    help="The port of the first server.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    type=click.Choice(("127.0.0.1", "::1")),
    help="Where the servers listen.",
)
@click.option(
    "--data",
    default="zraft-data",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory for data, logs and the key; made if absent, kept when stopped.",
)
@click.option(
    "--admin-port",
    type=click.IntRange(0, 65_535),
    help="The port of the first server's admin HTTP server; 0 for none.  [default: --port + 100]",
)
@click.option(
    "--set",
    "settings",
    metavar="KNOB=VALUE",
    multiple=True,
    help="Set a knob of all servers; may be repeated.",
)
@click.option(
    "--restart",
    is_flag=True,
    help="Start a server again that died; after 1 s at first, and after longer each time that it dies soon.",
)
def dev(
    servers: int,
    port: int,
    host: str,
    data: Path,
    admin_port: int | None,
    settings: tuple[str, ...],
    restart: bool,
) -> None:
    """Run a cluster of real server processes on this machine, for development.

    Prints a line per server and `ready` when all serve. Ctrl-C or SIGTERM stops them all; the data stays. A server that
    dies is reported with the end of its log.

    \b
        zraft dev                          # three servers at 2181, 2182 and 2183, admin at 2281 and on
        zraft dev --servers 1 --port 3000
        zraft dev --data "$(mktemp -d)"    # begin with nothing
    """
    from zraft.cli.dev import run_dev

    read_settings(settings)  # A misspelt --set is better reported here, once, than by each server.
    sys.exit(
        run_dev(
            servers=servers,
            port=port,
            host=host,
            data=data,
            admin_port=admin_port,
            settings=settings,
            restart=restart,
        )
    )


@main.command(short_help="Show every server's mode, zxid, nodes and connections.")
@connect_option("The servers to ask.")
@tls_options("Ask over TLS, and trust these authorities.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="How long one question to a server may take; they are asked at the same time.",
)
@lists
def status(
    connect: str, tls_ca: Path | None, tls_certificate: Path | None, tls_key: Path | None, timeout: float
) -> Listing:
    """Show every server's mode, zxid, nodes and connections; exit with 1 if none of them leads.

    It also names the partitions of topics that do not take or do not deliver messages, and says why. If there are any, and
    a server leads, the exit code is 4. JSON is one object.
    """
    from zraft.cli.status import tls_context
    from zraft.cli.status_table import status_listing
    from zraft_core.address import parse_address

    if tls_ca is None and (tls_certificate is not None or tls_key is not None):
        raise ConfigError(
            "--tls-certificate, --tls-key: need --tls-ca, the authority of the servers' certificates"
        )
    tls = tls_context(tls_ca, tls_certificate, tls_key) if tls_ca is not None else None
    addresses = [parse_address(part, "--connect") for part in connect.split(",")]
    return status_listing(addresses, tls, timeout_s=timeout)


@main.command(
    short_help="Run ZooKeeper's command-line client, at a prompt or in scripts.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@connect_option(
    "Connect to the first of these servers that answers; all paths are below PATH.",
    short=("-server",),
    metavar="HOST:PORT,…[/PATH]",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="How long a command waits for a connection.",
)
@click.option(
    "wait_for_connection",
    "--wait-for-connection",
    "-waitforconnection",
    is_flag=True,
    help="Also wait that long while no server listens there, instead of saying so at once.",
)
@click.option(
    "--session-timeout",
    metavar="MS",
    default=30_000,
    show_default=True,
    type=click.IntRange(1, 2**31 - 1),
    help="The session timeout to ask for: ephemeral znodes outlive a lost shell for this long.",
)
@click.option("--tls", is_flag=True, help="Speak TLS; any of the following options means it, too.")
@tls_options("The authorities that sign servers' certificates.")
@click.option("--json", "as_json", is_flag=True, help="Print each result as one line of JSON.")
@click.option("--stop-on-error", is_flag=True, help="With commands from a pipe, end at the first that fails.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(
    connect: str,
    timeout: float,
    wait_for_connection: bool,
    session_timeout: int,
    tls: bool,
    tls_ca: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    as_json: bool,
    stop_on_error: bool,
    command: tuple[str, ...],
) -> None:
    """Run ZooKeeper's command-line client: at a prompt, for one COMMAND, or for the lines of a pipe.

    \b
        zraft shell                                   # a prompt; Tab completes, `help` explains
        zraft shell ls -R /
        zraft shell --connect zk1:2181,zk2:2181 get -s /config
        echo "create /a hello" | zraft shell
        zraft shell --json stat /a | jq .numChildren

    The commands are those of zkCli, with its options and its output. Exit code: 0, 1 if a server refused or none
    was reached, 2 if the command is wrong. See docs/how-to/shell.md.
    """
    from zraft.shell.run import Manner, run_shell
    from zraft.shell.session import ShellSettings
    from zraft.shell.target import parse_target

    context = None
    if tls or tls_ca or tls_certificate or tls_key:
        from zraft.shell.secure import client_context

        context = client_context(ca=tls_ca, certificate=tls_certificate, key=tls_key)
    target = parse_target(connect, "--connect")
    settings = ShellSettings(target, session_timeout, timeout, context, patient=wait_for_connection)
    sys.exit(run_shell(settings, command, Manner(json=as_json, ends_at_error=stop_on_error)))


class _Late(click.Group):
    """A group of commands whose module is imported when one of them is called."""

    def __init__(self, name: str, module: str, help: str) -> None:
        super().__init__(name, short_help=help, context_settings={"max_content_width": 110})
        self._module = module

    def _group(self) -> click.Group:
        return getattr(import_module(self._module), self.name or "")  # type: ignore[no-any-return]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._group().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._group().get_command(ctx, cmd_name)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._group().format_help_text(ctx, formatter)


class _LateCommand(click.Command):
    """A command whose module is imported when it is called."""

    def __init__(self, name: str, module: str, attribute: str, help: str) -> None:
        super().__init__(name, short_help=help, context_settings={"max_content_width": 110})
        self._module = module
        self._attribute = attribute

    def _command(self) -> click.Command:
        return getattr(import_module(self._module), self._attribute)  # type: ignore[no-any-return]

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        return self._command().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return self._command().invoke(ctx)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return self._command().get_params(ctx)


for _name, _module, _help in (
    ("config", "doctor.config_command", "Check settings files, without starting anything."),
    ("consumer", "topics.consumer_command", "Show who consumes topics and how far each is, and change that."),
    ("key", "key_command", "Make and change the cluster key, by which servers know each other."),
    ("log", "log_command", "Show a server's log, and check whether it is whole."),
    ("member", "member_command", "List the members of a cluster, and change them while it runs."),
    ("settings", "settings_command", "Show and change the settings that all servers must agree on."),
    ("snapshot", "snapshot_command", "Save, inspect and restore snapshots of the state."),
    (
        "topic",
        "topics.topic_command",
        "Show topics and where their partitions are, change them, and send and read records.",
    ),
    (
        "user",
        "user_command",
        "Make and change the file of SASL users, and print the ids that ACLs have for users.",
    ),
):
    main.add_command(_Late(_name, f"zraft.cli.{_module}", _help))
for _name, _module, _attribute, _help in (
    (
        "completion",
        "completion_command",
        "completion",
        "Print the script that completes commands in bash, zsh or fish.",
    ),
    (
        "doctor",
        "doctor.doctor_command",
        "doctor",
        "Say what is open, unencrypted, close to a limit or about to expire.",
    ),
    ("get", "znodes.znode_commands", "get", "Print the data of a znode."),
    ("import", "import_command", "import_", "Create a cluster from a running ZooKeeper's data."),
    ("lock", "znodes.lock_command", "lock", "Run a command while it holds a lock."),
    ("ls", "znodes.znode_commands", "ls", "List znodes below a path."),
    ("put", "znodes.znode_commands", "put", "Create a znode, or set its data."),
    ("recover", "recover_command", "recover", "Make a new cluster out of one server of a lost one."),
    ("rm", "znodes.znode_commands", "rm", "Delete znodes."),
    ("watch", "znodes.watch_command", "watch", "Print a line for each change of a znode."),
):
    main.add_command(_LateCommand(_name, f"zraft.cli.{_module}", _attribute, _help))
