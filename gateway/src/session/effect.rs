//! What a message comes to: something to do, or a refusal.

use super::fault::{Code, Fault, quoted};
use super::message::{Begin, Hidden};
use crate::metrics::Limited;
use crate::scope::is_plain;

/// What the shell has to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Send this.
    Tell(Fault),
    /// Send this; a limit refused something.
    Limited(Limited, Fault),
    Subscribe(Subscribe),
    Ask(Ask),
    /// Watch this cache; in place of an earlier watch.
    Watch(usize),
    /// Hold back events to this many bits a second; `None`: not any more.
    Throttle(Option<f64>),
    Refresh(Hidden),
    SignOut,
}

/// A subscription to begin, in place of an earlier one with the same `sub`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscribe {
    pub(crate) stream: usize,
    pub(crate) slot: Option<String>,
    /// As it was named; 0 otherwise.
    pub(crate) shard: Option<u32>,
    pub(crate) from: Begin,
    /// Its number in binary events. That of the stream when no slot is named, so that all browsers share it.
    pub(crate) sub: u32,
}

/// A question that changes nothing; answered whenever its answer is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    CacheGet {
        cache: usize,
        key: String,
        id: u64,
    },
    StateGet {
        stream: usize,
        key: String,
        entity: String,
        shard: Option<u32>,
        id: u64,
    },
    Read {
        stream: usize,
        from: u64,
        end: Option<u64>,
        most: u32,
        shard: u32,
        id: u64,
    },
    OffsetForTime {
        stream: usize,
        at_us: u64,
        shard: u32,
        id: u64,
    },
}

/// How events reach this browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Binary,
    BinaryEvents,
}

/// What a person may do, by the resource's place in the scope file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) publish: Vec<bool>,
    pub(crate) subscribe: Vec<bool>,
    pub(crate) read: Vec<bool>,
    pub(crate) write: Vec<bool>,
    pub(crate) watch: Vec<bool>,
    pub(crate) add: Vec<bool>,
}

impl Effect {
    /// The same refusal with more said about it.
    pub(super) fn with(self, mark: impl FnOnce(Fault) -> Fault) -> Self {
        match self {
            Self::Tell(fault) => Self::Tell(mark(fault)),
            Self::Limited(why, fault) => Self::Limited(why, mark(fault)),
            other @ (Self::Subscribe(_)
            | Self::Ask(_)
            | Self::Watch(_)
            | Self::Throttle(_)
            | Self::Refresh(_)
            | Self::SignOut) => other,
        }
    }
}

pub(super) fn tell(fault: Fault) -> Effect {
    Effect::Tell(fault)
}

pub(super) fn unsupported(what: &str) -> Fault {
    Fault::new(Code::Unsupported, format!("{what} was not agreed on"))
}

pub(super) fn allowed(
    place: Option<usize>,
    rights: &[bool],
    (kind, alias, action): (&str, &str, &str),
) -> Result<usize, Fault> {
    let alias = quoted(alias);
    let Some(place) = place else {
        return Err(Fault::bad_request(format!(
            "no {kind} is called {alias:?} here"
        )));
    };
    if rights.get(place) != Some(&true) {
        return Err(Fault::bad_request(format!(
            "{action} is not allowed on {kind} {alias:?}"
        )));
    }
    Ok(place)
}

pub(super) fn plain_key(key: &str) -> Result<(), Fault> {
    if is_plain(key) {
        return Ok(());
    }
    Err(Fault::bad_request(
        "`key` must be 1 to 64 of A-Z a-z 0-9 _ -",
    ))
}

pub(super) fn fits(bytes: usize, most: usize) -> Result<(), Effect> {
    if bytes <= most {
        return Ok(());
    }
    let message = format!("a payload of {bytes} bytes is more than {most}");
    Err(Effect::Limited(
        Limited::MessageSize,
        Fault::bad_request(message),
    ))
}
