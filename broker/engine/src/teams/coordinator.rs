//! All groups of one shard of the groups' stream.

use std::collections::{BTreeMap, BTreeSet};

use felix_model::TimeMs;

use super::assign::Partition;
use super::change::{Change, Kept};
use super::consumer::{Beat, Held, NotHeld, Topic, TopicName};
use super::offsets::{CommitAsk, NotCommitted, Position};
use super::team::{Kind, Members, Team, TeamEffect, TeamId, TeamOptions, TeamView};
use crate::input::Ticket;
use crate::membership::{Led, LedAnswer, LedEffect, LedInput, MemberId, MembershipRefused};

/// The groups of one shard.
#[derive(Debug)]
pub struct Coordinator {
    options: TeamOptions,
    teams: BTreeMap<TeamId, Team>,
    /// How many of them each tenant has.
    tenants: BTreeMap<String, usize>,
    /// When groups have to be looked at next.
    deadlines: BTreeSet<(TimeMs, TeamId)>,
}

impl Coordinator {
    /// No group at all.
    pub fn new(options: TeamOptions) -> Self {
        Self {
            options,
            teams: BTreeMap::new(),
            tenants: BTreeMap::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Takes over what the log has now, in the order of the log. Members are ahead of it.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Team {
                team,
                kept: Some(kept),
            } => {
                let options = self.options;
                let known = self.team(&team);
                known.protocol_type.clone_from(&kept.protocol_type);
                known.durable = Some((kept.kind, kept.generation));
                // A newer one may be on its way behind it.
                let is_behind = |(_, generation)| generation > kept.generation;
                if !known.written.is_some_and(is_behind) {
                    known.written = known.durable;
                }
                // A group with members is ahead of its log.
                if known.members.is_empty() && known.members.generation() < kept.generation {
                    known.members = Members::after(&options, kept.kind, kept.generation);
                }
            }
            Change::Team { team, kept: None } => {
                if let Some(known) = self.teams.get_mut(&team) {
                    known.written = None;
                    known.durable = None;
                    if known.members.is_empty() && known.positions.is_empty() {
                        self.forget(&team);
                    }
                }
            }
            Change::Position {
                team,
                partition,
                position: Some(position),
            } => {
                let known = self.team(&team);
                known.empty_since = known.empty_since.max(position.committed_at);
                known.positions.insert(partition, position);
            }
            Change::Position {
                team,
                partition,
                position: None,
            } => {
                if let Some(known) = self.teams.get_mut(&team) {
                    known.positions.remove(&partition);
                    if known.positions.is_empty()
                        && known.members.is_empty()
                        && known.written.is_none()
                    {
                        self.forget(&team);
                    }
                }
            }
            Change::Member { team, member, kept } => {
                if let Some(known) = self.teams.get_mut(&team) {
                    known.member_written(&member, kept.as_ref());
                }
            }
        }
    }

    pub(super) fn options(&self) -> TeamOptions {
        self.options
    }

    pub(super) fn has(&self, id: &TeamId) -> bool {
        self.teams.contains_key(id)
    }

    /// The log was read: whoever is in a group has its session from now on. Whoever shares out himself is not in the log, so a
    /// group that had members may have had them until now.
    pub(super) fn resume(&mut self, now: TimeMs) {
        for (id, team) in &mut self.teams {
            if team.members.generation() > 0 {
                team.empty_since = team.empty_since.max(now);
            }
            if let Members::Consumer(consumer) = &mut team.members {
                consumer.resume(now);
            }
            team.deadline = team.members.next_deadline();
            let deadline = team.deadline.map(|due| (due, id.clone()));
            self.deadlines.extend(deadline);
        }
    }

    pub(super) fn team(&mut self, id: &TeamId) -> &mut Team {
        let options = self.options.led;
        let tenants = &mut self.tenants;
        self.teams.entry(id.clone()).or_insert_with(|| {
            *tenants.entry(id.tenant.clone()).or_default() += 1;
            Team {
                members: Members::Classic(Led::new(options)),
                protocol_type: String::new(),
                positions: BTreeMap::new(),
                unsure: BTreeSet::new(),
                written: None,
                durable: None,
                empty_since: TimeMs(0),
                deadline: None,
            }
        })
    }

