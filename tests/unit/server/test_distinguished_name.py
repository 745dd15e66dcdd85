"""Subjects as text. The expected names were printed by Java 17's `X500Principal.getName()` for the same bytes."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from tests.certificates import Authority, subject_of
from zraft.server.process.security.distinguished_name import rfc2253_name, subject_name
from zraft_core.errors import ProtocolError

GOLDEN = {
    "order": (
        "3036310b3009060355040613024445310a3008060355040a0c017a310a3008060355040b0c0178310f300d06035504030c06636c69656e74",
        "CN=client,OU=x,O=z,C=DE",
    ),
    "multi": ("3022310a3008060355040a0c017a3114300806035504030c01613008060355040b0c0162", "CN=a+OU=b,O=z"),
    "multi_rev": ("301631143008060355040b0c0162300806035504030c0161", "OU=b+CN=a"),
    "special": (
        "301e311c301a06035504030c13612c623d632b643c653e6623673b6822695c6a",
        'CN=a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j',
    ),
    "spaces": ("30123110300e06035504030c0720206120622020", "CN=\\ \\ a b\\ \\ "),
    "onlyspaces": ("300d310b300906035504030c022020", "CN=\\ \\ "),
    "nul": ("300e310c300a06035504030c03610062", "CN=a\\00b"),
    "unicode": ("301b3119301706035504030c104ac3bc7267656e20e6b0b420f09f9880", "CN=Jürgen 水 😀"),
    "ctl": ("3010310e300c06035504030c05610109627f", "CN=a\x01\tb\x7f"),
    "email": (
        "30223114301206092a864886f70d01090116056140622e63310a300806035504030c016d",
        "CN=m,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    "named": (
        "308183310b300906035504030c027630310b300906035504060c027631310b300906035504070c027632310b300906035504080c027633310b300906035504090c027634310b3009060355040a0c027635310b3009060355040b0c02763631123010060a0992268993f22c6401191602763731123010060a0992268993f22c64010116027638",
        "UID=v8,DC=v7,OU=v6,O=v5,STREET=v4,ST=v3,L=v2,C=v1,CN=v0",
    ),
    "unnamed": (
        "305c310a300806035504050c0176310a3008060355040c0c0176310a3008060355042a0c0176310a300806035504040c0176310a3008060355042e0c0176310a300806035504610c017631123010060b2b0601040182373c0201030c0176",
        "1.3.6.1.4.1.311.60.2.1.3=#0c0176,2.5.4.97=#0c0176,2.5.4.46=#0c0176,2.5.4.4=#0c0176,2.5.4.42=#0c0176,2.5.4.12=#0c0176,2.5.4.5=#0c0176",
    ),
    "t61b": ("300e310c300a06035504031403616263", "CN=abc"),
    "general": ("300e310c300a06035504031b03616263", "CN=abc"),
    "universal": ("300f310d300b06035504031c0400000061", "CN=#1c0400000061"),
    "numeric": ("300f310d300b0603550403120431322033", "CN=#120431322033"),
    "visible": ("300e310c300a06035504031a03616263", "CN=#1a03616263"),
    "int": ("300c310a30080603550403020105", "CN=#020105"),
    "bits": ("300d310b3009060355040303020005", "CN=#03020005"),
    "empty": ("3000", ""),
    "emptyval": ("300b3109300706035504030c00", "CN="),
    "latin_ia5": (
        "302e31173015060a0992268993f22c64011916076578616d706c6531133011060a0992268993f22c64011916036f7267",
        "DC=org,DC=example",
    ),
}
"""What is special: (DER in hexadecimal, Java's name)."""


@pytest.mark.parametrize("case", GOLDEN)
def test_a_subject_is_written_as_java_writes_it(case: str) -> None:
    encoded, name = GOLDEN[case]
    assert rfc2253_name(bytes.fromhex(encoded)) == name


def test_a_certificates_subject_is_read_from_its_bytes() -> None:
    certificate = Authority().issue(subject_of(C="DE", O="z", OU="x, y", CN="client")).certificate
    der = certificate.public_bytes(Encoding.DER)
    assert subject_name(der) == "CN=client,OU=x\\, y,O=z,C=DE"
    assert subject_name(der) == rfc2253_name(certificate.subject.public_bytes())
    nobody = Authority().issue(x509.Name([])).der
    assert subject_name(nobody) == ""
    for end in range(0, len(der), 7):
        with pytest.raises(ProtocolError):
            subject_name(der[:end])


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\x30",
        b"\x30\x05\x31",
        b"\x31\x00",
        b"\x30\x02\x30\x00",
        b"\x30\x00\x30\x00",
        bytes.fromhex("300d310b3009060355040313026162")[:-1],
        bytes.fromhex("300d310b3009020355040313026162"),
        bytes.fromhex("300d310b3009060355048313026162"),
    ],
)
def test_what_is_no_name_is_refused(encoded: bytes) -> None:
    with pytest.raises(ProtocolError):
        rfc2253_name(encoded)


@pytest.mark.parametrize("text", ["300d310b300906035504030c0261e9", "300f310d300b06035504031e04006100fc"])
def test_text_that_java_cannot_show_names_nobody(text: str) -> None:
    """Java puts one character in place of any such byte: two different subjects would be one user."""
    with pytest.raises(ProtocolError, match="not UTF-8"):
        rfc2253_name(bytes.fromhex(text))


@given(st.text(min_size=1, max_size=14))
def test_different_common_names_have_different_texts(text: str) -> None:
    def name(value: str) -> str:
        return rfc2253_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, value)]).public_bytes())

    shown = name(text)
    assert shown.startswith("CN=")
    assert name(text + "\\") != shown
    assert name(text + ",O=x") != shown
    assert ",O=x" not in name(text + ",O=x")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_give_a_text_or_a_declared_error(encoded: bytes) -> None:
    try:
        rfc2253_name(encoded)
    except ProtocolError:
        pass
