"""ZooKeeper's configuration taken as ours: zoo.cfg, myid and the environment of its official image."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft.config.features import FEATURE_LEVEL_MAX, LEVEL_OF_MEMBERS
from zraft.config.knobs import KNOBS, load_config
from zraft.config.server import ServerConfig
from zraft.config.zoo_cfg import (
    KEYS,
    ConfigNote,
    Effect,
    Level,
    is_zoo_cfg,
    known_key,
    parse_server_line,
    translate,
)
from zraft.config.zoo_env import KEY_OF, java_properties, read_environment
from zraft.tree.members import WantedMember, config_text
from zraft_core.address import Address
from zraft_core.errors import ConfigError
from zraft_core.ids import ServerId

REPOSITORY = Path(__file__).parents[3]
THREE = "server.1=zk1:2888:3888\nserver.2=zk2:2888:3888\nserver.3=zk3:2888:3888\n"
CLASSIC = (
    "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=state\nclientPort=2181\nzraft.key=cluster.key\n"
    + THREE
)
IMAGE = {
    "ZOO_CONF_DIR": "/nonexistent",
    "ZOO_DATA_LOG_DIR": "/datalog",
    "ZOO_LOG_DIR": "/logs",
    "ZOO_TICK_TIME": "2000",
    "ZOO_INIT_LIMIT": "5",
    "ZOO_SYNC_LIMIT": "2",
    "ZOO_AUTOPURGE_PURGEINTERVAL": "0",
    "ZOO_AUTOPURGE_SNAPRETAINCOUNT": "3",
    "ZOO_STANDALONE_ENABLED": "true",
}
"""What the image sets by itself, but for the data directory."""


class Place:
    """A zoo.cfg and its dataDir on disk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "zoo.cfg"
        self.data = directory / "state"
        self.data.mkdir()
        self.notes: list[ConfigNote] = []

    def load(
        self,
        text: str | None = None,
        *,
        myid: str | None = None,
        environ: dict[str, str] | None = None,
        **flags: object,
    ) -> ServerConfig:
        if myid is not None:
            (self.data / "myid").write_text(myid)
        if text is not None:
            self.file.write_text(text)
        self.notes.clear()
        return load_config(
            flags=flags,
            environ=environ or {},
            file=None if text is None else self.file,
            on_note=self.notes.append,
        )

    def refusal(self, *args: Any, **kwargs: Any) -> str:
        with pytest.raises(ConfigError) as refused:
            self.load(*args, **kwargs)
        return str(refused.value)

    def warnings(self) -> dict[str, str]:
        return {note.key: note.text for note in self.notes if note.level is Level.WARNING}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# -- a file


def test_a_classic_zoo_cfg_with_myid_is_a_complete_configuration(place: Place) -> None:
    config = place.load(CLASSIC + "minSessionTimeout=3000\nmaxSessionTimeout=-1\n", myid="2\n")
    assert config.id == 2
    assert config.address == Address("0.0.0.0", 2181)
    assert config.cluster == {n: Address(f"zk{n}", 2181) for n in (1, 2, 3)}
    assert config.tick_time_ms == 2_000
    assert (config.session_timeout_ms_min, config.session_timeout_ms_max) == (3_000, 40_000)
    assert config.key_files == (place.directory / "cluster.key",)
    assert config.admin is None
    assert place.notes == []


def test_data_stands_in_a_directory_of_its_own_below_data_dir(place: Place) -> None:
    """ZooKeeper's files stay as they are, so that going back is possible; and they must not look like ours."""
    assert place.load(CLASSIC, myid="1").data == place.data / "zraft"


