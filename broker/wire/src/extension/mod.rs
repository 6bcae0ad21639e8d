//! Our own frames, for what the published protocol has no place for.
//!
//! An extension is a name. The client lists the ones it would like in `auth`, the broker those it
//! grants in `auth_ok`; on a stream that was granted any, frames of this kind may stand between
//! published ones. A request carries a correlation of the client's choice, many may be unanswered
//! at once, and each is answered once, in any order, under its correlation.
//!
//! ```text
//! 46 58 58 31 | kind u16 | flags u16 | correlation u64 | length u32 | body
//! ```
//!
//! The high byte of a kind belongs to one extension, 0 to what all share. Flags mean what the kind
//! says they mean; an unknown one is refused, as it may change the body.

pub mod raw;
mod reauth;
mod records;
pub mod requests;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

pub use self::reauth::{Expiring, Renew, Renewed};
pub use self::records::{Deliver, PublishRecords, Published, RecordsHead};
use self::requests::{Call, CallKind, Reply};
use crate::ack::{Owner, put_cut};
use crate::cursor::{Cursor, Malformed};
use crate::error::{Code, Detail, Failure, NamedCode, Retry};
use crate::frame::{FrameRefused, length_field, take};

/// First four bytes of a frame of ours.
pub const MAGIC: [u8; 4] = *b"FXX1";

/// Length of the header, in bytes.
pub const HEADER_BYTES: usize = 20;

/// An extension this library knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extension {
    /// Publish and deliver whole record batches: keys, headers and timestamps.
    Records,
    /// Calls of caches, counters, commits and groups in binary, many unanswered at once.
    Requests,
    /// Record batches as they stand in the log, and groups of the Kafka protocol.
    Raw,
    /// A fresh token for what is open.
    Reauth,
}

impl Extension {
    /// Every extension this library knows.
    pub const ALL: [Self; 4] = [Self::Records, Self::Requests, Self::Raw, Self::Reauth];

    /// The name it is negotiated by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Requests => "requests",
            Self::Raw => "raw",
            Self::Reauth => "reauth",
        }
    }

    const fn bit(self) -> u16 {
        match self {
            Self::Records => 0x0001,
            Self::Requests => 0x0002,
            Self::Raw => 0x0004,
            Self::Reauth => 0x0008,
        }
    }
}

/// A set of extensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions(u16);

impl Extensions {
    /// No extension.
    pub const NONE: Self = Self(0);

    /// The extensions of a list of names; names this library does not know are passed over.
    pub fn from_names<N: AsRef<str>>(names: &[N]) -> Self {
        // protocol: auth.13
        Extension::ALL
            .into_iter()
            .filter(|extension| names.iter().any(|name| name.as_ref() == extension.name()))
            .collect()
    }

    /// The names, in a fixed order.
    pub fn names(self) -> Vec<String> {
        let known = Extension::ALL
            .into_iter()
            .filter(|&extension| self.contains(extension));
        known.map(|extension| extension.name().to_owned()).collect()
    }

    /// Whether an extension is in the set.
    pub const fn contains(self, extension: Extension) -> bool {
        self.0 & extension.bit() != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The extensions that both have.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl FromIterator<Extension> for Extensions {
    fn from_iter<I: IntoIterator<Item = Extension>>(extensions: I) -> Self {
        Self(
            extensions
                .into_iter()
                .fold(0, |bits, extension| bits | extension.bit()),
        )
    }
}

/// What a frame of ours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request was refused or failed. Shared by all extensions.
    Refused,
    /// `records`: appends a record batch.
    PublishRecords,
    /// `records`: the batch is appended.
    Published,
    /// `records`: record batches of a subscription.
    Deliver,
    /// `requests` or `raw`: a call.
    Call(CallKind),
    /// `requests` or `raw`: the answer to a call.
    Reply(CallKind),
    /// `reauth`: a token is about to run out.
    Expiring,
    /// `reauth`: brings the next token.
    Renew,
    /// `reauth`: the token was taken.
    Renewed,
}

impl Kind {
    /// What is not a call or its reply.
    const SINGLE: [Self; 7] = [
        Self::Refused,
        Self::PublishRecords,
        Self::Published,
        Self::Deliver,
        Self::Expiring,
        Self::Renew,
        Self::Renewed,
    ];

