"""Where values come from: file, then environment, then flags; and what is said about a wrong one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft.config.knobs import KNOBS, load_config
from zraft.config.sections import ClientConfig
from zraft.config.server import ServerConfig, secret_knobs, settings_in_force
from zraft_core.address import Address
from zraft_core.errors import ConfigError
from zraft_core.ids import ServerId

SINGLE: dict[str, object] = {
    "id": "1",
    "data": "data",
    "address": "10.0.0.1:2181",
    "cluster": "1=10.0.0.1:2181",
}


def load(
    flags: dict[str, object] | None = None, environ: dict[str, str] | None = None, **more: Any
) -> ServerConfig:
    return load_config(flags=SINGLE | (flags or {}), environ=environ or {}, **more)


def refusal(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        load(*args, **kwargs)
    return str(refused.value)


@pytest.fixture
def toml(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        file = tmp_path / "zraft.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def test_flags_win_over_the_environment_and_that_over_the_file(toml: Any) -> None:
    file = toml("tick_time_ms = 1000\n[raft]\nheartbeat_ticks = 10\n[wal]\nsegment_bytes_max = 100000\n")
    environ = {"ZRAFT_RAFT__HEARTBEAT_TICKS": "20", "ZRAFT_WAL__SEGMENT_BYTES_MAX": "200000"}
    config = load({"wal.segment_bytes_max": "300000"}, environ, file=file)
    assert config.tick_time_ms == 1_000
    assert config.raft.heartbeat_ticks == 20
    assert config.wal.segment_bytes_max == 300_000


def test_everything_can_come_from_the_file(toml: Any) -> None:
    file = toml(
        """
        id = 2
        data = "state"
        address = "[::]:2181"
        key = ["a.key", "/etc/zraft/b.key"]
        log_format = "json"
        [cluster]
        1 = "zk1:2181"
        2 = "zk2:2181"
        """
    )
    config = load_config(flags={}, environ={}, file=file)
    assert config.id == 2
    assert config.cluster == {1: Address("zk1", 2181), 2: Address("zk2", 2181)}
    # relative to the file, so that the file means the same from every directory
    assert config.data == file.parent / "state"
    assert config.key_files == (file.parent / "a.key", Path("/etc/zraft/b.key"))
    assert config.log_format == "json"


def test_sections_hold_paths_addresses_switches_and_choices(toml: Any) -> None:
    file = toml(
        """
        [tls]
        certificate = "server.pem"
        key = "/etc/zraft/server.key"
        client_ca = "ca.pem"
        client_auth = "need"
        required = true
        address = "[::]:2281"
        version_min = 1.3
        [auth]
        sasl_users_file = "users"
        required_schemes = ["sasl", "x509", "sasl"]
        """
    )
    config = load({}, {"ZRAFT_AUTH__SUPER_USER": "root"}, file=file)
    assert config.tls.certificate == file.parent / "server.pem"
    assert config.tls.key == Path("/etc/zraft/server.key")
    assert config.tls.client_auth == "need"
    assert config.tls.required
    assert config.tls.address == Address("::", 2281)
    assert config.tls.version_min == "1.3"
    assert config.auth.required_schemes == ("sasl", "x509")
    assert config.auth.super_user == "root"
    by_flag = load({"auth.required_schemes": "digest, sasl", "auth.sasl_users_file": "users"})
    assert by_flag.auth.required_schemes == ("digest", "sasl")
    assert by_flag.auth.sasl_users_file == Path("users")
    for name, found in (
        ("tls.version_min", "1.1"),
        ("tls.client_auth", "maybe"),
        ("tls.required", "yes"),
        ("auth.required_schemes", "sasl,ip"),
        ("auth.required_schemes", ""),
        ("tls.address", "nowhere"),
        ("tls.certificate", ""),
    ):
        assert name in refusal({name: found})


def test_the_admin_server_is_an_address_or_a_table_with_names_for_browsers(toml: Any) -> None:
    admin = Address("127.0.0.1", 8080)
    assert load(file=toml('admin = "127.0.0.1:8080"\n')).admin == admin
    config = load(file=toml('[admin]\naddress = "127.0.0.1:8080"\nhosts = ["ZK1.example.org.", "zk2"]\n'))
    assert (config.admin, config.admin_hosts) == (admin, ("zk1.example.org", "zk2"))
    config = load({"admin": "127.0.0.1:8080"}, {"ZRAFT_ADMIN__HOSTS": "zk1, zk2"})
    assert config.admin_hosts == ("zk1", "zk2")
    assert "zk1:8080" in refusal({"admin": "127.0.0.1:8080", "admin.hosts": "zk1:8080"})
    assert "there is no such knob" in refusal(file=toml('[admin]\nhost = "zk1"\n'))


def test_bounds_that_nobody_named_grow_with_the_longest_answer() -> None:
    """A configuration of the release before, which knew no sums, still starts."""
    client = load({"client.reply_bytes_max": "134217728"}).client
    assert client.output_bytes_max == client.output_bytes_per_address_max == 134_217_728
    assert client.output_bytes_sum_max == 134_217_728
    assert client.input_bytes_sum_max == ClientConfig().input_bytes_sum_max


def test_a_bound_that_was_named_is_not_raised_but_refused() -> None:
    said = refusal({"client.reply_bytes_max": "67108864", "client.output_bytes_max": "1048576"})
    assert said == (
        "client.output_bytes_max: found 1048576, expected at least client.reply_bytes_max (67108864)"
    )


def test_the_environment_may_name_the_file(toml: Any) -> None:
    file = toml("tick_time_ms = 1234\n")
    assert load(environ={"ZRAFT_CONFIG": str(file)}).tick_time_ms == 1_234


@pytest.mark.parametrize("name", ["id", "data", "address", "cluster"])
def test_a_missing_setting_is_named_with_all_ways_to_set_it(name: str) -> None:
    flags = {key: value for key, value in SINGLE.items() if key != name}
    with pytest.raises(ConfigError) as refused:
        load_config(flags=flags, environ={})
    assert str(refused.value).startswith(f"{name}: not set; pass --{name}, set ZRAFT_{name.upper()}")


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("wal.segment_byte_max", "wal.segment_bytes_max"),
        ("segment_bytes_max", "wal.segment_bytes_max"),
        ("raft.jute_maxbuffer", "client.jute_maxbuffer"),
        ("tick_time", "tick_time_ms"),
        ("adress", "address"),
    ],
)
def test_an_unknown_knob_is_refused_and_the_nearest_one_is_named(misspelt: str, meant: str) -> None:
    message = refusal({misspelt: "1"})
    assert message.startswith(f"{misspelt} (on the command line): there is no such knob; ")
    assert meant in message


def test_an_unknown_key_of_the_file_is_refused(toml: Any) -> None:
    file = toml("[wal]\nsegment_size = 1\n")
    message = refusal(file=file)
    assert message.startswith(f"wal.segment_size (in {file}): there is no such knob")
    assert "wal.segment_bytes_max" in message


def test_an_unknown_section_of_the_file_is_refused(toml: Any) -> None:
    assert "there is no such knob" in refusal(file=toml("[walls]\nsegment_bytes_max = 1\n"))


def test_a_section_that_is_no_table_is_refused(toml: Any) -> None:
    assert "expected a table, [wal]" in refusal(file=toml("wal = 3\n"))


def test_an_unknown_variable_is_refused_and_the_nearest_one_is_named() -> None:
    message = refusal(environ={"ZRAFT_WAL_SEGMENT_BYTES_MAX": "1"})
    assert "ZRAFT_WAL_SEGMENT_BYTES_MAX sets no knob; did you mean ZRAFT_WAL__SEGMENT_BYTES_MAX?" in message


def test_the_variables_kubernetes_makes_for_a_service_called_zraft_are_no_knobs() -> None:
    made = {
        "ZRAFT_SERVICE_HOST": "10.96.0.7",
        "ZRAFT_SERVICE_PORT": "2181",
        "ZRAFT_SERVICE_PORT_CLIENT": "2181",
        "ZRAFT_PORT": "tcp://10.96.0.7:2181",
        "ZRAFT_PORT_2181_TCP": "tcp://10.96.0.7:2181",
        "ZRAFT_PORT_2181_TCP_PROTO": "tcp",
        "ZRAFT_PORT_2181_TCP_ADDR": "10.96.0.7",
        "ZRAFT_HEADLESS_SERVICE_HOST": "None",
        "KAFKA_HEAP": "not ours",
    }
    assert load(environ=made) == load()
    assert "sets no knob" in refusal(environ={"ZRAFT_PORTS": "1"})


@pytest.mark.parametrize("found", ["", "abc", "-1", "1.5", "0", "60001", "1" * 5000, True, 1.0, None, [], {}])
def test_a_count_is_a_whole_number_within_its_bounds(found: object) -> None:
    message = refusal({"raft.election_timeout_ticks": found})
    assert message.startswith("raft.election_timeout_ticks (on the command line): found ")
    assert message.endswith("expected a whole number from 20 to 60000")


@pytest.mark.parametrize("found", ["yes", "1", 1, ""])
def test_a_switch_is_true_or_false(found: object) -> None:
    assert refusal({"insecure_peers": found}).endswith("expected true or false")


def test_the_source_of_a_wrong_value_is_named(toml: Any) -> None:
    file = toml("tick_time_ms = 'long'\n")
    assert refusal(file=file).startswith(f"tick_time_ms (in {file}): found 'long'")
    assert refusal(environ={"ZRAFT_TICK_TIME_MS": "long"}).startswith(
        "tick_time_ms (from ZRAFT_TICK_TIME_MS): found 'long'"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1:10.0.0.1:2181", "expected ID=HOST:PORT"),
        ("1=10.0.0.1:2181,1=10.0.0.2:2181", "server 1 is given twice"),
        ("1=10.0.0.1:2181,", "expected ID=HOST:PORT"),
        ("x=10.0.0.1:2181", "server id: found 'x', expected a whole number from 1 to 254"),
        ("1=10.0.0.1:2181,2=nowhere", "server 2: found 'nowhere', expected HOST:PORT"),
        ("", "expected text"),
    ],
)
def test_a_wrong_cluster_list_says_which_part_is_wrong(text: str, complaint: str) -> None:
    message = refusal({"cluster": text})
    assert message.startswith("cluster (on the command line)")
    assert complaint in message


def test_a_file_that_cannot_be_read_or_is_no_toml_is_named(tmp_path: Path, toml: Any) -> None:
    missing = tmp_path / "missing.toml"
    assert refusal(file=missing).startswith(f"config: cannot read {missing}")
    assert "is not TOML" in refusal(file=toml("id = = 1"))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert refusal(file=binary).startswith(f"config: cannot read {binary}")


def test_datagrams_are_large_only_when_every_server_is_on_loopback() -> None:
    local: dict[str, object] = {"address": "127.0.0.1:2181", "cluster": "1=127.0.0.1:2181"}
    assert load(local).peer.datagram_bytes == 60_000
    assert load().peer.datagram_bytes == 1_400
    assert load(local | {"peer.datagram_bytes": "1400"}).peer.datagram_bytes == 1_400


@given(st.sampled_from(sorted(KNOBS)), st.text(max_size=20) | st.integers() | st.booleans() | st.none())
def test_no_value_of_any_knob_raises_anything_but_a_config_error(name: str, found: object) -> None:
    with suppress(ConfigError):
        load({name: found})


def test_every_default_is_within_its_own_bounds() -> None:
    for knob in KNOBS.values():
        if knob.default.isdigit():
            assert knob.parse(knob.default, knob.name) == int(knob.default)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("ruok, srvr,mntr", ("ruok", "srvr", "mntr")),
        ("*", ("*",)),
        ("ruok,ruok", ("ruok",)),
        ("", ()),
        (["ruok", "dump"], ("ruok", "dump")),
        ([], ()),
    ],
)
def test_words_are_a_list_or_text_with_commas(written: object, expected: tuple[str, ...]) -> None:
    assert load({"client.four_letter_words": written}).client.four_letter_words == expected


@pytest.mark.parametrize("written", ["ruok srvr", "RUOK", "r*", 7, ["ruok", 3], [""]])
def test_what_is_no_word_is_refused(written: object) -> None:
    assert refusal({"client.four_letter_words": written}).startswith(
        "client.four_letter_words (on the command line): found"
    )


def test_settings_in_force_name_every_knob_once_as_it_would_be_written() -> None:
    found = settings_in_force(load({"client.four_letter_words": "ruok,mntr", "admin": "127.0.0.1:9"}))
    assert sorted(name for name, _ in found) == sorted(KNOBS)
    values = dict(found)
    assert values["client.four_letter_words"] == "ruok,mntr"
    assert values["cluster"] == "1=10.0.0.1:2181"
    assert (values["admin"], values["key"], values["insecure_peers"]) == ("127.0.0.1:9", "none", "false")


def test_settings_in_force_show_no_secret() -> None:
    """The admin pages print them."""
    found = dict(settings_in_force(load({"auth.super_digest": "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="})))
    assert found["auth.super_digest"] == "set, not shown"
    assert dict(settings_in_force(load({})))["auth.super_digest"] == "none"
    assert secret_knobs() == {"auth.super_digest", "admin.console_token"}


def test_a_token_of_the_console_is_long_enough_not_to_be_guessed_and_never_quoted() -> None:
    assert load({"admin.console_token": "a" * 16}).admin_console_token == "a" * 16
    with pytest.raises(ConfigError, match=r"^admin\.console_token: found 5 characters") as refused:
        load({"admin.console_token": "guess"})
    assert "guess" not in str(refused.value)


def test_observers_are_marked_in_the_list_of_servers() -> None:
    config = load({"cluster": "1=10.0.0.1:2181,2=10.0.0.2:2181,4=10.0.0.4:2181:observer", "key": "k"})
    assert config.observers == {4}
    assert str(config.cluster[ServerId(4)]) == "10.0.0.4:2181"
    shown = dict(settings_in_force(config))["cluster"]
    assert shown == "1=10.0.0.1:2181,2=10.0.0.2:2181,4=10.0.0.4:2181:observer"


def test_somebody_must_vote() -> None:
    with pytest.raises(ConfigError, match="all servers are observers"):
        load({"cluster": "1=10.0.0.1:2181:observer"})
