//! A group in which the broker shares out (KIP-848).
//!
//! Three epochs: the group's grows when members or what they read change; the target's is that of the group when the shares
//! were last decided; a member's is that of the target once it has given back everything that is not in its share. A
//! partition is given to a member only when no other has it, or has to give it back and did not say that it did. So each has
//! one owner, and an epoch that a member does not have gets it nothing.
//!
//! What is decided about members is written ([`KeptMember`]): one that does not hear of a restart goes on working on what it
//! has, so the group must not have forgotten that it does. Whoever runs this takes what was [`Consumer::touched`] into the log
//! before a member hears of it.

mod member;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use felix_model::TimeMs;

pub use self::member::KeptMember;
use self::member::Member;
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
    members: BTreeMap<MemberId, Member>,
    instances: BTreeMap<MemberId, MemberId>,
    /// Members that are not as they were when they were last taken.
    touched: BTreeSet<MemberId>,
}

impl Consumer {
    /// A group without members whose epoch was `epoch`.
    pub fn new(options: ConsumerOptions, epoch: u32) -> Self {
        Self {
            options,
            epoch,
            target_epoch: epoch,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            touched: BTreeSet::new(),
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
        let settled = |member: &Member| {
            member.kept.epoch == self.target_epoch && member.kept.assigned == member.kept.target
        };
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
        let wanted = self.members.values();
        let wanted = wanted.filter_map(|member| member.kept.assignor);
        let mut votes: BTreeMap<Assignor, u32> = BTreeMap::new();
        for assignor in wanted {
            *votes.entry(assignor).or_default() += 1;
        }
        let most = votes.into_iter().rev().max_by_key(|(_, count)| *count);
        most.map(|(assignor, _)| assignor).unwrap_or_default()
    }

    /// The members, by id.
    pub fn members(&self) -> impl Iterator<Item = ConsumerMemberView> + '_ {
        self.members.iter().map(|(id, member)| member.view(id))
    }

    /// Whether a member reads a stream.
    pub fn reads(&self, number: u64) -> bool {
        self.topics().any(|topic| topic.number == number)
    }

    fn topics(&self) -> impl Iterator<Item = &Topic> {
        let members = self.members.values();
        members.flat_map(|member| member.kept.reads.values().flatten())
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
        let before = self.kept(&id).cloned();
        let is_full = beat.epoch == 0;
        let changed = if is_full {
            self.join(now, beat, find)?
        } else {
            self.go_on(now, beat, find)?
        };
        if changed {
            self.epoch += 1;
            self.share_out();
        }
        let held = self.reconcile(now, &id, is_full);
        if self.kept(&id) != before.as_ref() {
            self.touched.insert(id);
        }
        held
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
        let known = [member.kept.epoch, member.kept.epoch_before].map(i64::from);
        if known.contains(&epoch) {
            return Ok(());
        }
        let current = member.kept.epoch.into();
        Err(NotCommitted::StaleEpoch { current })
    }

    /// Whether somebody new, or somebody who starts again, changes the shares.
    fn join(
        &mut self,
        now: TimeMs,
        beat: Beat,
        find: &dyn Fn(&TopicName) -> Option<Topic>,
    ) -> Result<bool, NotHeld> {
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
        let reads = found(reads, find);
        let before = who
            .instance
            .as_ref()
            .and_then(|instance| self.instances.get(instance))
            .cloned();
        let away = before.filter(|before| *before != who.member);
        if let Some(before) = &away
            && !self.members.get(before).is_some_and(|it| it.kept.is_away)
        {
            return Err(NotHeld::Unreleased);
        }
        let own = self.members.remove(&who.member);
        if away.is_none() && own.is_none() && self.members.len() >= self.options.members_max {
            let limit = self.options.members_max;
            return Err(MembershipRefused::Full { limit }.into());
        }
        if let Some(own) = &own {
            self.give_up_name(&who.member, &own.kept, who.instance.as_ref());
        }
        // Who has two shares, one from before and one of its name, keeps that of the name; the other is for all.
        let gives_up = away.is_some() && own.is_some();
        let known = match away {
            Some(before) => {
                // It has its share back, under its new id, without anybody else noticing.
                self.touched.insert(before.clone());
                self.members.remove(&before)
            }
            None => own,
        };
        let same = !gives_up
            && known.as_ref().is_some_and(|known| {
                known.kept.reads == reads && known.kept.assignor == beat.assignor
            });
        let target = known.map(|known| known.kept.target);
        if let Some(instance) = &who.instance {
            self.instances.insert(instance.clone(), who.member.clone());
        }
        self.members.insert(
            who.member.clone(),
            Member {
                kept: KeptMember {
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
                    target: target.unwrap_or_default(),
                },
                owes_news: true,
                knows_epoch: false,
                expires: now.plus(self.options.session_ms),
                revoke_until: None,
            },
        );
        Ok(!same)
    }