def test_beside_data_of_zookeeper_a_server_founds_no_cluster_unless_it_is_told_to(place: Place) -> None:
    """With one warning it founded an empty one on the production port, and live clients made their roots anew in it."""
    assert place.load(CLASSIC, myid="1").founds
    (place.data / "version-2").mkdir()
    assert not place.load(CLASSIC, myid="1").founds
    assert place.warnings() == {}, "a server that joins an imported tree begins with all of its znodes"
    elsewhere = place.directory / "elsewhere"
    assert not place.load(f"{CLASSIC}zraft.data={elsewhere}\n", myid="1").founds, "it is ZooKeeper's file"
    assert place.load(f"{CLASSIC}zraft.founds=true\n", myid="1").founds
    assert place.load(CLASSIC, environ={"ZRAFT_FOUNDS": "true"}).founds
    assert place.load(CLASSIC, founds="true").founds
    flags: dict[str, Any] = {"id": 1, "address": "h:1", "cluster": "1=h:1"}
    assert not place.load(**flags, data=str(place.data / "zraft")).founds, (
        "no file says that it is ZooKeeper's"
    )
    assert place.load(**flags, data=str(elsewhere)).founds


def test_a_standalone_zoo_cfg_needs_neither_myid_nor_key(place: Place) -> None:
    config = place.load("dataDir=state\nclientPort=2182\n")
    assert (config.id, config.address, dict(config.cluster)) == (
        1,
        Address("0.0.0.0", 2182),
        {1: Address("0.0.0.0", 2182)},
    )


def test_a_zoo_cfg_is_known_by_its_name_or_its_keys() -> None:
    assert is_zoo_cfg("zoo.cfg", "")
    assert is_zoo_cfg("settings", "# x\n  dataDir = /var\n")
    assert is_zoo_cfg("settings", "server.1=a:1:2")
    assert not is_zoo_cfg("zraft.toml", "tickTime=2000")
    assert not is_zoo_cfg("settings", 'data = "/var"\n[raft]\nheartbeat_ticks = 5\n')


def test_a_client_port_of_a_server_line_counts_for_that_server(place: Place) -> None:
    text = "dataDir=state\nzraft.key=k\nserver.1=zk1:2888:3888:participant;2181\nserver.2=zk2:2888:3888;0.0.0.0:2182\n"
    config = place.load(text, myid="2")
    assert config.address == Address("0.0.0.0", 2182)
    assert config.cluster == {1: Address("zk1", 2181), 2: Address("zk2", 2182)}


@pytest.mark.parametrize("level", [LEVEL_OF_MEMBERS, FEATURE_LEVEL_MAX])
def test_what_the_configuration_of_the_ensemble_shows_may_be_the_dynamic_file(
    place: Place, level: int
) -> None:
    members = {
        ServerId(1): WantedMember(True, "10.0.0.1:2181"),
        ServerId(2): WantedMember(False, "[fd00::2]:2182"),
    }
    (place.directory / "servers").write_bytes(config_text(members, 42, level))
    config = place.load("dataDir=state\nzraft.key=k\ndynamicConfigFile=servers\n", myid="2")
    assert config.address == Address("fd00::2", 2182)
    assert config.cluster == {1: Address("10.0.0.1", 2181), 2: Address("fd00::2", 2182)}
    assert config.observers == {2}


def test_an_own_client_host_is_listened_on_and_that_of_others_is_where_peers_send(place: Place) -> None:
    text = "dataDir=state\nzraft.key=k\nserver.1=zk1:2888:3888;10.0.0.1:2181\nserver.2=zk2:2888:3888;10.0.0.2:2181\n"
    config = place.load(text, myid="2")
    assert config.address == Address("10.0.0.2", 2181)
    assert config.cluster == {1: Address("10.0.0.1", 2181), 2: Address("10.0.0.2", 2181)}
    assert [n.key for n in place.notes if "by UDP" in n.text] == ["server.1", "server.2"]


def test_client_port_address_is_listened_on(place: Place) -> None:
    config = place.load(CLASSIC + "clientPortAddress=10.0.0.1\n", myid="1")
    assert config.address == Address("10.0.0.1", 2181)
    assert config.cluster[config.id] == Address("10.0.0.1", 2181)


