"""Knobs reach what decides by them; rooms that know no configuration have the same defaults and bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from attrs import fields

from zraft.config.knobs import load_config
from zraft.config.sections import RaftConfig, WalConfig
from zraft.config.server import DECLARED, SECTIONS, ServerConfig
from zraft.config.topics import DeliveriesConfig
from zraft.raft.settings import RaftSettings
from zraft.server.process.configured import (
    KNOBS_OF_SETTINGS,
    delivery_settings,
    driver_settings,
    partition_settings,
    wal_settings,
)
from zraft.storage.delivery.settings import DeliverySettings
from zraft.storage.settings import WalSettings
from zraft.tree.settings import Settings
from zraft_core.address import Address
from zraft_core.errors import ConfigError
from zraft_core.ids import ServerId

OWN_ADDRESS = Address("10.0.0.1", 2181)
FOREIGN = {
    "raft": {"batch_bytes_max"},
    "wal": {"slow_fsync_ms", "loop_sync_us"},
    "deliveries": {"waiting_bytes_max", "sync_interval_ms"},
}
"""Knobs of a section that are decided by elsewhere."""


def all_changed() -> ServerConfig:
    """Every number of these sections is another one than its default."""
    sections = ("raft", "wal", "client", "snapshot", "groups", "partitions", "deliveries")
    changed = {
        one.name: cast(int, one.attribute.default) + 1
        for one in DECLARED
        if one.section in sections and one.declaration.kind == "count"
    }
    return load_config(
        flags={
            "id": 1,
            "data": Path("data"),
            "address": OWN_ADDRESS,
            "cluster": {ServerId(1): OWN_ADDRESS},
            **changed,
        },
        environ={},
    )


def test_every_knob_of_a_section_reaches_what_decides_by_it() -> None:
    config = all_changed()
    driver = driver_settings(config, None)
    for section, found in (
        ("raft", driver.raft),
        ("client", driver.clients),
        ("snapshot", driver.snapshots),
        ("groups", driver.groups),
        ("partitions", partition_settings(config)),
        ("deliveries", delivery_settings(config)),
        ("wal", wal_settings(config)),
    ):
        names = {field.name for field in fields(SECTIONS[section])} - FOREIGN.get(section, set())
        for name in names:
            assert getattr(found, name) == getattr(getattr(config, section), name), (section, name)
    assert driver.entry_bytes_max == config.raft.batch_bytes_max
    assert driver.slow_fsync_ms == config.wal.slow_fsync_ms


def test_groups_of_topics_have_the_coordination_groups_timeouts_and_bounds_of_their_own() -> None:
    driver = driver_settings(all_changed(), None)
    ours, theirs = driver.raft, driver.groups.raft
    differing = {
        field.name
        for field in fields(RaftSettings)
        if getattr(ours, field.name) != getattr(theirs, field.name)
    }
    assert differing == {"uncommitted_bytes_max", "pending_reads_max"}


@pytest.mark.parametrize(
    ("section", "kind", "settings"),
    [
        ("raft", RaftConfig, RaftSettings),
        ("wal", WalConfig, WalSettings),
        ("deliveries", DeliveriesConfig, DeliverySettings),
    ],
)
def test_a_room_that_knows_no_configuration_has_the_knobs_defaults(
    section: str, kind: Any, settings: Any
) -> None:
    declared, own = kind(), settings()
    names = {field.name for field in fields(kind)} - FOREIGN[section]
    assert {name: getattr(own, name) for name in names} == {name: getattr(declared, name) for name in names}


def test_deliveries_are_bounded_as_their_knobs_are() -> None:
    knobs = [one for one in DECLARED if one.section == "deliveries"]
    for knob in knobs:
        name, declared = knob.attribute.name, knob.declaration
        if name in FOREIGN["deliveries"]:
            continue
        for good in (declared.lowest, declared.highest):
            DeliverySettings(**{name: good})
        for bad in (declared.lowest - 1, declared.highest + 1):
            with pytest.raises(ConfigError, match=name):
                DeliverySettings(**{name: bad})


def test_replicated_settings_have_the_defaults_of_their_knobs() -> None:
    declared = {one.name: one.attribute.default for one in DECLARED}
    for name, knob in KNOBS_OF_SETTINGS.items():
        if isinstance(declared[knob], int):  # the session timeouts follow from the tick
            assert getattr(Settings(), name) == declared[knob], name