    /// Whether a tenant may have one group more. One alone does not take the room of all.
    fn has_room(&self, tenant: &str) -> Result<(), MembershipRefused> {
        let limit = self.options.teams_of_tenant_max;
        if self.tenants.get(tenant).is_some_and(|has| *has >= limit) {
            return Err(MembershipRefused::Full { limit });
        }
        let limit = self.options.teams_max;
        if self.teams.len() >= limit {
            return Err(MembershipRefused::Full { limit });
        }
        Ok(())
    }

    fn forget(&mut self, id: &TeamId) {
        let Some(team) = self.teams.remove(id) else {
            return;
        };
        if let Some(deadline) = team.deadline {
            self.deadlines.remove(&(deadline, id.clone()));
        }
        if let Some(has) = self.tenants.get_mut(&id.tenant) {
            *has = has.saturating_sub(1);
            if *has == 0 {
                self.tenants.remove(&id.tenant);
            }
        }
    }

    /// A call of a member of a group whose members share out. A join makes a group that is not there.
    pub fn led(
        &mut self,
        now: TimeMs,
        id: &TeamId,
        input: LedInput,
        effects: &mut Vec<TeamEffect>,
    ) {
        let ticket = ticket(&input);
        let refuse = |refused, effects: &mut Vec<TeamEffect>| {
            if let Some(ticket) = ticket {
                let answer = Err(refused);
                effects.push(TeamEffect::Answer { ticket, answer });
            }
        };
        let joins = matches!(input, LedInput::Join { .. });
        if !self.teams.contains_key(id) {
            let allowed = if joins {
                self.has_room(&id.tenant)
            } else {
                Err(MembershipRefused::UnknownMember)
            };
            if let Err(refused) = allowed {
                return refuse(refused, effects);
            }
        }
        let options = self.options;
        let known = self.team(id);
        if let Members::Consumer(consumer) = &known.members
            && joins
            && consumer.is_empty()
        {
            known.members = Members::after(&options, Kind::Classic, consumer.epoch());
        }
        let Members::Classic(led) = &mut known.members else {
            return refuse(MembershipRefused::InconsistentProtocol, effects);
        };
        let mut answers = Vec::new();
        led.handle(now, input, &mut answers);
        effects.extend(answers.into_iter().map(answered));
        if let Some(protocol_type) = led.protocol_type() {
            known.protocol_type = protocol_type.as_str().to_owned();
        }
        let told = Told::of(effects);
        self.follow(now, id, &told, effects);
    }

    /// A member of a group in which the broker shares out is heard. One that joins makes a group that is not there.
    ///
    /// # Errors
    /// Why the member was told nothing. What it is told waits until the log has what is to be written, if anything is.
    pub fn beat(
        &mut self,
        now: TimeMs,
        id: &TeamId,
        beat: Beat,
        find: &dyn Fn(&TopicName) -> Option<Topic>,
        effects: &mut Vec<TeamEffect>,
    ) -> Result<Held, NotHeld> {
        let joins = beat.epoch == 0;
        if !self.teams.contains_key(id) {
            if !joins {
                return Err(MembershipRefused::UnknownMember.into());
            }
            self.has_room(&id.tenant)?;
        }
        let options = self.options;
        let known = self.team(id);
        if let Members::Classic(led) = &known.members {
            if !led.is_empty() {
                return Err(NotHeld::OtherKind);
            }
            known.members = Members::after(&options, Kind::Consumer, led.generation());
            known.protocol_type = "consumer".to_owned();
        }
        let Members::Consumer(consumer) = &mut known.members else {
            return Err(NotHeld::OtherKind);
        };
        let member = beat.who.member.clone();
        let held = consumer.beat(now, beat, find);
        self.follow(now, id, &Told::Member(member), effects);
        held
    }

    /// Lets time pass for every group whose time has come.
    pub fn tick(&mut self, now: TimeMs, effects: &mut Vec<TeamEffect>) {
        while let Some((_, id)) = self
            .deadlines
            .first()
            .filter(|(due, _)| *due <= now)
            .cloned()
        {
            let Some(known) = self.teams.get_mut(&id) else {
                self.deadlines.pop_first();
                continue;
            };
            match &mut known.members {
                Members::Classic(led) => {
                    let mut answers = Vec::new();
                    led.handle(now, LedInput::Tick, &mut answers);
                    effects.extend(answers.into_iter().map(answered));
                }
                Members::Consumer(consumer) => consumer.pass(now),
            }
            let told = Told::of(effects);
            self.follow(now, &id, &told, effects);
        }
    }

