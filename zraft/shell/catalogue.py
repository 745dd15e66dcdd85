"""Every command of the shell: its options, its arguments, one sentence and one example. Data only."""

from __future__ import annotations

import difflib
from typing import Final

from zraft.shell.errors import UsageError
from zraft.shell.grammar import Argument, Option, Spec

_PATH: Final = Argument("path", is_path=True)
_STAT: Final = Option("s", "show the znode's stat, too")
_WATCH: Final = Option("w", "set a watch: one event when it changes")
_VERSION: Final = Option("v", "only if the znode is at this version", "version")

FOUR_LETTER: Final = (
    *("conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr", "ruok", "srst", "srvr"),
    *("stat", "stmk", "wchc", "wchp", "wchs"),
)

_SPECS: Final = (
    Spec(
        name="addauth",
        summary="Prove who you are to this connection and those that follow it.",
        example="addauth digest alice:secret",
        arguments=(Argument("scheme"), Argument("auth", required=False)),
    ),
    Spec(
        name="addWatch",
        summary="Watch a znode until removewatches, with everything below it unless -m PERSISTENT.",
        example="addWatch -m PERSISTENT /config",
        options=(Option("m", "PERSISTENT or PERSISTENT_RECURSIVE (the default)", "mode"),),
        arguments=(_PATH,),
    ),
    Spec(
        name="close",
        summary="End the session; its ephemeral znodes are deleted.",
        example="close",
    ),
    Spec(
        name="config",
        summary="Show the servers of the ensemble, as /zookeeper/config has them.",
        example="config -s",
        options=(Option("c", "as a connection string of clients"), _WATCH, _STAT),
    ),
    Spec(
        name="connect",
        summary="End the session and begin another, with these servers or the same ones.",
        example="connect zk1:2181,zk2:2181/app",
        arguments=(Argument("host:port", required=False),),
    ),
    Spec(
        name="create",
        summary="Make a znode. Without data it holds null; without acl everybody may do everything.",
        example='create -e -s /workers/worker- "10.0.0.5:80"',
        options=(
            Option("s", "sequential: the server appends a number"),
            Option("e", "ephemeral: deleted when this session ends"),
            Option("c", "container: deleted some time after its last child was"),
            Option("t", "deleted when it has no child and was not set for this many ms", "ttl"),
        ),
        arguments=(_PATH, Argument("data", required=False), Argument("acl", required=False)),
    ),
    Spec(
        name="delete",
        summary="Delete a znode without children.",
        example="delete -v 3 /config/old",
        options=(_VERSION,),
        arguments=(_PATH,),
    ),
    Spec(
        name="deleteall",
        summary="Delete a znode and everything below it.",
        example="deleteall /jobs/2024",
        options=(Option("b", "znodes asked about and deleted at a time, 1000 unless told", "batch size"),),
        arguments=(_PATH,),
    ),
    Spec(
        name="delquota",
        summary="Take away limits of a quota; without an option the whole quota.",
        example="delquota -n /jobs",
        options=(
            Option("n", "the soft limit of znodes"),
            Option("b", "the soft limit of bytes"),
            Option("N", "the hard limit of znodes"),
            Option("B", "the hard limit of bytes"),
        ),
        usage_options="[-n|-b|-N|-B]",
        arguments=(_PATH,),
    ),
    Spec(
        name="four-letter",
        summary="Send a four-letter word to the connected server and show its answer.",
        example="four-letter srvr",
        arguments=(Argument("word", choices=FOUR_LETTER),),
    ),
    Spec(
        name="get",
        summary="Show a znode's data; null is no data at all, which is not the same as empty data.",
        example="get -s /config",
        options=(_STAT, _WATCH, Option("b", "as base64")),
        arguments=(_PATH,),
    ),
    Spec(
        name="getAcl",
        summary="Show who may do what to a znode: c create, d delete, r read, w write, a admin.",
        example="getAcl -s /config",
        options=(_STAT,),
        arguments=(_PATH,),
    ),
    Spec(
        name="getAllChildrenNumber",
        summary="Count all znodes below a path.",
        example="getAllChildrenNumber /jobs",
        arguments=(_PATH,),
    ),
    Spec(
        name="getEphemerals",
        summary="List this session's ephemeral znodes whose path begins with path.",
        example="getEphemerals /workers",
        arguments=(Argument("path", required=False, is_path=True),),
    ),
    Spec(
        name="help",
        summary="List the commands, or explain one.",
        example="help create",
        arguments=(Argument("command", required=False),),
    ),
    Spec(
        name="history",
        summary="Show the last commands with their numbers, for redo.",
        example="history",
    ),
    Spec(
        name="listquota",
        summary="Show the limits of a quota and what is used.",
        example="listquota /jobs",
        arguments=(_PATH,),
    ),
    Spec(
        name="ls",
        summary="List a znode's children.",
        example="ls -R /config",
        options=(_STAT, _WATCH, Option("R", "everything below, as paths")),
        arguments=(_PATH,),
    ),
    Spec(
        name="printwatches",
        summary="Show watch events or not; without an argument, which of the two.",
        example="printwatches off",
        arguments=(Argument("on|off", required=False, choices=("on", "off")),),
    ),
    Spec(
        name="quit",
        summary="End the session and the shell (also: exit, Ctrl-D).",
        example="quit",
    ),
    Spec(
        name="reconfig",
        summary="Change the servers of the ensemble, one by one or all at once.",
        example="reconfig -remove 3 -add server.5=10.0.0.5:2888:3888;2181",
        options=(
            _STAT,
            Option("v", "only if the configuration has this version, hexadecimal", "version"),
            Option("file", "the new members from a file of server.N=… lines", "path"),
            Option("members", "the new members", "server.N=host:port1:port2;port3[,...]"),
            Option("add", "servers to add", "server.N=host:port1:port2;port3[,...]"),
            Option("remove", "servers to remove", "N[,...]"),
        ),
        usage_options="[-s] [-v version] [[-file path] | [-members server.N=host:port1:port2;port3[,...]]] | "
        "[-add server.N=host:port1:port2;port3[,...]] [-remove N[,...]]",
    ),
    Spec(
        name="redo",
        summary="Do a command of the history again.",
        example="redo 3",
        arguments=(Argument("cmdno"),),
    ),
    Spec(
        name="removewatches",
        summary="Take away this session's watches of a path.",
        example="removewatches -a /config",
        options=(
            Option("c", "those on its children"),
            Option("d", "those on its data"),
            Option("a", "all of them (the default)"),
            Option("l", "here, even if no server can be told"),
        ),
        usage_options="[-c|-d|-a] [-l]",
        arguments=(_PATH,),
    ),
    Spec(
        name="set",
        summary="Set a znode's data.",
        example="set -v 2 /config '{\"debug\": true}'",
        options=(_STAT, _VERSION),
        arguments=(_PATH, Argument("data")),
    ),
    Spec(
        name="setAcl",
        summary="Set who may do what to a znode.",
        example="setAcl -R /config world:anyone:r,digest:alice:gxl…=:cdrwa",
        options=(
            _STAT,
            Option("v", "only if the ACL is at this version", "version"),
            Option("R", "to everything below, too"),
        ),
        arguments=(_PATH, Argument("acl")),
    ),
    Spec(
        name="setquota",
        summary="Limit the znodes (-n, -N) or bytes (-b, -B) of a path and below; servers may enforce -N and -B.",
        example="setquota -n 1000 /jobs",
        options=(
            Option("n", "soft limit of znodes", "val"),
            Option("b", "soft limit of bytes", "val"),
            Option("N", "hard limit of znodes", "val"),
            Option("B", "hard limit of bytes", "val"),
        ),
        usage_options="-n|-b|-N|-B val",
        arguments=(_PATH,),
    ),
    Spec(
        name="stat",
        summary="Show a znode's stat.",
        example="stat -w /config",
        options=(_WATCH,),
        arguments=(_PATH,),
    ),
    Spec(
        name="sync",
        summary="Wait until the connected server has applied all that was committed before.",
        example="sync /",
        arguments=(_PATH,),
    ),
    Spec(
        name="tree",
        summary="Draw everything below a path.",
        example="tree -d 2 /",
        options=(Option("d", "at most so many levels", "depth"),),
        arguments=(Argument("path", required=False, is_path=True),),
    ),
    Spec(
        name="version",
        summary="Show the version of this shell.",
        example="version",
    ),
    Spec(
        name="whoami",
        summary="Show the identities this connection has proved.",
        example="whoami",
    ),
)

