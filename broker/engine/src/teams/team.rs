//! One group, and what is said of it.

use std::collections::{BTreeMap, BTreeSet};

use felix_model::TimeMs;

use super::assign::Partition;
use super::change::Change;
use super::consumer::{Consumer, ConsumerOptions, ConsumerState, KeptMember};
use super::offsets::Position;
use crate::input::Ticket;
use crate::membership::{Led, LedAnswer, LedOptions, LedState, MemberId, MembershipRefused};

/// A group: a tenant's, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TeamId {
    /// The tenant.
    pub tenant: String,
    /// The group.
    pub group: String,
}

/// Who shares out in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of its members.
    Classic,
    /// The broker.
    Consumer,
}

/// The bounds of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamOptions {
    /// Of those whose members share out.
    pub led: LedOptions,
    /// Of those in which the broker does.
    pub consumer: ConsumerOptions,
    /// How long positions of a group without members are kept, in milliseconds.
    pub retention_ms: u64,
    /// Groups that one shard may have.
    pub teams_max: usize,
    /// Groups of them that one tenant may have.
    pub teams_of_tenant_max: usize,
}

/// Where a group stands, whatever its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeamState {
    /// A classic group's.
    Classic(LedState),
    /// Another's.
    Consumer(ConsumerState),
}

/// A group as an operator sees it.
#[derive(Debug)]
pub enum TeamView<'a> {
    /// One whose members share out.
    Classic(&'a Led),
    /// One in which the broker does.
    Consumer(&'a Consumer),
}

/// The answer to a parked call.
pub type TeamAnswer = Result<LedAnswer, MembershipRefused>;

/// What follows from a call.
#[derive(Debug)]
pub enum TeamEffect {
    /// Answer a call about members.
    Answer {
        /// Which call.
        ticket: Ticket,
        /// What became of it.
        answer: TeamAnswer,
    },
    /// Append these to the log. When it has them, apply them and then answer these calls: a generation that a member was
    /// told of is never given out again, also not after a restart.
    Write {
        /// What the log is to have.
        changes: Vec<Change>,
        /// Whom it concerns.
        then: Vec<(Ticket, TeamAnswer)>,
    },
}

#[derive(Debug)]
pub(super) struct Team {
    pub(super) members: Members,
    pub(super) protocol_type: String,
    pub(super) positions: BTreeMap<Partition, Position>,
    /// Members of whom it is not known that the log has them as they are.
    pub(super) unsure: BTreeSet<MemberId>,
    /// The generation that the log has, or is about to have.
    pub(super) written: Option<(Kind, u32)>,
    /// The generation that the log has.
    pub(super) durable: Option<(Kind, u32)>,
    /// Since when it has no members.
    pub(super) empty_since: TimeMs,
    pub(super) deadline: Option<TimeMs>,
}

#[derive(Debug)]
pub(super) enum Members {
    Classic(Led),
    Consumer(Consumer),
}

impl Members {
    /// Nobody, in a group of a kind that gave out generations up to `generation`.
    pub(super) fn after(options: &TeamOptions, kind: Kind, generation: u32) -> Self {
        match kind {
            Kind::Classic => Self::Classic(Led::after(options.led, generation)),
            Kind::Consumer => Self::Consumer(Consumer::new(options.consumer, generation)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Classic(led) => led.is_empty(),
            Self::Consumer(consumer) => consumer.is_empty(),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Classic(_) => Kind::Classic,
            Self::Consumer(_) => Kind::Consumer,
        }
    }

    pub(super) fn generation(&self) -> u32 {
        match self {
            Self::Classic(led) => led.generation(),
            Self::Consumer(consumer) => consumer.epoch(),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<TimeMs> {
        match self {
            Self::Classic(led) => led.next_deadline(),
            Self::Consumer(consumer) => consumer.next_deadline(),
        }
    }
}

impl Team {
    /// What the log is to have of members: of those who changed, and of the one that is about to be told something, if it is
    /// not known to have that.
    pub(super) fn members_to_write(
        &mut self,
        told: Option<&MemberId>,
    ) -> Vec<(MemberId, Option<KeptMember>)> {
        let Members::Consumer(consumer) = &mut self.members else {
            return Vec::new();
        };
        let mut ids = consumer.touched();
        self.unsure.extend(ids.iter().cloned());
        ids.extend(told.filter(|id| self.unsure.contains(id)).cloned());
        let kept = ids.into_iter().map(|id| {
            let kept = consumer.kept(&id).cloned();
            (id, kept)
        });
        kept.collect()
    }

    /// The log has a member like this.
    pub(super) fn member_written(&mut self, id: &MemberId, kept: Option<&KeptMember>) {
        let stands = match &self.members {
            Members::Consumer(consumer) => consumer.kept(id),
            Members::Classic(_) => None,
        };
        // If not, a newer one is on its way, or did not get there.
        if stands == kept {
            self.unsure.remove(id);
        }
    }

    pub(super) fn view(&self) -> TeamView<'_> {
        match &self.members {
            Members::Classic(led) => TeamView::Classic(led),
            Members::Consumer(consumer) => TeamView::Consumer(consumer),
        }
    }
}

impl TeamView<'_> {
    /// Where it stands.
    pub fn state(&self) -> TeamState {
        match self {
            Self::Classic(led) => TeamState::Classic(led.state()),
            Self::Consumer(consumer) => TeamState::Consumer(consumer.state()),
        }
    }
}
