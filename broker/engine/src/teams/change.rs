//! What the log of the groups holds: one record for each position, one for each group, and one for each member of a group in
//! which the broker shares out.
//!
//! ```text
//! key:   tenant_len u16, tenant, group_len u16, group, then nothing for the group itself,
//!        or number u64, shard u32 for a position, or 12 bytes 0xff and the member's id for a member
//! value: group:    version u8 (1), kind u8 (0 classic, 1 consumer), generation u32, type_len u16, protocol type
//!        position: version u8 (1), offset u64, generation i64, committed_at_ms u64, metadata to the end
//!        member:   version u8 (1), and what `kept.rs` says
//! ```
//!
//! A record without a value deletes what its key names. The newest record of a key is what stands.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use felix_model::TimeMs;

use super::assign::Partition;
use super::consumer::KeptMember;
use super::kept;
use super::offsets::Position;
use super::team::{Kind, TeamId};
use crate::membership::MemberId;

const VERSION: u8 = 1;

/// What stands before a member's id, where positions have a partition that no stream has.
const MEMBER: [u8; 12] = [0xff; 12];

/// What is known of a group beside its positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Who shares out.
    pub kind: Kind,
    /// No generation or epoch above it was given out.
    pub generation: u32,
    /// What kind of members it has.
    pub protocol_type: String,
}

/// One change of what is known of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// What is known of the group; `None` when it was deleted. Its positions are deleted one by one.
    Team {
        /// Which group.
        team: TeamId,
        /// What stands from here on.
        kept: Option<Kept>,
    },
    /// A position.
    Position {
        /// Which group.
        team: TeamId,
        /// Of what.
        partition: Partition,
        /// What stands from here on.
        position: Option<Position>,
    },
    /// A member of a group in which the broker shares out.
    Member {
        /// Which group.
        team: TeamId,
        /// Which member.
        member: MemberId,
        /// What stands from here on; `None` when it is a member no more.
        kept: Option<KeptMember>,
    },
}

/// A record that is no change of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of the groups' log cannot be read: {what}")]
pub struct BadChange {
    /// What is wrong with it.
    pub what: &'static str,
}

impl Change {
    /// The group that it is about.
    pub fn team(&self) -> &TeamId {
        match self {
            Self::Team { team, .. } | Self::Position { team, .. } | Self::Member { team, .. } => {
                team
            }
        }
    }

    /// The record's key.
    pub fn key(&self) -> Bytes {
        let mut key = BytesMut::new();
        let team = self.team();
        for part in [team.tenant.as_bytes(), team.group.as_bytes()] {
            key.put_u16(u16::try_from(part.len()).unwrap_or(u16::MAX));
            key.put_slice(part);
        }
        match self {
            Self::Team { .. } => {}
            Self::Position { partition, .. } => {
                key.put_u64(partition.number);
                key.put_u32(partition.shard);
            }
            Self::Member { member, .. } => {
                key.put_slice(&MEMBER);
                key.put_slice(member.as_str().as_bytes());
            }
        }
        key.freeze()
    }

    /// The record's value; `None` for a deletion.
    pub fn value(&self) -> Option<Bytes> {
        let mut value = BytesMut::new();
        value.put_u8(VERSION);
        match self {
            Self::Team { kept, .. } => {
                let kept = kept.as_ref()?;
                value.put_u8(match kept.kind {
                    Kind::Classic => 0,
                    Kind::Consumer => 1,
                });
                value.put_u32(kept.generation);
                let name = kept.protocol_type.as_bytes();
                value.put_u16(u16::try_from(name.len()).unwrap_or(u16::MAX));
                value.put_slice(name);
            }
            Self::Position { position, .. } => {
                let position = position.as_ref()?;
                value.put_u64(position.offset);
                value.put_i64(position.generation);
                value.put_u64(position.committed_at.0);
                value.put_slice(position.metadata.as_bytes());
            }
            Self::Member { kept, .. } => kept::write(&mut value, kept.as_ref()?),
        }
        Some(value.freeze())
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When it is none of ours, or of a version that is newer than this.
    pub fn read(key: &[u8], value: Option<&[u8]>) -> Result<Self, BadChange> {
        let mut key = key;
        let tenant = text(&mut key)?;
        let group = text(&mut key)?;
        let team = TeamId { tenant, group };
        match key.len() {
            0 => Ok(Self::Team {
                team,
                kept: value.map(team_kept).transpose()?,
            }),
            12 => Ok(Self::Position {
                team,
                partition: Partition {
                    number: key.get_u64(),
                    shard: key.get_u32(),
                },
                position: value.map(position).transpose()?,
            }),
            13.. if key.starts_with(&MEMBER) => Ok(Self::Member {
                team,
                member: member(key)?,
                kept: value.map(kept_member).transpose()?,
            }),
            _ => Err(BadChange { what: "its key" }),
        }
    }
}

fn member(key: &[u8]) -> Result<MemberId, BadChange> {
    let id = key.get(MEMBER.len()..).map(std::str::from_utf8);
    match id {
        Some(Ok(id)) => Ok(id.into()),
        Some(Err(_)) | None => Err(BadChange {
            what: "a member's id",
        }),
    }
}

fn kept_member(mut value: &[u8]) -> Result<KeptMember, BadChange> {
    version(&mut value)?;
    kept::read(&mut value)
}

pub(super) fn text(from: &mut &[u8]) -> Result<String, BadChange> {
    let bad = BadChange { what: "a name" };
    let length = from.try_get_u16().map_err(|_| bad)?;
    let (text, rest) = from.split_at_checked(length.into()).ok_or(bad)?;
    *from = rest;
    String::from_utf8(text.to_vec()).map_err(|_| bad)
}

fn version(value: &mut &[u8]) -> Result<(), BadChange> {
    match value.try_get_u8() {
        Ok(VERSION) => Ok(()),
        Ok(_) | Err(_) => Err(BadChange {
            what: "its version",
        }),
    }
}

fn team_kept(mut value: &[u8]) -> Result<Kept, BadChange> {
    let bad = |_| BadChange { what: "a group" };
    version(&mut value)?;
    let kind = match value.try_get_u8().map_err(bad)? {
        0 => Kind::Classic,
        1 => Kind::Consumer,
        _ => return Err(BadChange { what: "its kind" }),
    };
    Ok(Kept {
        kind,
        generation: value.try_get_u32().map_err(bad)?,
        protocol_type: text(&mut value)?,
    })
}

fn position(mut value: &[u8]) -> Result<Position, BadChange> {
    let bad = |_| BadChange { what: "a position" };
    version(&mut value)?;
    let offset = value.try_get_u64().map_err(bad)?;
    let generation = value.try_get_i64().map_err(bad)?;
    let committed_at = TimeMs(value.try_get_u64().map_err(bad)?);
    let metadata = std::str::from_utf8(value).map_err(|_| BadChange { what: "metadata" })?;
    Ok(Position {
        offset,
        generation,
        metadata: metadata.into(),
        committed_at,
    })
}