    /// When [`Self::tick`] is due, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<TimeMs> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    /// After members of a group were heard: its deadline, and what the log has to have.
    fn follow(&mut self, now: TimeMs, id: &TeamId, told: &Told, effects: &mut Vec<TeamEffect>) {
        let Some(known) = self.teams.get_mut(id) else {
            return;
        };
        if let Some(before) = known.deadline.take() {
            self.deadlines.remove(&(before, id.clone()));
        }
        // Never now again: whatever is due was just looked at.
        known.deadline = known
            .members
            .next_deadline()
            .map(|due| due.max(now.plus(1)));
        if let Some(deadline) = known.deadline {
            self.deadlines.insert((deadline, id.clone()));
        }
        known.empty_since = known.empty_since.max(now);
        let stands = (known.members.kind(), known.members.generation());
        let changes = to_write(id, known, stands, told);
        if !changes.is_empty() {
            let mut then = Vec::new();
            effects.retain_mut(|effect| match effect {
                TeamEffect::Answer { ticket, answer } => {
                    let answer = std::mem::replace(answer, Ok(LedAnswer::Alive));
                    then.push((*ticket, answer));
                    false
                }
                TeamEffect::Write { .. } => true,
            });
            effects.push(TeamEffect::Write { changes, then });
        } else if known.members.is_empty() && stands.1 == 0 && known.positions.is_empty() {
            // Nobody came in, and nothing is kept of it.
            if known.members.next_deadline().is_none() {
                self.forget(id);
            }
        }
    }

    /// What a commit changes, once it is allowed.
    ///
    /// # Errors
    /// Why it is not. Nothing changed.
    pub fn commit(&self, id: &TeamId, ask: &CommitAsk) -> Result<Vec<Change>, NotCommitted> {
        let outside = ask.generation < 0 && ask.who.member.is_empty();
        match self.teams.get(id).map(|team| &team.members) {
            None if outside => self.has_room(&id.tenant)?,
            None => return Err(MembershipRefused::UnknownMember.into()),
            Some(Members::Classic(led)) => {
                let generation = (!outside).then(|| u32::try_from(ask.generation).unwrap_or(0));
                led.may_commit(&ask.who, generation)?;
            }
            Some(Members::Consumer(consumer)) => {
                consumer.may_commit(&ask.who, ask.generation)?;
            }
        }
        let changes = ask
            .positions
            .iter()
            .map(|(partition, position)| Change::Position {
                team: id.clone(),
                partition: *partition,
                position: Some(position.clone()),
            });
        Ok(changes.collect())
    }

    /// The positions of a group; none of one that is not there.
    pub fn positions(&self, id: &TeamId) -> Option<&BTreeMap<Partition, Position>> {
        self.teams.get(id).map(|team| &team.positions)
    }

    /// Whether a member may ask for positions as one.
    ///
    /// # Errors
    /// Why not.
    pub fn may_ask(
        &self,
        id: &TeamId,
        who: &crate::membership::Who,
        epoch: i64,
    ) -> Result<(), NotCommitted> {
        match self.teams.get(id).map(|team| &team.members) {
            Some(Members::Consumer(consumer)) if epoch >= 0 => consumer.may_commit(who, epoch),
            Some(_) | None => Ok(()),
        }
    }

    /// What forgetting positions changes.
    ///
    /// # Errors
    /// [`NotCommitted::NoGroup`].
    pub fn forget_positions(
        &self,
        id: &TeamId,
        partitions: &[Partition],
    ) -> Result<Vec<Change>, NotCommitted> {
        let known = self.teams.get(id).ok_or(NotCommitted::NoGroup)?;
        let there = partitions
            .iter()
            .filter(|partition| known.positions.contains_key(partition));
        Ok(there.map(|partition| deleted(id, *partition)).collect())
    }

    /// What deleting a group changes.
    ///
    /// # Errors
    /// [`NotCommitted::NoGroup`], or that it has members.
    pub fn delete(&self, id: &TeamId) -> Result<Vec<Change>, NotCommitted> {
        let known = self.teams.get(id).ok_or(NotCommitted::NoGroup)?;
        if !known.members.is_empty() {
            return Err(MembershipRefused::RebalanceInProgress.into());
        }
        Ok(everything(id, known))
    }

