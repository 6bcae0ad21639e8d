//! How a round begins and ends, and what time does to members.

use std::collections::BTreeMap;

use felix_model::TimeMs;

use super::super::{MemberId, MembershipRefused};
use super::types::{LedEffect, LedState};
use super::{Led, answer};
use crate::input::Ticket;

impl Led {
    /// Removes who was silent for too long. Somebody whose request waits here is not silent.
    pub(super) fn pass(&mut self, now: TimeMs, effects: &mut Vec<LedEffect>) {
        self.promised.retain(|_, until| *until > now);
        let lost: Vec<MemberId> = self
            .members
            .iter()
            .filter(|(_, member)| !member.is_waiting() && member.expires <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &lost {
            self.forget(id, effects);
        }
        if !lost.is_empty() {
            self.after_loss(now, effects);
        }
        self.end_round(now, effects);
    }

    /// Ends the open round if everybody it waits for is there, or its time is up.
    pub(super) fn end_round(&mut self, now: TimeMs, effects: &mut Vec<LedEffect>) {
        let is_over = self.round_ends.is_some_and(|ends| ends <= now);
        match self.state {
            LedState::Preparing => {
                let all_joined = self.gathering.is_none()
                    && self.promised.is_empty()
                    && self.members.values().all(|member| member.joining.is_some());
                if all_joined || is_over {
                    self.complete(now, effects);
                }
            }
            LedState::Completing if is_over => {
                let generation = self.generation;
                self.keep_only(
                    |member| member.syncing.is_some() || member.joined_in != generation,
                    effects,
                );
                self.after_loss(now, effects);
            }
            LedState::Completing | LedState::Empty | LedState::Stable | LedState::Dead => {}
        }
    }

    /// A member that joins while the first round gathers prolongs it.
    pub(super) fn gather_on(&mut self, now: TimeMs) {
        let delay = self.options.initial_delay_ms;
        if let Some(at_most) = self.gathering {
            self.round_ends = Some(now.plus(delay).min(at_most));
        }
    }

    /// Opens a round, unless one is open: everybody is to join again.
    pub(super) fn prepare(&mut self, now: TimeMs, effects: &mut Vec<LedEffect>) {
        if self.state == LedState::Preparing {
            return;
        }
        let was_empty = self.state == LedState::Empty;
        self.state = LedState::Preparing;
        for member in self.members.values_mut() {
            if let Some(ticket) = member.syncing.take() {
                // It was not silent while it waited.
                member.expires = now.plus(member.session_ms);
                answer(ticket, Err(MembershipRefused::RebalanceInProgress), effects);
            }
        }
        let longest = now.plus(self.longest_rebalance_ms());
        let delay = self.options.initial_delay_ms;
        if was_empty && delay > 0 {
            self.gathering = Some(longest);
            self.round_ends = Some(now.plus(delay).min(longest));
        } else {
            self.round_ends = Some(longest);
        }
    }

    fn longest_rebalance_ms(&self) -> u64 {
        let all = self.members.values().map(|member| member.rebalance_ms);
        all.max().unwrap_or(0)
    }

    /// Everybody who is going to join has: the next generation begins.
    fn complete(&mut self, now: TimeMs, effects: &mut Vec<LedEffect>) {
        self.gathering = None;
        self.round_ends = None;
        // An instance keeps its place until its session is over.
        self.keep_only(
            |member| member.joining.is_some() || member.instance.is_some(),
            effects,
        );
        if self.members.is_empty() {
            return self.empty();
        }
        if self.members.values().all(|member| member.joining.is_none()) {
            // Only instances that are away: there is nobody to tell of a generation.
            self.round_ends = Some(now.plus(self.longest_rebalance_ms().max(1)));
            return;
        }
        self.generation += 1;
        self.protocol = self.vote();
        self.elect();
        self.state = LedState::Completing;
        self.round_ends = Some(now.plus(self.longest_rebalance_ms()));
        let generation = self.generation;
        let joined: Vec<(MemberId, Ticket)> = self
            .members
            .iter_mut()
            .filter_map(|(id, member)| {
                let ticket = member.joining.take()?;
                member.joined_in = generation;
                member.expires = now.plus(member.session_ms);
                Some((id.clone(), ticket))
            })
            .collect();
        for (id, ticket) in joined {
            self.answer_join(&id, ticket, effects);
        }
    }

    /// The leader stays, if it is here; else one that is, and of those the first.
    fn elect(&mut self) {
        let joined = |id: &MemberId| {
            self.members
                .get(id)
                .is_some_and(|member| member.joining.is_some())
        };
        if self.leader.as_ref().is_some_and(joined) {
            return;
        }
        let first_joined = self.members.keys().find(|id| joined(id));
        self.leader = first_joined.or_else(|| self.members.keys().next()).cloned();
    }

    /// The protocol most members like best among those that all speak; the first of equals.
    pub(super) fn vote(&self) -> Option<MemberId> {
        let spoken = |name: &MemberId| self.members.values().all(|member| member.speaks(name));
        let mut votes: BTreeMap<&MemberId, u32> = BTreeMap::new();
        for member in self.members.values() {
            let liked = member.protocols.iter().find(|known| spoken(&known.name));
            if let Some(liked) = liked {
                *votes.entry(&liked.name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        let (name, _) = votes.into_iter().find(|(_, count)| *count == most)?;
        Some(name.clone())
    }

    fn keep_only(&mut self, stays: impl Fn(&super::Member) -> bool, effects: &mut Vec<LedEffect>) {
        let missing: Vec<MemberId> = self
            .members
            .iter()
            .filter(|(_, member)| !stays(member))
            .map(|(id, _)| id.clone())
            .collect();
        for id in missing {
            self.forget(&id, effects);
        }
    }

    /// Takes a member out. What waits for it hears that it is unknown.
    pub(super) fn forget(&mut self, id: &MemberId, effects: &mut Vec<LedEffect>) {
        let Some(member) = self.members.remove(id) else {
            return;
        };
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        if self.leader.as_ref() == Some(id) {
            self.leader = None;
        }
        for ticket in [member.joining, member.syncing].into_iter().flatten() {
            answer(ticket, Err(MembershipRefused::UnknownMember), effects);
        }
    }

    /// Somebody is gone: what it had is shared out anew.
    pub(super) fn after_loss(&mut self, now: TimeMs, effects: &mut Vec<LedEffect>) {
        match self.state {
            LedState::Completing | LedState::Stable => {
                if self.members.is_empty() {
                    self.generation += 1;
                    self.empty();
                } else {
                    self.prepare(now, effects);
                }
            }
            LedState::Preparing if self.members.is_empty() => self.empty(),
            LedState::Preparing | LedState::Empty | LedState::Dead => {}
        }
    }

    fn empty(&mut self) {
        self.state = LedState::Empty;
        self.protocol = None;
        self.protocol_type = None;
        self.leader = None;
        self.round_ends = None;
        self.gathering = None;
    }

    pub(super) fn close(&mut self, effects: &mut Vec<LedEffect>) {
        for member in std::mem::take(&mut self.members).into_values() {
            for ticket in [member.joining, member.syncing].into_iter().flatten() {
                answer(ticket, Err(MembershipRefused::NotCoordinator), effects);
            }
        }
        self.instances.clear();
        self.promised.clear();
        self.empty();
        self.state = LedState::Dead;
    }
}
