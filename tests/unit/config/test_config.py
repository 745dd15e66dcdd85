"""The rules between settings: each has a smallest configuration that breaks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zraft.config.sections import AuthConfig, ClientConfig, RaftConfig, TlsConfig
from zraft.config.server import ServerConfig
from zraft_core.address import Address
from zraft_core.errors import ConfigError
from zraft_core.ids import ServerId

KEY = Path("cluster.key")


def cluster_of(servers: int) -> dict[ServerId, Address]:
    return {ServerId(n): Address(f"10.0.0.{n}", 2181) for n in range(1, servers + 1)}


def config(servers: int = 3, **changes: Any) -> ServerConfig:
    values: dict[str, Any] = {
        "id": ServerId(1),
        "data": Path("data"),
        "address": Address("10.0.0.1", 2181),
        "cluster": cluster_of(servers),
        "key_files": (KEY,) if servers > 1 else (),
    }
    return ServerConfig(**(values | changes))


def refusal(**changes: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        config(**changes)
    return str(refused.value)


def test_session_timeouts_follow_tick_time_as_in_zookeeper() -> None:
    made = config(tick_time_ms=3_000)
    assert (made.session_timeout_ms_min, made.session_timeout_ms_max) == (6_000, 60_000)
    assert config(session_timeout_ms_min=5_000).session_timeout_ms_min == 5_000


def test_a_cluster_without_a_key_does_not_start_unless_told_so_in_words() -> None:
    """D-6: a forgotten key must not silently mean an open cluster."""
    message = refusal(key_files=())
    assert message.startswith("key: not set")
    assert "zraft key new" in message
    assert "--insecure-peers" in message
    assert config(key_files=(), insecure_peers=True).insecure_peers


def test_a_single_server_needs_no_key() -> None:
    assert config(servers=1).key_files == ()


def test_two_keys_are_for_rotation_and_three_are_a_mistake() -> None:
    """D-6: two cluster keys are valid at once."""
    assert len(config(key_files=(KEY, Path("next.key"))).key_files) == 2
    assert refusal(key_files=(KEY, Path("b"), Path("c"))).startswith("key: found 3 files")
    assert refusal(key_files=(KEY, KEY)).startswith("key: cluster.key is given twice")


def test_a_key_and_insecure_peers_contradict_each_other() -> None:
    assert refusal(insecure_peers=True).startswith("insecure_peers: ")


def test_the_cluster_lists_this_server() -> None:
    assert refusal(id=ServerId(4)) == "cluster: lists servers 1, 2, 3 but not this one, id 4"


@pytest.mark.parametrize("server", [0, 255, -1])
def test_a_server_id_fits_the_top_byte_of_a_session_id(server: int) -> None:
    assert refusal(id=ServerId(server)) == f"id: found {server}, expected 1 to 254"
    listed = {ServerId(1): Address("10.0.0.1", 2181), ServerId(server): Address("10.0.0.2", 2181)}
    assert refusal(cluster=listed) == f"cluster: found server id {server}, expected 1 to 254"


def test_two_servers_are_not_at_one_address() -> None:
    cluster = cluster_of(3) | {ServerId(3): Address("10.0.0.2", 2181)}
    assert refusal(cluster=cluster) == "cluster: servers 2 and 3 are both at 10.0.0.2:2181"


def test_peers_cannot_send_to_a_wildcard() -> None:
    cluster = cluster_of(3) | {ServerId(2): Address("0.0.0.0", 2181)}
    assert "server 2 is at 0.0.0.0:2181" in refusal(cluster=cluster)


def test_a_server_listens_on_the_port_its_peers_send_to() -> None:
    assert config(address=Address("0.0.0.0", 2181)).address.is_wildcard
    assert refusal(address=Address("10.0.0.1", 2182)).startswith("address: 10.0.0.1:2182 and cluster: 1=")


def test_the_admin_server_has_a_port_of_its_own() -> None:
    assert refusal(admin=Address("10.0.0.1", 2181)).startswith("admin: 10.0.0.1:2181 is also address")


def test_two_lost_heartbeats_do_not_start_an_election() -> None:
    message = refusal(raft=RaftConfig(election_timeout_ticks=149, heartbeat_ticks=50))
    assert message.startswith("raft.election_timeout_ticks: found 149")
    assert config(raft=RaftConfig(election_timeout_ticks=150, heartbeat_ticks=50))


def test_an_election_alone_does_not_make_a_server_give_up_its_clients() -> None:
    """D-14: clients are given up after a third of the smallest session timeout without contact."""
    message = refusal(session_timeout_ms_min=899)
    assert message.startswith("session_timeout_ms_min: found 899")
    assert config(session_timeout_ms_min=900)


def test_the_longest_session_timeout_is_not_below_the_shortest() -> None:
    assert refusal(session_timeout_ms_max=3_999).startswith("session_timeout_ms_max: found 3999")


def test_the_largest_request_fits_the_bound_on_outstanding_writes() -> None:
    client = ClientConfig(jute_maxbuffer=1_048_575, outstanding_bytes_max=1_048_574)
    assert refusal(client=client).startswith("client.outstanding_bytes_max: found 1048574")


@pytest.mark.parametrize(
    ("client", "knob", "named"),
    [
        (
            {"reply_bytes_max": 20_000_000},
            "output_bytes_max: found 16777216",
            "client.reply_bytes_max (20000000)",
        ),
        ({"output_bytes_max": 33_554_433}, "output_bytes_per_address_max", "client.output_bytes_max"),
        (
            {"output_bytes_sum_max": 33_554_431},
            "output_bytes_sum_max",
            "client.output_bytes_per_address_max",
        ),
        ({"input_bytes_per_address_max": 1_048_574}, "input_bytes_per_address_max", "client.jute_maxbuffer"),
        (
            {"input_bytes_sum_max": 16_777_215},
            "input_bytes_sum_max",
            "client.input_bytes_per_address_max",
        ),
        (
            {"unfinished_bytes_per_address_max": 2_097_149},
            "unfinished_bytes_per_address_max",
            "2 times client.jute_maxbuffer (2097150)",
        ),
        (
            {"unfinished_bytes_sum_max": 16_777_215},
            "unfinished_bytes_sum_max",
            "client.unfinished_bytes_per_address_max",
        ),
    ],
)
def test_the_largest_thing_fits_within_each_bound_and_an_address_within_all(
    client: dict[str, Any], knob: str, named: str
) -> None:
    message = refusal(client=ClientConfig(**client))
    assert message.startswith(f"client.{knob}")
    assert named in message


def test_names_for_browsers_need_an_admin_server() -> None:
    assert refusal(admin_hosts=("zk1.example",)).startswith("admin.hosts: found zk1.example")


def test_a_full_append_fits_the_window() -> None:
    raft = RaftConfig(append_bytes_max=524_288, inflight_bytes_max=524_287)
    assert refusal(raft=raft).startswith("raft.inflight_bytes_max: found 524287")


CERTIFICATE = Path("server.pem")


@pytest.mark.parametrize(
    ("tls", "named"),
    [
        ({"key": KEY}, "tls.key"),
        ({"required": True}, "tls.required"),
        ({"address": Address("10.0.0.1", 2281)}, "tls.address"),
        ({"client_ca": KEY, "client_auth": "need"}, "tls.client_ca"),
        ({"certificate": CERTIFICATE, "client_auth": "want"}, "tls.client_auth"),
        ({"certificate": CERTIFICATE, "client_ca": KEY}, "tls.client_ca"),
        ({"certificate": CERTIFICATE, "address": Address("10.0.0.1", 2181)}, "tls.address"),
    ],
)
def test_a_tls_setting_without_what_it_needs_is_a_mistake(tls: dict[str, Any], named: str) -> None:
    """A server that seems to ask for certificates, and does not, is worse than one that does not start."""
    assert refusal(tls=TlsConfig(**tls)).startswith(named)


@pytest.mark.parametrize(
    ("auth", "named"),
    [
        ({"x509_super_user": "CN=root"}, "auth.x509_super_user"),
        ({"super_user": "root"}, "auth.super_user"),
        ({"super_digest": "no-colon"}, "auth.super_digest"),
        ({"required_schemes": ("sasl",)}, "auth.required_schemes"),
        ({"required_schemes": ("x509", "sasl")}, "auth.required_schemes"),
    ],
)
def test_an_authentication_that_nobody_can_meet_is_a_mistake(auth: dict[str, Any], named: str) -> None:
    message = refusal(auth=AuthConfig(**auth))
    assert message.startswith(named)
    assert "no-colon" not in message


def test_requirements_that_can_be_met_are_fine() -> None:
    mutual = TlsConfig(certificate=CERTIFICATE, client_ca=KEY, client_auth="want")
    config(tls=mutual, auth=AuthConfig(required_schemes=("x509",), x509_super_user="CN=root"))
    config(auth=AuthConfig(required_schemes=("sasl",), sasl_users_file=KEY))
    config(auth=AuthConfig(required_schemes=("digest",)))