def test_an_own_line_with_a_wildcard_harms_nobody_and_another_servers_is_refused(place: Place) -> None:
    lines = "server.1=0.0.0.0:2888:3888\nserver.2=zk2:2888:3888\n"
    base = "dataDir=state\nclientPort=2181\nzraft.key=k\n"
    assert place.load(base + lines, myid="1").cluster[2] == Address("zk2", 2181)  # type: ignore[index]
    assert "server 1 is at 0.0.0.0:2181, an address that peers cannot send to" in place.refusal(
        base + lines, myid="2"
    )


def test_servers_that_would_share_an_address_are_refused_with_what_to_write(place: Place) -> None:
    """The usual trial set-up: several servers on one machine, each with a clientPort in a file of its own."""
    text = "dataDir=state\nclientPort=2181\nserver.1=localhost:2888:3888\nserver.2=localhost:2889:3889\n"
    message = place.refusal(text, myid="1")
    assert message.startswith("server.1 and server.2 (in ")
    assert "both would be reached at localhost:2181" in message
    assert "server.2=localhost:2888:3888;2182" in message


def test_a_cluster_without_client_ports_is_refused_with_what_to_write(place: Place) -> None:
    message = place.refusal("dataDir=state\n" + THREE, myid="1")
    assert "names no client port, and clientPort is not set" in message
    assert "server.1=zk1:2888:3888;2181" in message


def test_a_client_address_that_only_its_own_machine_reaches_is_refused(place: Place) -> None:
    own = place.refusal(CLASSIC + "clientPortAddress=127.0.0.1\n", myid="1")
    assert "its clients' address is 127.0.0.1:2181, which other machines cannot reach" in own
    other = CLASSIC.replace("zk2:2888:3888", "zk2:2888:3888;127.0.0.1:2181")
    assert place.refusal(other, myid="1").startswith("server.2 (in ")


def test_two_client_ports_for_this_server_are_refused(place: Place) -> None:
    text = CLASSIC.replace("zk2:2888:3888", "zk2:2888:3888;2182")
    assert "found 2181, and server.2 names client port 2182" in place.refusal(text, myid="2")


def test_a_cluster_of_zoo_cfg_without_a_key_is_told_how_to_make_one(place: Place) -> None:
    message = place.refusal(CLASSIC.replace("zraft.key=cluster.key\n", ""), myid="1")
    for what in (
        "zraft key new FILE",
        "copy it to every server",
        "--key FILE",
        "ZRAFT_KEY",
        "zraft.key=FILE",
    ):
        assert what in message


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("peerType=king", "found 'king', expected participant or observer"),
        ("snapSizeLimitInKb=4G", "snapSizeLimitInKb (in "),
        ("server.4=zk4:2888:3888:king", "found role 'king', expected participant"),
        ("server.4=zk4:2888", "expected server.4=HOST:QUORUMPORT:ELECTIONPORT"),
        ("server.4=zk4:2888:99999", "the port is '99999'"),
        ("server.255=zk4:2888:3888", "found server id '255', expected 1 to 254"),
        ("server.0=zk4:2888:3888", "found server id '0'"),
        ("server.x=zk4:2888:3888", "found server id 'x'"),
        ("clientPort=0", "found '0', expected a port from 1 to 65535"),
        ("clientPort=2181 # comment", "found '2181 # comment', expected a port"),
        ("clientPortAddress=a b", "clientPortAddress (in "),
        ("tickTime=fast", "tick_time_ms (tickTime in "),
        ("minSessionTimeout=1", "session_timeout_ms_min (minSessionTimeout in "),
        ("zraft.keys=a", "there is no such knob"),
        ("dynamicConfigFile=missing.dynamic", "dynamicConfigFile (in "),
    ],
)
def test_what_cannot_be_taken_is_refused_under_the_name_the_operator_wrote(
    place: Place, line: str, complaint: str
) -> None:
    assert complaint in place.refusal(CLASSIC + line + "\n", myid="1")