    /// Whether what a member says changes the shares.
    fn go_on(
        &mut self,
        now: TimeMs,
        beat: Beat,
        find: &dyn Fn(&TopicName) -> Option<Topic>,
    ) -> Result<bool, NotHeld> {
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
        member.hear_epoch(beat.epoch, beat.held.as_ref())?;
        member.expires = now.plus(session_ms);
        if let Some(held) = beat.held {
            member.hear_held(&held);
        }
        let kept = &mut member.kept;
        kept.rebalance_ms = beat.rebalance_ms.unwrap_or(kept.rebalance_ms);
        kept.rack = beat.rack.or_else(|| kept.rack.take());
        let reads = match &beat.reads {
            Some(reads) => found(reads, find),
            None => found(kept.reads.keys(), find),
        };
        let mut changed = kept.reads != reads;
        kept.reads = reads;
        if beat.assignor.is_some() {
            changed |= kept.assignor != beat.assignor;
            kept.assignor = beat.assignor;
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
        if beat.epoch == -2 && member.kept.instance.is_some() {
            member.kept.is_away = true;
            self.touched.insert(id.clone());
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
        self.touched.insert(id.clone());
        self.give_up_name(id, &member.kept, None);
        self.epoch += 1;
    }

    /// A member that was `old` has no name, or another one, from here on.
    fn give_up_name(&mut self, id: &MemberId, old: &KeptMember, next: Option<&MemberId>) {
        if let Some(instance) = &old.instance
            && next != Some(instance)
            && self.instances.get(instance) == Some(id)
        {
            self.instances.remove(instance);
        }
    }

    /// Decides the shares anew; whether they are others than before.
    fn share_out(&mut self) -> bool {
        // One that was told of a stream before another takes it for as wide as that one.
        let mut widths: BTreeMap<u64, u32> = BTreeMap::new();
        for topic in self.topics() {
            let width = widths.entry(topic.number).or_default();
            *width = topic.width.max(*width);
        }
        let wishes: Vec<Wish> = self.members.values().map(Member::wish).collect();
        let shares = share_out(self.assignor(), &widths, &wishes);
        let mut changed = false;
        for ((id, member), share) in self.members.iter_mut().zip(shares) {
            if member.kept.target != share {
                member.kept.target = share;
                self.touched.insert(id.clone());
                changed = true;
            }
        }
        self.target_epoch = self.epoch;
        changed
    }

    /// Brings a member nearer to its share, and says what it may hold.
    fn reconcile(&mut self, now: TimeMs, id: &MemberId, is_full: bool) -> Result<Held, NotHeld> {
        let taken: BTreeSet<Partition> = self
            .members
            .iter()
            .filter(|(other, _)| *other != id)
            .flat_map(|(_, member)| member.kept.assigned.union(&member.kept.revoking))
            .copied()
            .collect();
        let target_epoch = self.target_epoch;
        let member = self
            .members
            .get_mut(id)
            .ok_or(MembershipRefused::UnknownMember)?;
        let mut news = is_full || std::mem::take(&mut member.owes_news);
        news |= member.approach(now, target_epoch, &taken);
        Ok(Held {
            epoch: member.kept.epoch.into(),
            assigned: news.then(|| member.kept.assigned.clone()),
        })
    }

    /// What the log is to have of a member, if it is one.
    pub(super) fn kept(&self, id: &MemberId) -> Option<&KeptMember> {
        self.members.get(id).map(|member| &member.kept)
    }

    /// Takes the ids of those who are not as they were, or are members no more.
    pub fn touched(&mut self) -> BTreeSet<MemberId> {
        std::mem::take(&mut self.touched)
    }

    /// The log has a member as it was, or that it was one no more.
    ///
    /// Who has a partition or an instance by a later record has it: it got it when nobody had it any more, and that the one
    /// before gave it up is in a record that the log did not get.
    pub(super) fn restore(&mut self, id: &MemberId, kept: Option<KeptMember>) {
        let Some(kept) = kept else {
            if let Some(gone) = self.members.remove(id) {
                self.give_up_name(id, &gone.kept, None);
            }
            return;
        };
        for (_, other) in self.members.iter_mut().filter(|(other, _)| *other != id) {
            other.lose(&kept.assigned);
            other.lose(&kept.revoking);
        }
        if let Some(old) = self.members.remove(id) {
            self.give_up_name(id, &old.kept, kept.instance.as_ref());
        }
        if let Some(instance) = &kept.instance
            && let Some(before) = self.instances.insert(instance.clone(), id.clone())
            && before != *id
        {
            self.members.remove(&before);
            self.touched.insert(before);
        }
        self.members.insert(id.clone(), Member::restored(kept));
    }

    /// The log has an epoch that may have been given out.
    pub(super) fn restore_epoch(&mut self, epoch: u32) {
        self.epoch = self.epoch.max(epoch);
        self.target_epoch = self.epoch;
    }

    /// The group is served from here on. Members have their session anew: while nobody served it, they could not be heard.
    pub(super) fn resume(&mut self, now: TimeMs) {
        for member in self.members.values_mut() {
            member.resume(now, self.options.session_ms);
        }
        // They fit as they are, unless the log did not get some.
        if self.share_out() {
            self.epoch += 1;
            self.target_epoch = self.epoch;
        }
    }

    /// Who holds what, for whoever checks that nothing is held twice.
    pub fn owners(&self) -> impl Iterator<Item = (&MemberId, Partition)> {
        self.members.iter().flat_map(|(id, member)| {
            let held = member.kept.assigned.union(&member.kept.revoking);
            held.map(move |partition| (id, *partition))
        })
    }
}

/// What streams stand for, by name.
fn found<'a>(
    names: impl IntoIterator<Item = &'a TopicName>,
    find: &dyn Fn(&TopicName) -> Option<Topic>,
) -> BTreeMap<TopicName, Option<Topic>> {
    let names = names.into_iter();
    names.map(|name| (name.clone(), find(name))).collect()
}
