//! A group in which the broker shares out (KIP-848).
//!
//! Three epochs: the group's grows when members or what they read change; the target's is that of the group when the shares
//! were last decided; a member's is that of the target once it has given back everything that is not in its share. A
//! partition is given to a member only when no other has it, or has to give it back and did not say that it did. So each has
//! one owner, and an epoch that a member does not have gets it nothing.

mod types;

use std::collections::{BTreeMap, BTreeSet};

use felix_model::TimeMs;

pub use self::types::{
    Beat, ConsumerMemberView, ConsumerOptions, ConsumerState, Held, NotHeld, Topic, TopicName,
};
use super::assign::{Assignor, Partition, Wish, share_out};
use super::offsets::NotCommitted;
use crate::membership::{MemberId, MembershipRefused, Who};

/// One group in which the broker shares out.
#[derive(Debug)]
pub struct Consumer {
    options: ConsumerOptions,
    epoch: u32,
    target_epoch: u32,
    /// What the streams that are read stand for, by name.
    topics: BTreeMap<TopicName, Topic>,
    members: BTreeMap<MemberId, Member>,
    instances: BTreeMap<MemberId, MemberId>,
}

#[derive(Debug)]
struct Member {
    instance: Option<MemberId>,
    rack: Option<String>,
    rebalance_ms: u64,
    reads: BTreeSet<TopicName>,
    assignor: Option<Assignor>,
    client: String,
    host: String,
    epoch: u32,
    /// The epoch before: a member that did not hear of the new one goes on with it.
    epoch_before: u32,
    /// Its instance is away, and comes back or loses its place.
    is_away: bool,
    /// What it may hold.
    assigned: BTreeSet<Partition>,
    /// What it had and did not say it gave back.
    revoking: BTreeSet<Partition>,
    target: BTreeSet<Partition>,
    /// It has to be told what it may hold.
    owes_news: bool,
    expires: TimeMs,
    /// Until when it may take to give back.
    revoke_until: Option<TimeMs>,
}

impl Consumer {
    /// A group without members whose epoch was `epoch`.
    pub fn new(options: ConsumerOptions, epoch: u32) -> Self {
        Self {
            options,
            epoch,
            target_epoch: epoch,
            topics: BTreeMap::new(),
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
        }
    }

    /// The group's epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The epoch of the shares.
    pub fn target_epoch(&self) -> u32 {
        self.target_epoch
    }

    /// Nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Where the group stands.
    pub fn state(&self) -> ConsumerState {
        let settled =
            |member: &Member| member.epoch == self.target_epoch && member.assigned == member.target;
        if self.members.is_empty() {
            ConsumerState::Empty
        } else if self.epoch == self.target_epoch && self.members.values().all(settled) {
            ConsumerState::Stable
        } else {
            ConsumerState::Reconciling
        }
    }

    /// Who shares out: what most members want.
    pub fn assignor(&self) -> Assignor {
        let wanted = self.members.values().filter_map(|member| member.assignor);
        let mut votes: BTreeMap<Assignor, u32> = BTreeMap::new();
        for assignor in wanted {
            *votes.entry(assignor).or_default() += 1;
        }
        let most = votes.into_iter().rev().max_by_key(|(_, count)| *count);
        most.map(|(assignor, _)| assignor).unwrap_or_default()
    }

