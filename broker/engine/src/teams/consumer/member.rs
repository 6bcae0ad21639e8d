//! One member of a group in which the broker shares out.

use std::collections::{BTreeMap, BTreeSet};

use felix_model::TimeMs;

use super::super::assign::{Assignor, Partition, Wish};
use super::types::{ConsumerMemberView, NotHeld, Topic, TopicName};
use crate::membership::{MemberId, Who};

/// What the log has of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptMember {
    /// The name that it keeps when it starts again.
    pub instance: Option<MemberId>,
    /// Where it stands.
    pub rack: Option<String>,
    /// How long it may take to give back, in milliseconds.
    pub rebalance_ms: u64,
    /// What it reads, and what that stood for when it was heard last, if for anything that it may read.
    pub reads: BTreeMap<TopicName, Option<Topic>>,
    /// Who is to share out.
    pub assignor: Option<Assignor>,
    /// What its program calls itself.
    pub client: String,
    /// Where it is.
    pub host: String,
    /// Its epoch.
    pub epoch: u32,
    /// The epoch before: a member that did not hear of the new one goes on with it.
    pub epoch_before: u32,
    /// Its instance is away, and comes back or loses its place.
    pub is_away: bool,
    /// What it may hold.
    pub assigned: BTreeSet<Partition>,
    /// What it had and did not say it gave back.
    pub revoking: BTreeSet<Partition>,
    /// What it is to hold.
    pub target: BTreeSet<Partition>,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) kept: KeptMember,
    /// It has to be told what it may hold.
    pub(super) owes_news: bool,
    /// It said that it has its epoch.
    pub(super) knows_epoch: bool,
    pub(super) expires: TimeMs,
    /// Until when it may take to give back.
    pub(super) revoke_until: Option<TimeMs>,
}

impl Member {
    /// One of the log. It is due when the group is served, which gives it its session.
    pub(super) fn restored(kept: KeptMember) -> Self {
        Self {
            kept,
            // The last answer may not have reached it.
            owes_news: true,
            knows_epoch: false,
            expires: TimeMs(0),
            revoke_until: None,
        }
    }

    pub(super) fn resume(&mut self, now: TimeMs, session_ms: u64) {
        self.expires = now.plus(session_ms);
        if !self.kept.revoking.is_empty() {
            self.revoke_until = Some(now.plus(self.kept.rebalance_ms.max(1)));
        }
    }

    /// Others have these.
    pub(super) fn lose(&mut self, others: &BTreeSet<Partition>) {
        let is_mine = |partition: &Partition| !others.contains(partition);
        self.kept.assigned.retain(is_mine);
        self.kept.revoking.retain(is_mine);
    }

    /// It says which epoch it has.
    pub(super) fn hear_epoch(
        &mut self,
        epoch: i64,
        held: Option<&BTreeSet<Partition>>,
    ) -> Result<(), NotHeld> {
        let kept = &self.kept;
        let current = i64::from(kept.epoch);
        self.knows_epoch = epoch == current;
        if self.knows_epoch {
            return Ok(());
        }
        // The answer that told it of its epoch was lost: it holds nothing that it may not.
        let held = held.is_none_or(|held| {
            held.iter()
                .all(|it| kept.assigned.contains(it) || kept.revoking.contains(it))
        });
        if epoch != i64::from(kept.epoch_before) || !held {
            return Err(NotHeld::FencedEpoch { current });
        }
        self.owes_news = true;
        Ok(())
    }

    /// It says what it holds.
    pub(super) fn hear_held(&mut self, held: &BTreeSet<Partition>) {
        self.kept.revoking.retain(|it| held.contains(it));
        if self.kept.revoking.is_empty() {
            self.revoke_until = None;
        }
        // It may not know: the answer that said so was lost.
        self.owes_news |= *held != self.kept.assigned;
    }

    /// Brings it nearer to its share; whether that is news for it. Others hold what is `taken`.
    pub(super) fn approach(
        &mut self,
        now: TimeMs,
        target_epoch: u32,
        taken: &BTreeSet<Partition>,
    ) -> bool {
        let kept = &mut self.kept;
        if !kept.revoking.is_empty() {
            return false;
        }
        let surplus = kept.assigned.difference(&kept.target);
        let surplus: BTreeSet<Partition> = surplus.copied().collect();
        if surplus.is_empty() {
            if kept.epoch != target_epoch {
                // Of epochs whose answers were all lost it goes on with the one before them.
                if std::mem::take(&mut self.knows_epoch) {
                    kept.epoch_before = kept.epoch;
                }
                kept.epoch = target_epoch;
            }
            let free = kept.target.difference(taken).copied();
            let before = kept.assigned.len();
            kept.assigned.extend(free);
            return kept.assigned.len() != before;
        }
        kept.assigned.retain(|it| kept.target.contains(it));
        kept.revoking = surplus;
        self.revoke_until = Some(now.plus(kept.rebalance_ms.max(1)));
        true
    }

    pub(super) fn wish(&self) -> Wish {
        let topics = self.kept.reads.values().flatten();
        Wish {
            reads: topics.map(|topic| topic.number).collect(),
            had: self.kept.target.clone(),
        }
    }

    pub(super) fn view(&self, id: &MemberId) -> ConsumerMemberView {
        let kept = &self.kept;
        ConsumerMemberView {
            who: Who {
                member: id.clone(),
                instance: kept.instance.clone(),
            },
            rack: kept.rack.clone(),
            epoch: if kept.is_away { -2 } else { kept.epoch.into() },
            client: kept.client.clone(),
            host: kept.host.clone(),
            reads: kept.reads.keys().cloned().collect(),
            assigned: kept.assigned.clone(),
            target: kept.target.clone(),
        }
    }
}
