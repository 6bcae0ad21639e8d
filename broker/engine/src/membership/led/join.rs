//! Who gets in, and what a join means in each state.

use bytes::Bytes;
use felix_model::TimeMs;

use super::super::{MemberId, MembershipRefused};
use super::types::{JoinLed, Joined, JoinedMember, LedAnswer, LedEffect, LedState, Protocol, Who};
use super::{Led, Member, answer};
use crate::input::Ticket;

impl Led {
    /// Parks the join, or answers it when the member has missed nothing.
    pub(super) fn join(
        &mut self,
        now: TimeMs,
        ticket: Ticket,
        join: JoinLed,
        effects: &mut Vec<LedEffect>,
    ) -> Result<(), MembershipRefused> {
        self.admissible(&join)?;
        if join.who.member.is_empty() {
            return self.join_new(now, ticket, join, effects);
        }
        let id = join.who.member.clone();
        if self.promised.contains_key(&id) {
            self.speaks(&join, None)?;
            self.promised.remove(&id);
            self.enter(now, ticket, id, join, effects);
            return Ok(());
        }
        self.member(&join.who)?;
        self.speaks(&join, Some(&id))?;
        self.join_again(now, ticket, &id, join, effects);
        Ok(())
    }

    fn admissible(&self, join: &JoinLed) -> Result<(), MembershipRefused> {
        if self.state == LedState::Dead {
            return Err(MembershipRefused::NotCoordinator);
        }
        let (min, max) = (self.options.session_ms_min, self.options.session_ms_max);
        if !(min..=max).contains(&join.session_ms) {
            return Err(MembershipRefused::InvalidSession {
                asked: join.session_ms,
                min,
                max,
            });
        }
        Ok(())
    }

    /// Whether the member and all others have a protocol in common.
    fn speaks(&self, join: &JoinLed, but: Option<&MemberId>) -> Result<(), MembershipRefused> {
        let mut others = self
            .members
            .iter()
            .filter(|(id, _)| Some(*id) != but)
            .map(|(_, member)| member)
            .peekable();
        let same_type =
            others.peek().is_none() || self.protocol_type.as_ref() == Some(&join.protocol_type);
        let others: Vec<&Member> = others.collect();
        let common = join
            .protocols
            .iter()
            .any(|known| others.iter().all(|other| other.speaks(&known.name)));
        if same_type && common && !join.protocol_type.is_empty() {
            Ok(())
        } else {
            Err(MembershipRefused::InconsistentProtocol)
        }
    }

    fn join_new(
        &mut self,
        now: TimeMs,
        ticket: Ticket,
        join: JoinLed,
        effects: &mut Vec<LedEffect>,
    ) -> Result<(), MembershipRefused> {
        let before = join
            .who
            .instance
            .as_ref()
            .and_then(|instance| self.instances.get(instance))
            .cloned();
        self.speaks(&join, before.as_ref())?;
        if let Some(before) = before {
            self.replace(now, ticket, &before, join, effects);
            return Ok(());
        }
        let limit = self.options.members_max;
        if self.members.len() + self.promised.len() >= limit {
            return Err(MembershipRefused::Full { limit });
        }
        let id = join.fresh.clone();
        if join.id_required && join.who.instance.is_none() {
            self.promised.insert(id.clone(), now.plus(join.session_ms));
            return Err(MembershipRefused::IdRequired { id });
        }
        self.enter(now, ticket, id, join, effects);
        Ok(())
    }

    /// A member that was not in the group is in it from here on.
    fn enter(
        &mut self,
        now: TimeMs,
        ticket: Ticket,
        id: MemberId,
        join: JoinLed,
        effects: &mut Vec<LedEffect>,
    ) {
        if let Some(instance) = &join.who.instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type);
        }
        let member = Member {
            instance: join.who.instance,
            session_ms: join.session_ms,
            rebalance_ms: join.rebalance_ms,
            expires: now.plus(join.session_ms),
            protocols: join.protocols,
            joining: Some(ticket),
            syncing: None,
            joined_in: 0,
            assignment: Bytes::new(),
        };
        self.members.insert(id, member);
        self.gather_on(now);
        self.prepare(now, effects);
    }

    fn join_again(
        &mut self,
        now: TimeMs,
        ticket: Ticket,
        id: &MemberId,
        join: JoinLed,
        effects: &mut Vec<LedEffect>,
    ) {
        let leads = self.leader.as_ref() == Some(id);
        let state = self.state;
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        member.expires = now.plus(join.session_ms);
        let is_new = member.protocols != join.protocols;
        // In a stable group the leader joins because it wants to share out anew; anybody else whose
        // protocols are the same missed an answer.
        let missed_it = match state {
            LedState::Completing => !is_new,
            LedState::Stable => !is_new && !leads,
            LedState::Empty | LedState::Preparing | LedState::Dead => false,
        };
        if missed_it {
            return self.answer_join(id, ticket, effects);
        }
        update(member, join.session_ms, join.rebalance_ms, join.protocols);
        if let Some(before) = member.joining.replace(ticket) {
            answer(before, Err(MembershipRefused::RebalanceInProgress), effects);
        }
        self.prepare(now, effects);
    }

    /// An instance came back under a new id.
    fn replace(
        &mut self,
        now: TimeMs,
        ticket: Ticket,
        before: &MemberId,
        join: JoinLed,
        effects: &mut Vec<LedEffect>,
    ) {
        let Some(mut member) = self.members.remove(before) else {
            return;
        };
        let id = join.fresh;
        let parked = [member.joining.take(), member.syncing.take()];
        for ticket in parked.into_iter().flatten() {
            answer(ticket, Err(MembershipRefused::Fenced), effects);
        }
        let chosen = self.protocol.clone();
        let metadata = member.metadata(chosen.as_ref());
        update(
            &mut member,
            join.session_ms,
            join.rebalance_ms,
            join.protocols,
        );
        member.expires = now.plus(join.session_ms);
        let same = member.metadata(chosen.as_ref()) == metadata;
        if let Some(instance) = &member.instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        self.members.insert(id.clone(), member);
        let led = self.leader.as_ref() == Some(before);
        if led {
            self.leader = Some(id.clone());
        }
        if self.state == LedState::Stable && same && self.vote() == chosen {
            return self.answer_join_of(&id, ticket, led, effects);
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.joining = Some(ticket);
        }
        self.prepare(now, effects);
    }

    pub(super) fn answer_join(&self, id: &MemberId, ticket: Ticket, effects: &mut Vec<LedEffect>) {
        self.answer_join_of(id, ticket, false, effects);
    }

    fn answer_join_of(
        &self,
        id: &MemberId,
        ticket: Ticket,
        skip_assignment: bool,
        effects: &mut Vec<LedEffect>,
    ) {
        let leader = self.leader.clone().unwrap_or_else(|| id.clone());
        let members = if leader == *id {
            self.everybody()
        } else {
            Vec::new()
        };
        let joined = Joined {
            member: id.clone(),
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader,
            members,
            skip_assignment,
        };
        answer(ticket, Ok(LedAnswer::Joined(joined)), effects);
    }

    fn everybody(&self) -> Vec<JoinedMember> {
        self.members
            .iter()
            .map(|(id, member)| JoinedMember {
                who: Who {
                    member: id.clone(),
                    instance: member.instance.clone(),
                },
                metadata: member.metadata(self.protocol.as_ref()),
            })
            .collect()
    }
}

fn update(member: &mut Member, session_ms: u64, rebalance_ms: u64, protocols: Vec<Protocol>) {
    member.session_ms = session_ms;
    member.rebalance_ms = rebalance_ms;
    member.protocols = protocols;
}
