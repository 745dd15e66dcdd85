"""Group 0's registry of topics as part of the tree's state: who may change what of it, and which settings bound it.

[TOPICS, encoded registry command] is answered with the registry's `Result`, also when that refuses. A client needs CREATE
of the topic's ACL to create it, and DELETE to change or delete it. While nobody has set a default, these are the rights that
it would need for a znode at the root. Servers and leaders, which hold the cluster's key, have no ids and need no rights.
"""

from __future__ import annotations

from zraft.topics.registry import Registry
from zraft.tree.paths import ROOT
from zraft.tree.settings import Settings
from zraft.tree.znodes import Tree
from zraft_core.errors import Code, ProtocolError
from zraft_core.topics.codec import decode_registry
from zraft_core.topics.registry_commands import (
    AlterTopic,
    CloseProducer,
    CreateTopic,
    DeleteTopic,
    EndOwner,
    RegisterProducer,
    RegistryCommand,
    RetainTopic,
)
from zraft_core.topics.registry_values import RegistrySettings, Result
from zraft_core.znodes.acl import CREATE, DELETE, WRITE, permits
from zraft_core.znodes.txn import Command


def limits_of(settings: Settings) -> RegistrySettings:
    """Return the registry's settings from the replicated ones."""
    return RegistrySettings(
        settings.topics_max,
        settings.topics_groups_max,
        settings.topics_partitions_max,
        settings.topics_producers_max,
        settings.topics_destinations_max,
    )


def change_topics(tree: Tree, registry: Registry, command: Command, zxid: int) -> Result | Code:
    """Execute [TOPICS, encoded registry command].

    MARSHALLING_ERROR if it is none; NO_AUTH without the right; BAD_ARGUMENTS for a producer that is not the session's,
    and for what only a leader or nobody may say.
    """
    if len(command) != 2 or command[1].__class__ is not bytes:
        return Code.MARSHALLING_ERROR
    try:
        wanted = decode_registry(command[1])
    except ProtocolError:
        return Code.MARSHALLING_ERROR
    refused = _refused(tree, registry, wanted)
    return registry.apply(wanted, zxid) if refused is Code.OK else refused


def _refused(tree: Tree, registry: Registry, command: RegistryCommand) -> Code:
    """Return OK if whoever wrote this run may say so."""
    session = tree.session
    by_client = session is not None or bool(tree.ids)
    match command:
        case RegisterProducer(owner):
            # A producer lives as long as its session: without one, nobody would ever close it.
            return Code.OK if session is not None and owner == session.id else Code.BAD_ARGUMENTS
        case CloseProducer(producer):
            if not by_client:
                return Code.OK
            mine = session is not None and registry.producers.get(producer) == session.id
            return Code.OK if mine else Code.BAD_ARGUMENTS
        case CreateTopic(name):
            right = of_root = CREATE
        case AlterTopic(name) | RetainTopic(name):
            right, of_root = DELETE, WRITE
        case DeleteTopic(name):
            right = of_root = DELETE
        case EndOwner():
            return Code.BAD_ARGUMENTS  # it follows from the end of the session
        case _:
            return Code.BAD_ARGUMENTS if by_client else Code.OK
    acl = tree.topic_acls.of_topic(name) if tree.topic_acls.exist else None
    if acl is None:
        root = tree.nodes.get(ROOT)
        assert root is not None, "the root cannot be deleted"
        acl, right = root.acl, of_root
    return Code.OK if not by_client or permits(acl, right, tree.ids) else Code.NO_AUTH