def test_servers_with_ipv6_addresses_listen_at_every_address_of_both_families(place: Place) -> None:
    text = "dataDir=state\nclientPort=2181\nzraft.key=k\nserver.1=[fd00::1]:2888:3888\nserver.2=[fd00::2]:2888:3888\n"
    config = place.load(text + "admin.serverPort=8080\n", myid="1")
    assert config.admin == Address("::", 8080)
    assert config.address == Address("::", 2181)
    assert config.cluster[2] == Address("fd00::2", 2181)  # type: ignore[index]


def test_of_several_addresses_of_a_server_the_first_counts_and_that_is_said(place: Place) -> None:
    text = CLASSIC.replace("server.2=zk2:2888:3888", "server.2=zk2:2888:3888|backup2:2889:3889")
    assert place.load(text, myid="1").cluster[2] == Address("zk2", 2181)  # type: ignore[index]
    assert [(n.level, n.key) for n in place.notes] == [(Level.INFO, "server.2")]


def test_server_lines_may_stand_in_the_dynamic_file(place: Place) -> None:
    (place.directory / "zoo.cfg.dynamic.100000000").write_text(
        THREE.replace("3888\n", "3888;2181\n") + "version=1\n"
    )
    config = place.load("dataDir=state\nzraft.key=k\ndynamicConfigFile=zoo.cfg.dynamic.100000000\n", myid="3")
    assert config.cluster == {n: Address(f"zk{n}", 2181) for n in (1, 2, 3)}
    assert place.notes == []


def test_paths_are_relative_to_the_file_whoever_starts_it_from_where(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.file.write_text(CLASSIC + TLS + "zraft.tls.key=own.pem\naudit.enable=true\n")
    (place.data / "myid").write_text("2")
    monkeypatch.chdir(place.directory.parent)
    here = Path(place.directory.name)
    config = load_config(flags={}, environ={}, file=here / "zoo.cfg")
    assert config.id == 2
    assert config.data == here / "state" / "zraft"
    assert config.audit.file == here / "state" / "zraft" / "audit.log"
    assert config.key_files == (here / "cluster.key",)
    assert (config.tls.certificate, config.tls.key) == (here / "server.pem", here / "own.pem")


# -- myid


def test_myid_is_asked_for_when_there_are_several_servers(place: Place) -> None:
    message = place.refusal(CLASSIC)
    assert message.startswith("myid: not found, and in ")
    assert "set ZOO_MY_ID or pass --id" in message


def test_a_myid_that_is_not_listed_or_no_number_is_refused(place: Place) -> None:
    assert "this is server 9, and in " in place.refusal(CLASSIC, myid="9")
    assert "holds 'one', expected this server's number" in place.refusal(CLASSIC, myid="one")


def test_zoo_my_id_must_agree_with_myid_and_stronger_sources_are_not_compared(place: Place) -> None:
    message = place.refusal(CLASSIC, myid="1", environ={"ZOO_MY_ID": "2"})
    assert message.startswith("ZOO_MY_ID: found 2, and ")
    assert place.load(CLASSIC, environ={"ZOO_MY_ID": "1"}).id == 1
    assert place.load(CLASSIC, environ={"ZRAFT_ID": "2"}).id == 2
    assert place.load(CLASSIC, environ={"ZRAFT_ID": "2"}, id="3").id == 3


# -- notes


def test_an_unknown_key_is_named_and_the_nearest_known_one_suggested(place: Place) -> None:
    place.load(CLASSIC + "autopurge.purgeIntervall=1\nzookeeper.tickTme=5\nnonsense=1\n", myid="1")
    warnings = place.warnings()
    assert warnings["autopurge.purgeIntervall"].endswith("did you mean autopurge.purgeInterval?")
    assert warnings["tickTme"].endswith("did you mean tickTime?")
    assert warnings["nonsense"] == "no key of ZooKeeper's, it has no effect"


def test_keys_without_effect_say_why_unless_nothing_is_lost(place: Place) -> None:
    place.load(
        CLASSIC + "dataLogDir=/fast\npreAllocSize=65536\nforceSync=no\nskipACL=yes\nweight.1=3\n",
        myid="1",
    )
    assert set(place.warnings()) == {"forceSync", "skipACL", "weight.1"}
    [info] = [note for note in place.notes if note.level is Level.INFO]
    assert info.key == "dataLogDir"
    assert "below dataDir" in info.text


def test_a_switch_that_says_what_is_so_anyway_is_not_warned_of(place: Place) -> None:
    place.load(
        CLASSIC + "forceSync=yes\nskipACL=no\nreconfigEnabled=false\nlocalSessionsEnabled=False\n", myid="1"
    )
    assert place.notes == []


def test_no_note_shows_a_value_that_may_be_secret(place: Place) -> None:
    secret = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="
    place.load(
        CLASSIC
        + f"DigestAuthenticationProvider.superDigest={secret}\nsasl.password={secret}\n"
        + f"ssl.keyStore.password={secret}\nmystery={secret}\n",
        myid="1",
    )
    assert place.notes
    assert not [note for note in place.notes if "xQJm" in note.text or "xQJm" in note.key]


def test_a_maxbuffer_beyond_the_bound_is_cut_down_with_a_warning(place: Place) -> None:
    assert place.load(CLASSIC + "jute.maxbuffer=10485760\n", myid="1").client.jute_maxbuffer == 2_097_152
    assert "found 10485760, taken as 2097152" in place.warnings()["jute.maxbuffer"]
    assert place.load(CLASSIC + "jute.maxbuffer=0x9fffff\n", myid="1").client.jute_maxbuffer == 2_097_152
    assert place.load(CLASSIC + "jute.maxbuffer=0xfffff\n", myid="1").client.jute_maxbuffer == 1_048_575
    assert place.warnings() == {}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", None),
        ("admin.enableServer=true", Address("0.0.0.0", 8080)),
        ("admin.serverPort=9090", Address("0.0.0.0", 9090)),
        ("admin.enableServer=false\nadmin.serverPort=9090", None),
        ("admin.serverPort=9090\nadmin.serverAddress=::1", Address("::1", 9090)),
    ],
)
def test_the_admin_server_is_on_if_the_file_speaks_of_it(
    place: Place, lines: str, expected: Address | None
) -> None:
    """ZooKeeper takes port 8080 unasked; that is what its operators complain of."""
    assert place.load(CLASSIC + lines + "\n", myid="1").admin == expected