    /// Every kind this library knows.
    pub fn all() -> impl Iterator<Item = Self> {
        let calls = CallKind::ALL.iter().copied();
        let replies = calls.clone().map(Self::Reply);
        let calls = calls.map(Self::Call);
        Self::SINGLE.into_iter().chain(calls).chain(replies)
    }

    /// The number in the header.
    pub const fn number(self) -> u16 {
        match self {
            Self::Refused => 0x0001,
            Self::PublishRecords => 0x0101,
            Self::Published => 0x0102,
            Self::Deliver => 0x0103,
            Self::Call(kind) => kind.number(),
            Self::Reply(kind) => kind.reply_number(),
            Self::Expiring => 0x0401,
            Self::Renew => 0x0402,
            Self::Renewed => 0x0482,
        }
    }

    /// The kind of a number; `None` for one this library does not know.
    pub fn from_number(number: u16) -> Option<Self> {
        let mut single = Self::SINGLE.into_iter();
        single
            .find(|kind| kind.number() == number)
            .or_else(|| CallKind::from_number(number).map(Self::Call))
            .or_else(|| CallKind::from_reply_number(number).map(Self::Reply))
    }

    /// The extension a kind belongs to; `None` for what all share.
    pub const fn extension(self) -> Option<Extension> {
        match self {
            Self::Refused => None,
            Self::PublishRecords | Self::Published | Self::Deliver => Some(Extension::Records),
            Self::Call(kind) | Self::Reply(kind) => Some(kind.extension()),
            Self::Expiring | Self::Renew | Self::Renewed => Some(Extension::Reauth),
        }
    }
}

/// A frame of ours as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionFrame {
    /// What it is; perhaps a number this library does not know.
    pub kind: u16,
    /// What the kind says they mean.
    pub flags: u16,
    /// Ties an answer to its request, a delivery to its subscription.
    pub correlation: u64,
    /// The body.
    pub body: Bytes,
}

impl ExtensionFrame {
    /// The frame as bytes.
    pub fn encode(&self) -> Bytes {
        let mut frame = BytesMut::with_capacity(HEADER_BYTES + self.body.len());
        put_header(
            &mut frame,
            self.kind,
            self.flags,
            self.correlation,
            self.body.len(),
        );
        frame.put_slice(&self.body);
        frame.freeze()
    }

    /// Reads the frame as a request, as a broker does.
    ///
    /// # Errors
    /// With the refusal to answer. The stream stays readable.
    pub fn request(self, granted: Extensions) -> Result<Request, Refused> {
        match self.known(granted)? {
            Kind::PublishRecords => PublishRecords::decode(self.flags, self.body)
                .map(Request::PublishRecords)
                .map_err(|malformed| Refused::malformed(&malformed)),
            Kind::Call(kind) => Call::read(kind, self.flags, self.body)
                .map(Request::Call)
                .map_err(|malformed| Refused::malformed(&malformed)),
            Kind::Renew => Renew::decode(self.flags, self.body)
                .map(Request::Renew)
                .map_err(|malformed| Refused::malformed(&malformed)),
            Kind::Refused
            | Kind::Published
            | Kind::Deliver
            | Kind::Reply(_)
            | Kind::Expiring
            | Kind::Renewed => Err(Refused::from(
                Failure::new(Code::InvalidRequest, "a client does not send answers")
                    .with_reason("not_a_request"),
            )),
        }
    }

