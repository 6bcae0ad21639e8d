//! What the core decided, as replies.

use felix_engine::membership::{Joined, LedAnswer, MembershipRefused, Who};
use felix_engine::teams::{Held, NotCommitted, NotHeld, Partition, TeamId};
use felix_wire::extension::raw::{
    ConsumerHeld, ConsumerTopic, KafkaCommits, KafkaForgotten, KafkaHeartbeaten, KafkaJoined,
    KafkaLeft, KafkaSynced, Left, Member, RawError,
};
use felix_wire::extension::requests::{Item, List, Reply as WireReply, Text};

/// A call whose answer comes later.
#[derive(Debug)]
pub(super) enum Parked {
    Join {
        team: TeamId,
        /// The program and the host of whoever joins.
        about: (String, String),
    },
    Sync,
    Beat,
    Leave,
}

/// What is remembered of a member that has joined.
pub(super) type About = (TeamId, String, (String, String));

/// A call that is answered when the log has its changes.
#[derive(Debug)]
pub(super) enum Reply {
    /// A commit. An error of 0 stands for a position that is written; the others were wrong before.
    Commit(Vec<i16>),
    /// Positions that are forgotten, in the same way.
    Forget(Vec<i16>),
}

impl Reply {
    pub(super) fn done(self) -> WireReply {
        match self {
            Self::Commit(errors) => WireReply::KafkaCommit(KafkaCommits {
                error: 0,
                errors: list(errors),
            }),
            Self::Forget(errors) => WireReply::KafkaForget(KafkaForgotten {
                error: 0,
                errors: list(errors),
            }),
        }
    }

    /// The log does not have them, or it is not known whether it does. The caller tries again.
    pub(super) fn failed(self) -> WireReply {
        let error = RawError::CoordinatorNotAvailable.number();
        let all = |errors: Vec<i16>| {
            let errors = errors.into_iter();
            errors
                .map(|wrong| if wrong == 0 { error } else { wrong })
                .collect()
        };
        match self {
            Self::Commit(errors) => Self::Commit(all(errors)).done(),
            Self::Forget(errors) => Self::Forget(all(errors)).done(),
        }
    }
}

/// A list of what came in one frame, or fits one.
pub(super) fn list<T: Item>(items: impl IntoIterator<Item = T>) -> List<T> {
    List::build(items).unwrap_or_default()
}

pub(super) fn refused(refused: &MembershipRefused) -> RawError {
    match refused {
        MembershipRefused::UnknownMember => RawError::UnknownMemberId,
        MembershipRefused::Fenced => RawError::FencedInstanceId,
        MembershipRefused::IllegalGeneration { .. } => RawError::IllegalGeneration,
        MembershipRefused::RebalanceInProgress => RawError::RebalanceInProgress,
        MembershipRefused::InconsistentProtocol => RawError::InconsistentGroupProtocol,
        MembershipRefused::InvalidSession { .. } => RawError::InvalidSessionTimeout,
        MembershipRefused::Full { .. } => RawError::GroupMaxSizeReached,
        MembershipRefused::IdRequired { .. } => RawError::MemberIdRequired,
        MembershipRefused::NotCoordinator => RawError::NotCoordinator,
    }
}

pub(super) fn not_committed(why: &NotCommitted) -> RawError {
    match why {
        NotCommitted::Membership(why) => refused(why),
        NotCommitted::StaleEpoch { .. } => RawError::StaleMemberEpoch,
        NotCommitted::NoGroup => RawError::GroupIdNotFound,
    }
}

pub(super) fn text(name: &str) -> Text {
    Text::from(name)
}

pub(super) fn instance(who: &Who) -> Option<Text> {
    who.instance.as_ref().map(|name| text(name.as_str()))
}

impl Parked {
    /// The reply, and what is to be remembered of the member.
    pub(super) fn answer(
        self,
        answer: Result<LedAnswer, MembershipRefused>,
    ) -> (WireReply, Option<About>) {
        match (self, answer) {
            (Self::Join { team, about }, Ok(LedAnswer::Joined(joined))) => {
                let member = joined.member.as_str().to_owned();
                (
                    WireReply::KafkaJoin(in_group(joined)),
                    Some((team, member, about)),
                )
            }
            (Self::Join { .. }, answer) => (WireReply::KafkaJoin(not_joined(answer)), None),
            (Self::Sync, answer) => (WireReply::KafkaSync(synced(answer)), None),
            (Self::Beat, answer) => {
                let error = answer.as_ref().err().map_or(0, |why| refused(why).number());
                (WireReply::KafkaHeartbeat(KafkaHeartbeaten { error }), None)
            }
            (Self::Leave, answer) => (WireReply::KafkaLeave(left(answer)), None),
        }
    }
}