def test_any_knob_can_stand_in_a_zoo_cfg(place: Place) -> None:
    config = place.load(
        CLASSIC + "zraft.raft.heartbeat_ticks=20\nzraft.log_format=json\nzraft.data=elsewhere\n", myid="1"
    )
    assert (config.raft.heartbeat_ticks, config.log_format) == (20, "json")
    assert config.data == place.directory / "elsewhere"


TLS = "ssl.keyStore.location=server.pem\nssl.keyStore.password=secret\nssl.trustStore.location=ca.pem\n"


def test_tls_with_pem_files_is_mapped(place: Place) -> None:
    config = place.load(
        CLASSIC + TLS + "secureClientPort=2281\nssl.clientAuth=want\nssl.enabledProtocols=TLSv1.3\n", myid="1"
    )
    assert config.tls.address == Address("0.0.0.0", 2281)
    assert config.tls.certificate == place.directory / "server.pem"
    assert config.tls.client_ca == place.directory / "ca.pem"
    assert (config.tls.client_auth, config.tls.version_min, config.tls.required) == ("want", "1.3", False)
    assert config.address == Address("0.0.0.0", 2181)
    assert [(note.level, note.key) for note in place.notes] == [(Level.INFO, "ssl.keyStore.password")]


def test_a_trust_store_asks_clients_for_a_certificate_unless_it_says_otherwise(place: Place) -> None:
    base = CLASSIC + TLS + "secureClientPort=2281\n"
    assert place.load(base, myid="1").tls.client_auth == "need"
    relaxed = place.load(base + "ssl.clientAuth=none\n", myid="1")
    assert (relaxed.tls.client_auth, relaxed.tls.client_ca) == ("none", None)


