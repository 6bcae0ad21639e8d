//! How targets follow the members, and holders the targets.

use std::collections::{BTreeMap, BTreeSet};

use felix_model::TimeMs;

use super::super::{MemberId, MembershipRefused, balance};
use super::types::{AssignedAnswer, AssignedEffect, Assignment};
use super::{Assigned, Revoked, Settle, Shard, Told, answer};
use crate::input::Ticket;

impl Assigned {
    /// Carries out what became due.
    pub(super) fn pass(&mut self, now: TimeMs, effects: &mut Vec<AssignedEffect>) {
        for shard in &mut self.shards {
            if shard.revoked.take_if(|revoked| revoked.by <= now).is_some() {
                shard.holder = None;
            }
        }
        let lost: Vec<MemberId> = self
            .members
            .iter()
            .filter(|(_, member)| member.expires() <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in lost {
            self.remove(now, &id, &MembershipRefused::UnknownMember, effects);
        }
        if self.settle.is_some_and(|settle| settle.at <= now) {
            self.rebalance(now);
        }
        let due: Vec<(MemberId, Ticket)> = self
            .members
            .iter_mut()
            .filter_map(|(id, member)| {
                let parked = member.parked.take_if(|parked| parked.until <= now)?;
                Some((id.clone(), parked.ticket))
            })
            .collect();
        for (id, ticket) in due {
            self.answer(&id, ticket, effects);
        }
    }

    /// Takes a member out; what it held is free at once.
    pub(super) fn remove(
        &mut self,
        now: TimeMs,
        id: &MemberId,
        why: &MembershipRefused,
        effects: &mut Vec<AssignedEffect>,
    ) {
        let Some(member) = self.members.remove(id) else {
            return;
        };
        if let Some(parked) = member.parked {
            answer(parked.ticket, Err(why.clone()), effects);
        }
        for shard in &mut self.shards {
            if shard.holder.take_if(|holder| holder == id).is_some() {
                shard.revoked = None;
            }
        }
        if self.settle.is_none() || self.members.is_empty() {
            self.rebalance(now);
        }
    }

    /// The first member waits for others.
    pub(super) fn put_off(&mut self, now: TimeMs) {
        let delay = self.options.initial_delay_ms;
        let at = now.plus(delay).max(self.options.quiet_until);
        let at_most = now
            .plus(delay.saturating_mul(3))
            .max(self.options.quiet_until);
        self.settle = (at > now).then_some(Settle { at, at_most });
    }

    /// Makes the targets anew, by who is here.
    pub(super) fn rebalance(&mut self, now: TimeMs) {
        self.settle = None;
        let ids: Vec<MemberId> = self.members.keys().cloned().collect();
        let index: BTreeMap<&MemberId, usize> =
            ids.iter().enumerate().map(|(i, id)| (id, i)).collect();
        // Whoever is to have a shard keeps it; else whoever is working on it goes on.
        let place = |id: &Option<MemberId>| id.as_ref().and_then(|id| index.get(id)).copied();
        let owners: Vec<Option<usize>> = self
            .shards
            .iter()
            .map(|shard| place(&shard.target).or_else(|| place(&shard.holder)))
            .collect();
        let targets = balance(ids.len(), &owners);
        let next = self.generation + 1;
        let mut changed = false;
        for (shard, target) in self.shards.iter_mut().zip(targets) {
            let target = target.and_then(|member| ids.get(member)).cloned();
            changed |= shard.target != target;
            shard.target = target;
            if shard.target == shard.holder || shard.target.is_none() {
                shard.revoked = None;
            } else if let Some(holder) = shard.holder.as_ref().and_then(|id| self.members.get(id)) {
                // Its time runs from when it first had to, not from the latest change of plan.
                shard.revoked.get_or_insert_with(|| Revoked {
                    generation: next,
                    by: now.plus(holder.rebalance_ms),
                });
            }
        }
        if changed {
            self.generation = next;
        }
    }

    /// Frees what a member was to give up and works on no more. It must have been told: a member
    /// that has not heard of the shard yet, or not of its loss, is not one that gave it up.
    pub(super) fn release(&mut self, id: &MemberId, generation: u64, owned: &BTreeSet<u32>) {
        for (number, shard) in (0..).zip(&mut self.shards) {
            let heard = |revoked: &mut Revoked| revoked.generation <= generation;
            if shard.holder.as_ref() == Some(id)
                && !owned.contains(&number)
                && shard.revoked.take_if(heard).is_some()
            {
                shard.holder = None;
            }
        }
    }

    /// A member that comes back goes on with what it had, as far as nobody else has it now.
    pub(super) fn claim(&mut self, id: &MemberId, owned: &BTreeSet<u32>) {
        for number in owned {
            if let Some(shard) = self.shards.get_mut(*number as usize)
                && shard.holder.is_none()
                && shard.target.as_ref().is_none_or(|target| target == id)
            {
                shard.holder = Some(id.clone());
            }
        }
    }

    /// Gives every free shard to whom it is to have.
    pub(super) fn grant(&mut self) {
        let mut given = false;
        for shard in &mut self.shards {
            if shard.holder.is_none() && shard.target.is_some() {
                given = true;
                shard.holder.clone_from(&shard.target);
            }
        }
        self.generation += u64::from(given);
    }

    /// Whether a member does not know yet what it may work on or what it is to give up.
    pub(super) fn has_news(&self, id: &MemberId) -> bool {
        let Some(told) = self.members.get(id).and_then(|member| member.told.as_ref()) else {
            return true;
        };
        let unheard = |shard: &Shard| {
            let revoked = shard.revoked.map(|revoked| revoked.generation);
            shard.holder.as_ref() == Some(id) && revoked > Some(told.generation)
        };
        self.shards.iter().any(unheard) || told.shards != self.allowed(id)
    }

    /// The end of every turn: gives on what is free, and tells those who wait for news.
    pub(super) fn settle(&mut self, effects: &mut Vec<AssignedEffect>) {
        self.grant();
        if self.settled == self.generation {
            return;
        }
        self.settled = self.generation;
        let waiting: Vec<MemberId> = self
            .members
            .iter()
            .filter(|(_, member)| member.parked.is_some())
            .map(|(id, _)| id.clone())
            .collect();
        for id in waiting {
            let has_news = self.has_news(&id);
            let member = self.members.get_mut(&id);
            let parked = member.and_then(|member| member.parked.take_if(|_| has_news));
            if let Some(parked) = parked {
                self.answer(&id, parked.ticket, effects);
            }
        }
    }

    pub(super) fn answer(
        &mut self,
        id: &MemberId,
        ticket: Ticket,
        effects: &mut Vec<AssignedEffect>,
    ) {
        self.grant();
        let shards = self.allowed(id);
        let target = |shard: &&Shard| shard.target.as_ref() == Some(id);
        let targets = self.shards.iter().filter(target).count();
        let pending = u32::try_from(targets.saturating_sub(shards.len())).unwrap_or(u32::MAX);
        let generation = self.generation;
        let Some(member) = self.members.get_mut(id) else {
            return answer(ticket, Err(MembershipRefused::UnknownMember), effects);
        };
        member.told = Some(Told {
            generation,
            shards: shards.clone(),
        });
        let assignment = Assignment {
            session: member.session,
            generation,
            shards,
            pending,
            beat_ms: member.beat_ms(),
        };
        answer(ticket, Ok(AssignedAnswer::Assignment(assignment)), effects);
    }

    /// What a member may work on.
    pub(super) fn allowed(&self, id: &MemberId) -> Vec<u32> {
        self.held(id, |shard| shard.revoked.is_none())
    }

    /// What a member was told to give up.
    pub(super) fn giving_up(&self, id: &MemberId) -> Vec<u32> {
        self.held(id, |shard| shard.revoked.is_some())
    }

    fn held(&self, id: &MemberId, which: impl Fn(&Shard) -> bool) -> Vec<u32> {
        (0..)
            .zip(&self.shards)
            .filter(|(_, shard)| shard.holder.as_ref() == Some(id) && which(shard))
            .map(|(number, _)| number)
            .collect()
    }

    pub(super) fn resize(&mut self, now: TimeMs, count: u32) {
        self.shards.resize_with(count as usize, Shard::default);
        if self.settle.is_none() {
            self.rebalance(now);
        }
    }

    pub(super) fn close(&mut self, effects: &mut Vec<AssignedEffect>) {
        self.closed = true;
        for member in std::mem::take(&mut self.members).into_values() {
            if let Some(parked) = member.parked {
                let refused = MembershipRefused::NotCoordinator;
                answer(parked.ticket, Err(refused), effects);
            }
        }
        self.shards.clear();
        self.settle = None;
    }
}
