//! The record batch, version 2, exactly as Kafka defines it. All numbers are big-endian.
//!
//! ```text
//! byte  0        8      12      16 17    21    23     27        35        43
//!       +--------+-------+-------+--+-----+-----+------+---------+---------+--
//!       | base   | batch | leader|ma| crc | attr| last | base    | max     |
//!       | offset | length| epoch |gi|     | ibu-| off- | time-   | time-   |
//!       |        |       |       |c | u32 | tes | set  | stamp   | stamp   |
//!       | i64    | i32   | i32   |i8|     | i16 | delta| i64     | i64     |
//!       +--------+-------+-------+--+-----+-----+------+---------+---------+--
//!        patched          patched         '---------- under the crc ---------->
//!
//! byte 43        51       53       57      61
//!       +--------+--------+--------+-------+---------------------------------+
//!       | produ- | produ- | base   | record| records, or one compressed       |
//!       | cer id | cer    | sequ-  | count | block that unfolds to them      |
//!       | i64    | epoch  | ence   | i32   |                                 |
//!       |        | i16    | i32    |       |                                 |
//!       +--------+--------+--------+-------+---------------------------------+
//!        -------------------- under the crc ------------------------------->'
//! ```
//!
//! *Batch length* counts what follows it, so a batch takes 12 bytes more. The *crc* is CRC-32C over
//! everything from the attributes to the end: the base offset and the leader epoch lie outside it, and
//! the leader patches those two fields without touching anything else ([`patch`]).
//!
//! Attributes:
//!
//! ```text
//! bit  15 … 9   8         7     6         5        4              3            2 1 0
//!      unused   internal  none  deletion  control  transactional  append time  compression
//!                               horizon
//! ```
//!
//! Bit 8 is ours: it says that the headers of the records are the broker's and not a user's. A client
//! may set bits 0 to 4 only ([`verify_from_client`]).
//!
//! A record (varints are zigzag; a length of -1 means null):
//!
//! ```text
//! length varint | attributes i8 | timestamp delta varlong | offset delta varint
//! | key length varint, key | value length varint, value
//! | header count varint, then per header: key length varint, key, value length varint, value
//! ```
//!
//! Reading is done in three depths: [`verify_checksum`] looks at the header and the checksum, which is
//! what recovery and scrubbing need; [`verify()`] also walks every record; [`Records`] hands them out.

mod build;
mod header;
mod pack;
mod record;
mod records;
mod refused;
mod thin;
mod unpack;
pub(crate) mod varint;
mod verify;

pub use build::{BatchBuilder, BatchOptions, ProducerStamp};
pub use header::{
    ATTR_APPEND_TIME, ATTR_CONTROL, ATTR_INTERNAL, ATTR_TRANSACTIONAL, BatchHeader, Compression,
    HEADER_BYTES, TimestampType, patch, set_append_time, set_max_timestamp,
};
pub use records::{Headers, HeadersIter, Record, Records};
pub use refused::{BadRecord, BatchRefused, BuildRefused, ThinRefused};
pub use thin::thin;
pub use verify::{checksum, verify, verify_checksum, verify_from_client};

pub(crate) use build::{NewBatch, new_header, nullable_len, put_nullable};
pub(crate) use header::{put_header, seal};
pub(crate) use record::{RecordRef, Walk};
pub(crate) use records::{Body, Progress};