def test_a_secure_port_alone_is_the_client_port_with_tls_only(place: Place) -> None:
    config = place.load(CLASSIC.replace("clientPort", "secureClientPort") + TLS, myid="1")
    assert config.address == Address("0.0.0.0", 2181)
    assert config.tls.required
    assert config.tls.address is None


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("secureClientPort=2281", "TLS needs a certificate, and ssl.keyStore.location is not set"),
        ("ssl.keyStore.location=server.jks", "server.jks is a Java key store (by its name), expected PEM"),
        ("ssl.keyStore.location=a.pem\nssl.keyStore.type=JKS", "a.pem is a Java key store (JKS)"),
        (TLS + "ssl.clientAuth=maybe", "tls.client_auth (ssl.clientAuth in "),
    ],
)
def test_tls_that_cannot_be_taken_is_refused_with_what_to_do(
    place: Place, lines: str, complaint: str
) -> None:
    assert complaint in place.refusal(CLASSIC + lines + "\n", myid="1")


def test_who_may_do_everything_and_how_clients_must_authenticate_are_mapped(place: Place) -> None:
    config = place.load(
        CLASSIC
        + TLS
        + "zookeeper.X509AuthenticationProvider.superUser=CN=root\nenforce.auth.enabled=true\n"
        + "enforce.auth.schemes=digest,x509\n",
        myid="1",
    )
    assert config.auth.x509_super_user == "CN=root"
    assert config.auth.required_schemes == ("digest", "x509")
    assert place.load(CLASSIC + "enforce.auth.schemes=digest\n", myid="1").auth.required_schemes == ()


def test_switches_are_taken_as_java_takes_them_and_the_rest_of_the_tree_is_mapped(place: Place) -> None:
    config = place.load(
        CLASSIC
        + "extendedTypesEnabled=FALSE\nenforceQuota=True\nreadonlymode.enabled=yes\n"
        + "znode.container.checkIntervalMs=5000\nznode.container.maxNeverUsedIntervalMs=0\n"
        + "zookeeper.DigestAuthenticationProvider.superDigest=super:xQJm=\n",
        myid="1",
    )
    assert (config.tree.ttl_nodes_enabled, config.tree.quota_enforced) == (False, True)
    assert not config.client.read_only_mode_enabled
    assert (config.tree.reap_interval_ms, config.tree.container_never_used_ms_max) == (5_000, 0)
    assert config.auth.super_digest == "super:xQJm="
    assert place.notes == []


# -- the environment of the image


def test_the_images_environment_is_a_complete_configuration(place: Place) -> None:
    environ = IMAGE | {
        "ZOO_DATA_DIR": str(place.data),
        "ZOO_MY_ID": "1",
        "ZOO_SERVERS": "server.1=zoo1:2888:3888;2181 server.2=zoo2:2888:3888;2181 server.3=zoo3:2888:3888;2181",
        "ZOO_CFG_EXTRA": "maxSessionTimeout=60000 zraft.key=/run/secrets/cluster.key",
        "ZOO_ADMINSERVER_ENABLED": "false",
    }
    config = place.load(environ=environ)
    assert config.id == 1
    assert config.address == Address("0.0.0.0", 2181)
    assert config.cluster == {n: Address(f"zoo{n}", 2181) for n in (1, 2, 3)}
    assert config.data == place.data / "zraft"
    assert config.session_timeout_ms_max == 60_000
    assert config.key_files == (Path("/run/secrets/cluster.key"),)
    assert place.warnings() == {}


def test_an_environment_without_servers_is_one_server_at_the_usual_port(place: Place) -> None:
    config = place.load(environ=IMAGE | {"ZOO_DATA_DIR": str(place.data)})
    assert (config.id, config.address) == (1, Address("0.0.0.0", 2181))