    /// Reads the frame as an answer or a delivery, as a client does.
    ///
    /// # Errors
    /// When the kind is no answer of an extension that was granted, or the body is malformed.
    pub fn answer(self, granted: Extensions) -> Result<Answer, Refused> {
        let read = match self.known(granted)? {
            Kind::Refused => Refused::decode(self.flags, self.body).map(Answer::Refused),
            Kind::Published => Published::decode(self.flags, self.body).map(Answer::Published),
            Kind::Deliver => Deliver::decode(self.flags, self.body).map(Answer::Deliver),
            Kind::Reply(kind) => Reply::read(kind, self.flags, self.body).map(Answer::Reply),
            Kind::Expiring => Expiring::decode(self.flags, self.body).map(Answer::Expiring),
            Kind::Renewed => Renewed::decode(self.flags, self.body).map(Answer::Renewed),
            Kind::PublishRecords | Kind::Call(_) | Kind::Renew => {
                let failure = Failure::new(Code::InvalidRequest, "a broker does not send requests");
                return Err(failure.with_reason("not_an_answer").into());
            }
        };
        read.map_err(|malformed| Refused::malformed(&malformed))
    }

    fn known(&self, granted: Extensions) -> Result<Kind, Refused> {
        // protocol: extension.4
        Kind::from_number(self.kind)
            .filter(|kind| {
                kind.extension()
                    .is_none_or(|extension| granted.contains(extension))
            })
            .ok_or_else(|| {
                let message = format!("no extension granted here has kind {:#06x}", self.kind);
                Failure::new(Code::FeatureNotEnabled, message)
                    .with_reason("unknown_kind")
                    .into()
            })
    }
}

/// A request of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Appends a record batch.
    PublishRecords(PublishRecords),
    /// A call of a cache, a counter, a commit or a group.
    Call(Call),
    /// Brings the next token for an identity.
    Renew(Renew),
}

/// An answer or a delivery of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request was refused or failed.
    Refused(Refused),
    /// The batch is appended.
    Published(Published),
    /// Record batches of a subscription.
    Deliver(Deliver),
    /// The answer to a call.
    Reply(Reply),
    /// A token is about to run out.
    Expiring(Expiring),
    /// The token was taken.
    Renewed(Renewed),
}

/// A refusal, the same for every extension.
///
/// ```text
/// code u16, retry u8, message_len u16, message, reason_len u16, reason, retry_after_ms u64
/// [0x0001: number u64]
/// [0x0002: node_id_len u16, node_id, addr_len u16, addr, generation u64]
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{failure}")]
pub struct Refused {
    /// Why, and whether trying again can help.
    pub failure: Failure,
    /// The number that the reason is about: the shard's next offset for `offset_mismatch`, the
    /// sequence it waits for with `sequence_gap`, the current version for `version_mismatch`
    /// (absent when the key holds nothing).
    pub number: Option<u64>,
    /// Who leads the shard, when this broker does not.
    pub owner: Option<Box<Owner>>,
}

/// The reason of a refusal because a key holds another version than was demanded.
pub const VERSION_MISMATCH: &str = "version_mismatch";

/// The reason of a refusal because a shard's next offset is another than was demanded.
pub const OFFSET_MISMATCH: &str = "offset_mismatch";

const REFUSED_NUMBER: u16 = 0x0001;
const REFUSED_OWNER: u16 = 0x0002;

impl Refused {
    /// A write whose condition did not hold: nothing was written.
    pub fn version_mismatch(key: &str, current: Option<u64>) -> Self {
        let message = match current {
            Some(version) => format!("the current version of `{key}` is {version}"),
            None => format!("`{key}` holds nothing"),
        };
        let failure = Failure::new(Code::InvalidRequest, message).with_reason(VERSION_MISMATCH);
        Self {
            number: current,
            ..failure.into()
        }
    }

    /// A write that would not have got the offset demanded: nothing was written.
    pub fn offset_mismatch(next: u64) -> Self {
        let failure = Failure::new(
            Code::InvalidRequest,
            format!("the shard's next offset is {next}"),
        );
        Self {
            number: Some(next),
            ..failure.with_reason(OFFSET_MISMATCH).into()
        }
    }

