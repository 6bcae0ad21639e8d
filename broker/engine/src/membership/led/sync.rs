//! Assignments, signs of life and leaving.

use std::collections::BTreeMap;

use bytes::Bytes;
use felix_model::TimeMs;

use super::super::{MemberId, MembershipRefused};
use super::types::{LedAnswer, LedEffect, LedState, SyncLed, Who};
use super::{Led, answer};
use crate::input::Ticket;

impl Led {
    pub(super) fn sync(
        &mut self,
        now: TimeMs,
        ticket: Ticket,
        sync: SyncLed,
        effects: &mut Vec<LedEffect>,
    ) -> Result<(), MembershipRefused> {
        self.member(&sync.who)?;
        self.same_generation(sync.generation)?;
        let differs = |said: &Option<MemberId>, is: &Option<MemberId>| {
            said.is_some() && is.is_some() && said != is
        };
        if differs(&sync.protocol_type, &self.protocol_type)
            || differs(&sync.protocol, &self.protocol)
        {
            return Err(MembershipRefused::InconsistentProtocol);
        }
        let leads = self.leader.as_ref() == Some(&sync.who.member);
        let state = self.state;
        let Some(member) = self.members.get_mut(&sync.who.member) else {
            return Err(MembershipRefused::UnknownMember);
        };
        member.expires = now.plus(member.session_ms);
        match state {
            LedState::Empty | LedState::Dead => Err(MembershipRefused::UnknownMember),
            LedState::Preparing => Err(MembershipRefused::RebalanceInProgress),
            LedState::Completing => {
                if let Some(before) = member.syncing.replace(ticket) {
                    answer(before, Err(MembershipRefused::RebalanceInProgress), effects);
                }
                if leads {
                    self.assign(now, sync.assignments, effects);
                }
                Ok(())
            }
            LedState::Stable => {
                self.answer_sync(&sync.who.member, ticket, effects);
                Ok(())
            }
        }
    }

    /// The leader has said who gets what; whoever it left out gets nothing.
    fn assign(
        &mut self,
        now: TimeMs,
        assignments: Vec<(MemberId, Bytes)>,
        effects: &mut Vec<LedEffect>,
    ) {
        let mut assignments: BTreeMap<MemberId, Bytes> = assignments.into_iter().collect();
        self.state = LedState::Stable;
        self.round_ends = None;
        let mut waiting = Vec::new();
        for (id, member) in &mut self.members {
            member.assignment = assignments.remove(id).unwrap_or_default();
            if let Some(ticket) = member.syncing.take() {
                member.expires = now.plus(member.session_ms);
                waiting.push((id.clone(), ticket));
            }
        }
        for (id, ticket) in waiting {
            self.answer_sync(&id, ticket, effects);
        }
    }

    fn answer_sync(&self, id: &MemberId, ticket: Ticket, effects: &mut Vec<LedEffect>) {
        let synced = LedAnswer::Synced {
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment: self.assignment(id).cloned().unwrap_or_default(),
        };
        answer(ticket, Ok(synced), effects);
    }

    pub(super) fn beat(
        &mut self,
        now: TimeMs,
        who: &Who,
        generation: u32,
    ) -> Result<(), MembershipRefused> {
        self.member(who)?;
        self.same_generation(generation)?;
        if let Some(member) = self.members.get_mut(&who.member) {
            member.expires = now.plus(member.session_ms);
        }
        match self.state {
            LedState::Preparing => Err(MembershipRefused::RebalanceInProgress),
            // A member that was told its generation may beat before it has its assignment.
            LedState::Completing | LedState::Stable | LedState::Empty | LedState::Dead => Ok(()),
        }
    }

    pub(super) fn leave(
        &mut self,
        now: TimeMs,
        mut who: Who,
        effects: &mut Vec<LedEffect>,
    ) -> (Who, Result<(), MembershipRefused>) {
        // An operator removes an instance by its name alone.
        if who.member.is_empty()
            && let Some(id) = who
                .instance
                .as_ref()
                .and_then(|name| self.instances.get(name))
        {
            who.member = id.clone();
        }
        if self.promised.remove(&who.member).is_some() {
            return (who, Ok(()));
        }
        if let Err(refused) = self.member(&who) {
            return (who, Err(refused));
        }
        self.forget(&who.member, effects);
        self.after_loss(now, effects);
        (who, Ok(()))
    }
}