def test_zoo_variables_win_over_the_file_and_ours_over_them_and_flags_over_all(place: Place) -> None:
    text = CLASSIC + "maxSessionTimeout=50000\nmaxCnxns=100\n"
    environ = {
        "ZOO_TICK_TIME": "3000",
        "ZOO_MAX_SESSION_TIMEOUT": "51000",
        "ZRAFT_SESSION_TIMEOUT_MS_MAX": "52000",
    }
    config = place.load(text, myid="1", environ=environ)
    assert config.client.connections_max == 100
    assert config.tick_time_ms == 3_000
    assert config.session_timeout_ms_max == 52_000
    assert place.load(text, environ=environ, session_timeout_ms_max="53000").session_timeout_ms_max == 53_000


def test_zoo_variables_also_win_over_a_toml_file(place: Place) -> None:
    file = place.directory / "zraft.toml"
    file.write_text('id = 1\ndata = "d"\naddress = "h:2181"\ntick_time_ms = 1000\n[cluster]\n1 = "h:2181"\n')
    config = load_config(flags={}, environ={"ZOO_TICK_TIME": "1500"}, file=file)
    assert (config.tick_time_ms, config.address) == (1_500, Address("h", 2181))


def test_servers_of_the_environment_replace_all_of_the_file(place: Place) -> None:
    environ = {"ZOO_SERVERS": "server.1=other:2888:3888;2181"}
    assert place.load(CLASSIC, myid="1", environ=environ).cluster == {1: Address("other", 2181)}


def test_the_zoo_cfg_in_the_images_directory_is_read(place: Place) -> None:
    place.file.write_text(CLASSIC)
    assert place.load(environ={"ZOO_CONF_DIR": str(place.directory)}, myid="2").id == 2


def test_an_unknown_zoo_variable_is_named_and_those_of_kubernetes_are_not() -> None:
    environ = {
        "ZOO_TICKTIME": "1",
        "ZOO_SERVICE_HOST": "10.0.0.1",
        "ZOO_PORT": "tcp://10.0.0.1:2181",
        "ZOO_HEADLESS_SERVICE_PORT_CLIENT": "2181",
        "ZOO_PORT_2181_TCP_ADDR": "10.0.0.1",
        "ZOO_LOG_DIR": "/logs",
    }
    found = read_environment(environ)
    assert found.properties == {}
    [note] = found.notes
    assert (note.key, note.level) == ("ZOO_TICKTIME", Level.WARNING)
    assert note.text.endswith("did you mean ZOO_TICK_TIME?")


