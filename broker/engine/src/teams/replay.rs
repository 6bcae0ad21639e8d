//! A coordinator as its log says.

use felix_model::TimeMs;

use super::change::{Change, Kept};
use super::consumer::KeptMember;
use super::coordinator::Coordinator;
use super::team::{Kind, Members, TeamId, TeamOptions};
use crate::membership::MemberId;

/// A coordinator that reads its log, and serves nobody yet.
#[derive(Debug)]
pub struct Replay {
    core: Coordinator,
}

impl Replay {
    /// Nothing was read.
    pub fn new(options: TeamOptions) -> Self {
        Self {
            core: Coordinator::new(options),
        }
    }

    /// The next change of the log.
    pub fn take(&mut self, change: Change) {
        match change {
            Change::Team {
                team,
                kept: Some(kept),
            } => {
                self.group(&team, &kept);
                let kept = Some(kept);
                self.core.apply(Change::Team { team, kept });
            }
            Change::Member { team, member, kept } => self.member(&team, &member, kept),
            change @ (Change::Team { .. } | Change::Position { .. }) => self.core.apply(change),
        }
    }

    /// Everything was read, and it serves from `now` on.
    pub fn done(self, now: TimeMs) -> Coordinator {
        let mut core = self.core;
        core.resume(now);
        core
    }

    fn group(&mut self, team: &TeamId, kept: &Kept) {
        let options = self.core.options();
        let known = self.core.team(team);
        let members = &mut known.members;
        if let Members::Consumer(consumer) = members
            && kept.kind == Kind::Consumer
        {
            consumer.restore_epoch(kept.generation);
        } else {
            // It begins anew, or is of another kind from here on: whoever was in it had left.
            *members = Members::after(&options, kept.kind, kept.generation);
        }
    }

    fn member(&mut self, team: &TeamId, id: &MemberId, kept: Option<KeptMember>) {
        if kept.is_none() && !self.core.has(team) {
            return;
        }
        let options = self.core.options();
        let known = self.core.team(team);
        if let (Members::Classic(led), Some(_)) = (&known.members, &kept) {
            known.members = Members::after(&options, Kind::Consumer, led.generation());
        }
        if let Members::Consumer(consumer) = &mut known.members {
            if let Some(kept) = &kept {
                consumer.restore_epoch(kept.epoch);
            }
            consumer.restore(id, kept);
        }
    }
}