    /// What is to be forgotten because nobody has used it for long, or because its stream is gone.
    pub fn sweep(&self, now: TimeMs, exists: &dyn Fn(&str, u64) -> bool) -> Vec<Change> {
        let mut changes = Vec::new();
        for (id, known) in &self.teams {
            let since = known
                .empty_since
                .0
                .saturating_add(self.options.retention_ms);
            if known.members.is_empty() && since <= now.0 {
                changes.extend(everything(id, known));
                continue;
            }
            let gone = known.positions.keys();
            let gone = gone.filter(|partition| !exists(&id.tenant, partition.number));
            changes.extend(gone.map(|partition| deleted(id, *partition)));
        }
        changes
    }

    /// The groups of a tenant, by name.
    pub fn teams(&self, tenant: &str) -> impl Iterator<Item = (&str, &str, TeamView<'_>)> {
        let first = TeamId {
            tenant: tenant.to_owned(),
            group: String::new(),
        };
        let tenant = tenant.to_owned();
        self.teams
            .range(first..)
            .take_while(move |(id, _)| id.tenant == tenant)
            .map(|(id, team)| (&*id.group, &*team.protocol_type, team.view()))
    }

    /// One group, and what kind of members it has.
    pub fn view(&self, id: &TeamId) -> Option<(&str, TeamView<'_>)> {
        let team = self.teams.get(id)?;
        Some((&team.protocol_type, team.view()))
    }
}

/// Who is about to hear something.
enum Told {
    Nobody,
    /// Members of a group that shares out itself.
    Somebody,
    /// A member of another.
    Member(MemberId),
}

impl Told {
    fn of(effects: &[TeamEffect]) -> Self {
        let mut effects = effects.iter();
        match effects.any(|effect| matches!(effect, TeamEffect::Answer { .. })) {
            true => Self::Somebody,
            false => Self::Nobody,
        }
    }
}

/// What the log has to have before anybody is told. What is on its way there is written once more if somebody is to hear of
/// it: then the log has it when it has this.
fn to_write(id: &TeamId, known: &mut Team, stands: (Kind, u32), told: &Told) -> Vec<Change> {
    let mut changes = Vec::new();
    let is_new = known.written != Some(stands);
    let is_awaited = !matches!(told, Told::Nobody) && known.durable != Some(stands);
    if stands.1 > 0 && (is_new || is_awaited) {
        known.written = Some(stands);
        changes.push(Change::Team {
            team: id.clone(),
            kept: Some(Kept {
                kind: stands.0,
                generation: stands.1,
                protocol_type: known.protocol_type.clone(),
            }),
        });
    }
    let member = match told {
        Told::Member(member) => Some(member),
        Told::Nobody | Told::Somebody => None,
    };
    let members = known.members_to_write(member);
    changes.extend(members.into_iter().map(|(member, kept)| Change::Member {
        team: id.clone(),
        member,
        kept,
    }));
    changes
}

fn answered(effect: LedEffect) -> TeamEffect {
    TeamEffect::Answer {
        ticket: effect.ticket,
        answer: effect.outcome,
    }
}

fn ticket(input: &LedInput) -> Option<Ticket> {
    match input {
        LedInput::Join { ticket, .. }
        | LedInput::Sync { ticket, .. }
        | LedInput::Beat { ticket, .. }
        | LedInput::Leave { ticket, .. } => Some(*ticket),
        LedInput::Tick | LedInput::Close => None,
    }
}

fn deleted(team: &TeamId, partition: Partition) -> Change {
    Change::Position {
        team: team.clone(),
        partition,
        position: None,
    }
}

/// Deletes the positions first: a group is there until nothing of it is. Members are gone before it is; the log may not have
/// that yet.
fn everything(id: &TeamId, known: &Team) -> Vec<Change> {
    let positions = known.positions.keys();
    let mut changes: Vec<Change> = positions.map(|partition| deleted(id, *partition)).collect();
    let members = known.unsure.iter().cloned();
    changes.extend(members.map(|member| Change::Member {
        team: id.clone(),
        member,
        kept: None,
    }));
    changes.push(Change::Team {
        team: id.clone(),
        kept: None,
    });
    changes
}