def test_servers_may_be_separated_by_commas_and_numbered_by_place_or_suffix() -> None:
    plain = read_environment({"ZOO_SERVERS": "a:2888:3888,b:2888:3888::7"}).properties
    assert plain == {"server.1": "a:2888:3888", "server.7": "b:2888:3888"}


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("ZOO_MY_ID", "one", "found 'one', expected this server's number"),
        ("ZOO_SERVERS", "broker.1=a:1:2", "unset the variable if it is not meant for this program"),
        ("ZOO_SERVERS", "server.1=a:1:2 server.1=b:1:2", "server.1 is given twice"),
        ("ZOO_CFG_EXTRA", "a=1 b", "found 'b' without a value"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_environment({name: value})
    assert str(refused.value).startswith(name)
    assert complaint in str(refused.value)


def test_system_properties_for_zookeepers_jvm_count_beside_a_zoo_cfg(place: Place) -> None:
    flags = "-Xmx1g -Djute.maxbuffer=2000000 -Dzookeeper.maxCnxns=77 -Dother=1 '-Dzookeeper.a=b c'"
    assert java_properties({"SERVER_JVMFLAGS": flags}) == {
        "jute.maxbuffer": "2000000",
        "maxCnxns": "77",
        "a": "b c",
    }
    jaas = "-Djava.security.auth.login.config=/etc/zookeeper/jaas.conf"
    config = place.load(CLASSIC, myid="1", environ={"JVMFLAGS": f"-Djute.maxbuffer=2000000 {jaas}"})
    assert config.auth.sasl_users_file == Path("/etc/zookeeper/jaas.conf")
    assert config.client.jute_maxbuffer == 2_000_000
    single: dict[str, Any] = {"id": 1, "data": "d", "address": "h:2181", "cluster": "1=h:2181"}
    assert (
        place.load(environ={"JVMFLAGS": "-Djute.maxbuffer=2000000"}, **single).client.jute_maxbuffer
        == 1_048_575
    )


# -- the table


def test_every_mapped_key_names_a_knob_that_exists() -> None:
    mapped = {key.knob for key in KEYS.values() if key.effect is Effect.MAPPED} - {"dynamic file"}
    assert len(mapped) > 5
    assert not mapped - set(KNOBS)


def test_every_key_without_effect_says_why() -> None:
    assert all(key.why for key in KEYS.values() if key.effect is not Effect.MAPPED)


def test_every_variable_stands_for_a_known_key() -> None:
    assert [key for key in KEY_OF.values() if known_key(key) is None] == []


def test_every_mapped_key_and_variable_is_in_the_migration_guide() -> None:
    guide = (REPOSITORY / "docs" / "how-to" / "migration.md").read_text(encoding="utf-8")
    mapped = [key.name for key in KEYS.values() if key.effect is Effect.MAPPED]
    missing = [name for name in [*mapped, *KEY_OF] if f"`{name}`" not in guide]
    assert not missing


@given(
    st.dictionaries(
        st.sampled_from([*(n for n in KEYS if not n.endswith("*")), "server.1", "server.2"])
        | st.text(max_size=9),
        st.text(max_size=20)
        | st.sampled_from(
            ["a:1:2", "a:1:2;3", "[::1]:1:2:observer", "true", "-1", "2181", "0x10", ";", "a.pem"]
        ),
        max_size=6,
    )
)
def test_no_properties_raise_anything_but_a_config_error(properties: dict[str, str]) -> None:
    with suppress(ConfigError):
        translate(properties, my_id=1, label="in zoo.cfg")


@given(st.text(max_size=40) | st.text(alphabet="a1:;[]|.", max_size=20))
def test_no_server_line_raises_anything_but_a_config_error(text: str) -> None:
    with suppress(ConfigError):
        parse_server_line("server.1", text, "zoo.cfg")


@given(
    st.dictionaries(
        st.sampled_from([*KEY_OF, "ZOO_MY_ID", "ZOO_SERVERS", "ZOO_CFG_EXTRA", "JVMFLAGS"]), st.text()
    )
)
def test_no_environment_raises_anything_but_a_config_error(environ: dict[str, str]) -> None:
    with suppress(ConfigError):
        read_environment(environ)


# -- members and snapshots


def test_observers_are_listed_as_such(place: Place) -> None:
    config = place.load(CLASSIC + "server.4=zk4:2888:3888:observer\n", myid="1")
    assert config.observers == {4}
    assert set(config.cluster) == {1, 2, 3, 4}


def test_a_file_may_say_of_its_own_server_that_it_is_an_observer(place: Place) -> None:
    assert place.load(CLASSIC + "peerType=observer\n", myid="1").observers == {1}


def test_how_often_snapshots_are_taken_and_kept_is_taken_over(place: Place) -> None:
    keys = "snapCount=5000\nsnapSizeLimitInKb=2048\nautopurge.snapRetainCount=7\nautopurge.purgeInterval=24\n"
    snapshot = place.load(CLASSIC + keys, myid="1").snapshot
    assert (snapshot.commands_min, snapshot.log_bytes_min, snapshot.keep) == (5_000, 2_097_152, 7)
    assert [note.key for note in place.notes] == ["autopurge.purgeInterval"]
    unlimited = place.load(CLASSIC + "snapSizeLimitInKb=-1\n", myid="1").snapshot
    assert unlimited.log_bytes_min == 33_554_432


def test_clients_may_be_allowed_to_change_the_members(place: Place) -> None:
    assert place.load(CLASSIC + "reconfigEnabled=true\n", myid="1").client.reconfig_enabled
    assert not place.load(CLASSIC, myid="1").client.reconfig_enabled