    fn malformed(malformed: &Malformed) -> Self {
        Failure::new(Code::InvalidRequest, malformed.to_string())
            .with_reason("malformed")
            .into()
    }

    /// The refusal as a frame.
    pub fn encode(&self, correlation: u64) -> Bytes {
        let mut body = BytesMut::with_capacity(64 + self.failure.message.len());
        body.put_u16(
            self.failure
                .code
                .as_ref()
                .and_then(NamedCode::number)
                .unwrap_or_default(),
        );
        body.put_u8(self.failure.retry().byte());
        put_cut(&mut body, &self.failure.message);
        put_cut(&mut body, self.failure.reason().unwrap_or_default());
        body.put_u64(self.failure.retry_after_ms().unwrap_or_default());
        let mut flags = 0;
        if let Some(number) = self.number {
            flags |= REFUSED_NUMBER;
            body.put_u64(number);
        }
        if let Some(owner) = &self.owner {
            flags |= REFUSED_OWNER;
            owner.encode_into(&mut body);
        }
        let kind = Kind::Refused.number();
        ExtensionFrame {
            kind,
            flags,
            correlation,
            body: body.freeze(),
        }
        .encode()
    }

    fn decode(flags: u16, body: Bytes) -> Result<Self, Malformed> {
        known_flags(flags, REFUSED_NUMBER | REFUSED_OWNER)?;
        let mut cursor = Cursor(body);
        let code = cursor.u16("code")?;
        let retry = Retry::from_byte(cursor.u8("retry")?);
        let message = cursor.string("message")?;
        let reason = Some(cursor.string("reason")?).filter(|reason| !reason.is_empty());
        let retry_after_ms = Some(cursor.u64("retry_after_ms")?).filter(|&ms| ms != 0);
        let detail = Detail {
            reason,
            retry_after_ms,
        };
        let failure = Failure {
            message,
            code: Some(code)
                .filter(|&code| code != 0)
                .map(NamedCode::from_number),
            retry: Some(retry),
            detail: Some(detail).filter(|detail| *detail != Detail::default()),
        };
        let number = optional(flags, REFUSED_NUMBER, || cursor.u64("number"))?;
        let owner = optional(flags, REFUSED_OWNER, || {
            Owner::decode(&mut cursor).map(Box::new)
        })?;
        Ok(Self {
            failure,
            number,
            owner,
        })
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            number: None,
            owner: None,
        }
    }
}

/// Takes a frame of ours off a buffer that starts with its magic.
pub(crate) fn split(
    buffer: &mut BytesMut,
    body_bytes_max: usize,
) -> Result<Option<ExtensionFrame>, FrameRefused> {
    let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let mut header = header.get(MAGIC.len()..).unwrap_or_default();
    let kind = header.get_u16();
    let flags = header.get_u16();
    let correlation = header.get_u64();
    let length = header.get_u32();
    let body = take(buffer, HEADER_BYTES, length, body_bytes_max)?;
    Ok(body.map(|body| ExtensionFrame {
        kind,
        flags,
        correlation,
        body,
    }))
}

fn put_header(into: &mut BytesMut, kind: u16, flags: u16, correlation: u64, length: usize) {
    into.put_slice(&MAGIC);
    into.put_u16(kind);
    into.put_u16(flags);
    into.put_u64(correlation);
    into.put_u32(length_field(length));
}

fn known_flags(flags: u16, known: u16) -> Result<(), Malformed> {
    // protocol: extension.4
    if flags & !known == 0 {
        Ok(())
    } else {
        Err(Malformed::Value {
            field: "flags",
            value: flags.into(),
        })
    }
}

/// Reads a field if its flag is set.
fn optional<T>(
    flags: u16,
    flag: u16,
    read: impl FnOnce() -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    if flags & flag == 0 {
        Ok(None)
    } else {
        read().map(Some)
    }
}
