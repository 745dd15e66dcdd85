"""Record batches, format v2 of Apache Kafka: the payload of a message that holds several records.

The format is described in Kafka's documentation, "Message Format", and in docs/explanation/topics.md, "Formats".
"""

from zraft_core.records.batch import (
    BatchBuilder,
    BatchRecord,
    Headers,
    decode_batch,
    encode_batch,
    read_batch,
)
from zraft_core.records.compression import Codec, MissingPackageError
from zraft_core.records.header import BatchHeader, check_batch, read_header, with_base_offset

__all__ = [
    "BatchBuilder",
    "BatchHeader",
    "BatchRecord",
    "Codec",
    "Headers",
    "MissingPackageError",
    "check_batch",
    "decode_batch",
    "encode_batch",
    "read_batch",
    "read_header",
    "with_base_offset",
]