fn in_group(joined: Joined) -> KafkaJoined {
    let members = joined.members.iter().map(|member| Member {
        member: text(member.who.member.as_str()),
        instance: instance(&member.who),
        metadata: member.metadata.clone(),
    });
    KafkaJoined {
        error: 0,
        generation: joined.generation.into(),
        protocol_type: joined.protocol_type.map(|name| text(name.as_str())),
        protocol: joined.protocol.map(|name| text(name.as_str())),
        leader: text(joined.leader.as_str()),
        member: text(joined.member.as_str()),
        skip_assignment: joined.skip_assignment,
        members: list(members),
    }
}

fn not_joined(answer: Result<LedAnswer, MembershipRefused>) -> KafkaJoined {
    let (error, member) = match answer {
        Err(MembershipRefused::IdRequired { id }) => {
            (RawError::MemberIdRequired, text(id.as_str()))
        }
        Err(why) => (refused(&why), Text::default()),
        Ok(_) => (RawError::CoordinatorNotAvailable, Text::default()),
    };
    refuse_join(error, member)
}

pub(super) fn refuse_join(error: RawError, member: Text) -> KafkaJoined {
    KafkaJoined {
        error: error.number(),
        generation: -1,
        protocol_type: None,
        protocol: None,
        leader: Text::default(),
        member,
        skip_assignment: false,
        members: List::default(),
    }
}

fn synced(answer: Result<LedAnswer, MembershipRefused>) -> KafkaSynced {
    let error = match answer {
        Ok(LedAnswer::Synced {
            protocol_type,
            protocol,
            assignment,
        }) => {
            return KafkaSynced {
                error: 0,
                protocol_type: protocol_type.map(|name| text(name.as_str())),
                protocol: protocol.map(|name| text(name.as_str())),
                assignment,
            };
        }
        Err(why) => refused(&why),
        Ok(_) => RawError::CoordinatorNotAvailable,
    };
    KafkaSynced {
        error: error.number(),
        protocol_type: None,
        protocol: None,
        assignment: bytes::Bytes::new(),
    }
}

fn left(answer: Result<LedAnswer, MembershipRefused>) -> KafkaLeft {
    match answer {
        Ok(LedAnswer::Left(members)) => {
            let members = members.iter().map(|(who, outcome)| Left {
                member: text(who.member.as_str()),
                instance: instance(who),
                error: outcome
                    .as_ref()
                    .err()
                    .map_or(0, |why| refused(why).number()),
            });
            KafkaLeft {
                error: 0,
                members: list(members),
            }
        }
        Err(why) => KafkaLeft {
            error: refused(&why).number(),
            members: List::default(),
        },
        Ok(_) => KafkaLeft {
            error: RawError::CoordinatorNotAvailable.number(),
            members: List::default(),
        },
    }
}

/// What a member of a group in which the broker shares out is told.
pub(super) fn held(heard: Result<Held, NotHeld>, heartbeat_ms: u32) -> ConsumerHeld {
    match heard {
        Ok(held) => ConsumerHeld {
            error: 0,
            message: None,
            epoch: held.epoch,
            heartbeat_ms,
            assigned: held.assigned.map(topics),
        },
        Err(why) => {
            let error = match &why {
                NotHeld::Membership(why) => refused(why),
                NotHeld::FencedEpoch { .. } => RawError::FencedMemberEpoch,
                NotHeld::Unreleased => RawError::UnreleasedInstanceId,
                NotHeld::Incomplete => RawError::InvalidRequest,
                NotHeld::OtherKind => RawError::GroupIdNotFound,
            };
            not_held(error, &why.to_string())
        }
    }
}

pub(super) fn not_held(error: RawError, why: &str) -> ConsumerHeld {
    ConsumerHeld {
        error: error.number(),
        message: Some(text(why)),
        epoch: 0,
        heartbeat_ms: 0,
        assigned: None,
    }
}

/// Partitions, stream by stream.
pub(super) fn topics(partitions: impl IntoIterator<Item = Partition>) -> List<ConsumerTopic> {
    let mut topics: std::collections::BTreeMap<u64, Vec<u32>> = std::collections::BTreeMap::new();
    for partition in partitions {
        topics
            .entry(partition.number)
            .or_default()
            .push(partition.shard);
    }
    list(topics.into_iter().map(|(number, shards)| ConsumerTopic {
        number,
        shards: list(shards),
    }))
}
