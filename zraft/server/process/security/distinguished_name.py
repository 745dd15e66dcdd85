"""The subject of a client's certificate as text, as ZooKeeper's ACLs of scheme x509 name it.

ACLs are compared by text, so this must be, character by character, what Java's `X500Principal.getName()` gives
(the form of RFC 2253 as Java reads it):

- The parts stand in the reverse order of the certificate, most specific first: `CN=client,OU=x,O=y`. No spaces.
- Several attributes in one part are joined with `+`, in the certificate's order.
- CN, C, L, ST, O, OU, STREET, DC and UID are named; any other type is its dotted number.
- `,` `=` `+` `<` `>` `#` `;` `"` `\\` get a backslash, wherever they stand; so does every space at the beginning and at the
  end. A NUL is `\\00`. Everything else stands for itself, letters beyond ASCII too.
- A value of a type without a name, or one that is no text, is `#` and its encoding (DER) in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zraft_core.errors import ProtocolError

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString; Java reads the bytes of all as UTF-8."""
VERSION: Final = 0xA0
SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06

ESCAPED: Final = str.maketrans({c: "\\" + c for c in ',=+<>#;"\\'} | {"\0": "\\00"})
SPACES: Final = " \r"
"""Escaped at both ends; a carriage return counts among them."""


class DistinguishedNameError(ProtocolError):
    """A certificate's subject cannot be written down."""


def subject_name(certificate: bytes) -> str:
    """Return the text of the subject of a certificate in DER; empty if it has none.

    Read from the very bytes that were verified (`TBSCertificate` of RFC 5280, section 4.1): a library that decodes names
    would put them into another order, and complains of long ones.

    Raises:
        DistinguishedNameError: it cannot be written down.
    """
    ((_, body, _),) = _exactly(certificate, 1)
    (_, signed, _), _, _ = _exactly(body, 3)
    fields = [(tag, whole) for tag, _, whole in _elements(signed)]
    if fields and fields[0][0] == VERSION:
        del fields[0]
    if len(fields) < 6:
        raise DistinguishedNameError(f"certificate: expected at least 6 fields, found {len(fields)}")
    _serial, _algorithm, _issuer, _validity, (_, subject), *_ = fields
    return rfc2253_name(subject)


def rfc2253_name(encoded: bytes) -> str:
    """Return the text of a distinguished name, given its DER encoding (`Name` of RFC 5280).

    Raises:
        DistinguishedNameError: `encoded` is no such encoding, or has text that is not UTF-8. Java shows such bytes as a
            replacement character, so that two different subjects would be the same user.
    """
    ((tag, name, _),) = _exactly(encoded, 1)
    if tag != SEQUENCE:
        raise DistinguishedNameError(f"subject: expected a sequence (tag 30), found tag {tag:02x}")
    parts = []
    for tag, part, _ in _elements(name):
        if tag != SET:
            raise DistinguishedNameError(f"subject: expected a set (tag 31), found tag {tag:02x}")
        parts.append("+".join(_attribute(content) for _, content, _ in _elements(part)))
    return ",".join(reversed(parts))


def _attribute(encoded: bytes) -> str:
    (kind, number, _), (tag, value, whole) = _exactly(encoded, 2)
    if kind != OBJECT_IDENTIFIER:
        raise DistinguishedNameError(f"subject: expected an attribute's type (tag 06), found tag {kind:02x}")
    dotted = _dotted(number)
    keyword = KEYWORDS.get(dotted)
    if keyword is None or tag not in TEXT_TAGS:
        return f"{keyword or dotted}=#{whole.hex()}"
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise DistinguishedNameError(f"subject: {keyword} is not UTF-8: {value.hex()}") from error
    inner = text.strip(SPACES)
    lead = len(text) - len(text.lstrip(SPACES)) if inner else len(text)
    before, after = text[:lead], text[lead + len(inner) :]
    spaced = ["".join("\\" + space for space in spaces) for spaces in (before, after)]
    return f"{keyword}={spaced[0]}{inner.translate(ESCAPED)}{spaced[1]}"


def _dotted(encoded: bytes) -> str:
    """Return an object identifier's numbers.

    They are in base 128, with the high bit set on all but a number's last byte (X.690, 8.19).
    """
    numbers, number = [], 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or encoded[-1] & 0x80:
        raise DistinguishedNameError(f"subject: {encoded.hex()} is no object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _exactly(encoded: bytes, count: int) -> list[tuple[int, bytes, bytes]]:
    elements = list(_elements(encoded))
    if len(elements) != count:
        raise DistinguishedNameError(f"subject: expected {count} elements, found {len(elements)}")
    return elements


def _elements(encoded: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the elements of an encoding, one after the other: tag, content, and all its bytes."""
    start = 0
    while start < len(encoded):
        header = encoded[start : start + 2]
        size, at = header[-1], start + 2
        if size & 0x80:
            width = size & 0x7F
            size, at = int.from_bytes(encoded[at : at + width]), at + width
        if len(header) < 2 or at + size > len(encoded):
            raise DistinguishedNameError(f"subject: an element in {len(encoded)} bytes is cut")
        yield header[0], encoded[at : at + size], encoded[start : at + size]
        start = at + size