SPECS: Final[dict[str, Spec]] = {spec.name: spec for spec in _SPECS}

ALIASES: Final = {"exit": "quit"}


def spec_of(name: str) -> Spec:
    """Return a command's description.

    Raises:
        UsageError: there is no such command; the message names the nearest.
    """
    spec = SPECS.get(ALIASES.get(name, name))
    if spec is not None:
        return spec
    by_lower = {known.lower(): known for known in SPECS}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"did you mean {by_lower[near[0]]}? " if near else ""
    raise UsageError(f"Command not found: {name} ({hint}`help` lists all commands)")


def help_text(name: str | None) -> str:
    """Return one line per command, or the whole help for one.

    Raises:
        UsageError: there is no such command.
    """
    if name is None:
        width = max(map(len, SPECS))
        lines = [f"{spec.name:<{width}}  {spec.summary}" for spec in SPECS.values()]
        return "\n".join([*lines, "", "`help COMMAND` shows its options and an example."])
    spec = spec_of(name)
    lines = [spec.summary, "", f"usage:   {spec.usage}", f"example: {spec.example}"]
    if spec.options:
        lines.append("")
        names = [f"-{option.name} {option.value}".rstrip() for option in spec.options]
        width = min(24, max(map(len, names)))
        lines += [
            f"  {shown:<{width}}  {option.help}" for shown, option in zip(names, spec.options, strict=True)
        ]
    return "\n".join(lines)