    /// The members, by id.
    pub fn members(&self) -> impl Iterator<Item = ConsumerMemberView> + '_ {
        self.members.iter().map(|(id, member)| ConsumerMemberView {
            who: Who {
                member: id.clone(),
                instance: member.instance.clone(),
            },
            rack: member.rack.clone(),
            epoch: member.shown_epoch(),
            client: member.client.clone(),
            host: member.host.clone(),
            reads: member.reads.iter().cloned().collect(),
            assigned: member.assigned.clone(),
            target: member.target.clone(),
        })
    }

    /// Whether a member reads a stream.
    pub fn reads(&self, number: u64) -> bool {
        let names = self.members.values().flat_map(|member| &member.reads);
        let mut topics = names.filter_map(|name| self.topics.get(name));
        topics.any(|topic| topic.number == number)
    }

    /// When [`Self::pass`] is due, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<TimeMs> {
        let members = self.members.values();
        members
            .flat_map(|member| [Some(member.expires), member.revoke_until])
            .flatten()
            .min()
    }

    /// Takes out who was silent for too long, or takes too long to give back.
    pub fn pass(&mut self, now: TimeMs) {
        let late = |member: &Member| {
            member.expires <= now || member.revoke_until.is_some_and(|until| until <= now)
        };
        let lost: Vec<MemberId> = self
            .members
            .iter()
            .filter(|(_, member)| late(member))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &lost {
            self.remove(id);
        }
        if !lost.is_empty() {
            self.share_out();
        }
    }

    /// Hears a member. `find` says what a stream's name stands for.
    ///
    /// # Errors
    /// Why the member was told nothing.
    pub fn beat(
        &mut self,
        now: TimeMs,
        beat: Beat,
        find: &dyn Fn(&TopicName) -> Option<Topic>,
    ) -> Result<Held, NotHeld> {
        self.pass(now);
        if beat.epoch < 0 {
            return self.leave(now, &beat);
        }
        let id = beat.who.member.clone();
        let is_full = beat.epoch == 0;
        let changed = if is_full {
            self.join(now, beat)?
        } else {
            self.go_on(now, beat)?
        };
        let read = self.members.values().flat_map(|member| &member.reads);
        let topics: BTreeMap<TopicName, Topic> = read
            .filter_map(|name| Some((name.clone(), find(name)?)))
            .collect();
        if changed || topics != self.topics {
            self.topics = topics;
            self.epoch += 1;
            self.share_out();
        }
        self.reconcile(now, &id, is_full)
    }

    /// Whether a member may commit. Of an epoch it did not hear the end of yet, too: what it has to give back it commits
    /// first.
    ///
    /// # Errors
    /// Why not.
    pub fn may_commit(&self, who: &Who, epoch: i64) -> Result<(), NotCommitted> {
        if epoch < 0 && who.member.is_empty() {
            return match self.members.is_empty() {
                true => Ok(()),
                false => Err(MembershipRefused::UnknownMember.into()),
            };
        }
        let member = self
            .members
            .get(&who.member)
            .ok_or(MembershipRefused::UnknownMember)?;
        let known = [member.epoch, member.epoch_before].map(i64::from);
        if known.contains(&epoch) {
            return Ok(());
        }
        let current = member.epoch.into();
        Err(NotCommitted::StaleEpoch { current })
    }

    /// Whether somebody new, or somebody who starts again, changes the shares.
    fn join(&mut self, now: TimeMs, beat: Beat) -> Result<bool, NotHeld> {
        let Beat {
            who,
            reads,
            rebalance_ms,
            held,
            ..
        } = &beat;
        let (Some(reads), Some(rebalance_ms)) = (reads, *rebalance_ms) else {
            return Err(NotHeld::Incomplete);
        };
        if held.as_ref().is_some_and(|held| !held.is_empty()) || who.member.is_empty() {
            return Err(NotHeld::Incomplete);
        }
        let reads: BTreeSet<TopicName> = reads.iter().cloned().collect();
        let before = who
            .instance
            .as_ref()
            .and_then(|instance| self.instances.get(instance))
            .cloned();
        let mut member = match before {
            Some(before) if before != who.member => {
                let is_away = self.members.get(&before).is_some_and(|it| it.is_away);
                if !is_away {
                    return Err(NotHeld::Unreleased);
                }
                // It has its share back, under its new id, without anybody else noticing.
                self.members.remove(&before)
            }
            Some(_) | None => self.members.remove(&who.member),
        };
        if member.is_none() && self.members.len() >= self.options.members_max {
            let limit = self.options.members_max;
            return Err(MembershipRefused::Full { limit }.into());
        }
        let same = member
            .as_ref()
            .is_some_and(|known| known.reads == reads && known.assignor == beat.assignor);
        let target = member.take().map(|known| known.target).unwrap_or_default();
        if let Some(instance) = &who.instance {
            self.instances.insert(instance.clone(), who.member.clone());
        }
        self.members.insert(
            who.member.clone(),
            Member {
                instance: who.instance.clone(),
                rack: beat.rack,
                rebalance_ms,
                reads,
                assignor: beat.assignor,
                client: beat.client,
                host: beat.host,
                epoch: 0,
                epoch_before: 0,
                is_away: false,
                // It holds nothing: what it had is free.
                assigned: BTreeSet::new(),
                revoking: BTreeSet::new(),
                target,
                owes_news: true,
                expires: now.plus(self.options.session_ms),
                revoke_until: None,
            },
        );
        Ok(!same)
    }

    /// Whether what a member says changes the shares.
    fn go_on(&mut self, now: TimeMs, beat: Beat) -> Result<bool, NotHeld> {
        if let Some(instance) = &beat.who.instance {
            match self.instances.get(instance) {
                None => return Err(MembershipRefused::UnknownMember.into()),
                Some(id) if *id != beat.who.member => return Err(MembershipRefused::Fenced.into()),
                Some(_) => {}
            }
        }
        let session_ms = self.options.session_ms;
        let member = self
            .members
            .get_mut(&beat.who.member)
            .ok_or(MembershipRefused::UnknownMember)?;
        let current = i64::from(member.epoch);
        if beat.epoch != current {
            // The answer that told it of its epoch was lost: it holds nothing that it may not.
            let held = beat.held.as_ref().is_none_or(|held| {
                held.iter()
                    .all(|it| member.assigned.contains(it) || member.revoking.contains(it))
            });
            if beat.epoch != i64::from(member.epoch_before) || !held {
                return Err(NotHeld::FencedEpoch { current });
            }
            member.owes_news = true;
        }
        member.expires = now.plus(session_ms);
        if let Some(held) = beat.held {
            member.revoking.retain(|partition| held.contains(partition));
            if member.revoking.is_empty() {
                member.revoke_until = None;
            }
        }
        member.rebalance_ms = beat.rebalance_ms.unwrap_or(member.rebalance_ms);
        member.rack = beat.rack.or_else(|| member.rack.take());
        let mut changed = false;
        if let Some(reads) = beat.reads {
            let reads = reads.into_iter().collect();
            changed |= member.reads != reads;
            member.reads = reads;
        }
        if beat.assignor.is_some() {
            changed |= member.assignor != beat.assignor;
            member.assignor = beat.assignor;
        }
        Ok(changed)
    }

    fn leave(&mut self, now: TimeMs, beat: &Beat) -> Result<Held, NotHeld> {
        let id = &beat.who.member;
        let session_ms = self.options.session_ms;
        let member = self
            .members
            .get_mut(id)
            .ok_or(MembershipRefused::UnknownMember)?;
        if beat.epoch == -2 && member.instance.is_some() {
            member.is_away = true;
            member.revoke_until = None;
            member.expires = now.plus(session_ms);
        } else {
            self.remove(id);
            self.share_out();
        }
        Ok(Held {
            epoch: beat.epoch,
            assigned: None,
        })
    }

    fn remove(&mut self, id: &MemberId) {
        let Some(member) = self.members.remove(id) else {
            return;
        };
        if let Some(instance) = &member.instance
            && self.instances.get(instance) == Some(id)
        {
            self.instances.remove(instance);
        }
        self.epoch += 1;
    }

    /// Decides the shares anew.
    fn share_out(&mut self) {
        let widths: BTreeMap<u64, u32> = self
            .topics
            .values()
            .map(|topic| (topic.number, topic.width))
            .collect();
        let wish = |member: &Member| Wish {
            reads: member
                .reads
                .iter()
                .filter_map(|name| self.topics.get(name))
                .map(|topic| topic.number)
                .collect(),
            had: member.target.clone(),
        };
        let wishes: Vec<Wish> = self.members.values().map(wish).collect();
        let shares = share_out(self.assignor(), &widths, &wishes);
        for (member, share) in self.members.values_mut().zip(shares) {
            member.target = share;
        }
        self.target_epoch = self.epoch;
    }

    /// Brings a member nearer to its share, and says what it may hold.
    fn reconcile(&mut self, now: TimeMs, id: &MemberId, is_full: bool) -> Result<Held, NotHeld> {
        let taken: BTreeSet<Partition> = self
            .members
            .iter()
            .filter(|(other, _)| *other != id)
            .flat_map(|(_, member)| member.assigned.union(&member.revoking))
            .copied()
            .collect();
        let target_epoch = self.target_epoch;
        let member = self
            .members
            .get_mut(id)
            .ok_or(MembershipRefused::UnknownMember)?;
        let mut news = is_full || std::mem::take(&mut member.owes_news);
        if member.revoking.is_empty() {
            let surplus: BTreeSet<Partition> = member
                .assigned
                .difference(&member.target)
                .copied()
                .collect();
            if surplus.is_empty() {
                if member.epoch != target_epoch {
                    member.epoch_before = member.epoch;
                    member.epoch = target_epoch;
                }
                let free = member.target.difference(&taken).copied();
                let before = member.assigned.len();
                member.assigned.extend(free.collect::<Vec<_>>());
                news |= member.assigned.len() != before;
            } else {
                member.assigned.retain(|it| member.target.contains(it));
                member.revoking = surplus;
                member.revoke_until = Some(now.plus(member.rebalance_ms.max(1)));
                news = true;
            }
        }
        Ok(Held {
            epoch: member.epoch.into(),
            assigned: news.then(|| member.assigned.clone()),
        })
    }

    /// Who holds what, for whoever checks that nothing is held twice.
    pub fn owners(&self) -> impl Iterator<Item = (&MemberId, Partition)> {
        self.members.iter().flat_map(|(id, member)| {
            let held = member.assigned.union(&member.revoking);
            held.map(move |partition| (id, *partition))
        })
    }
}

impl Member {
    fn shown_epoch(&self) -> i64 {
        if self.is_away { -2 } else { self.epoch.into() }
    }
}
