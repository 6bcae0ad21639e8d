//! Members of the group in which the broker shares out.

use std::collections::{BTreeMap, BTreeSet};

use felix_engine::membership::Who;
use felix_engine::teams::{Beat, TeamView};
use felix_model::TimeMs;

use super::{MEMBERS, SESSION_MS, Teams, Then, consumers, partition, topic, topic_name};
use crate::readings::Twin;
use crate::readings::machine::Machine;

/// As long as nothing that is simulated takes: a member is taken out for its silence only, as its checker has it.
const REBALANCE_MS: u64 = 10_000_000;

/// A member as it is on its side.
#[derive(Clone, Debug, Default)]
pub(super) struct Beater {
    pub(super) member: String,
    pub(super) epoch: i64,
    pub(super) held: BTreeSet<u32>,
    pub(super) waits: bool,
}

/// What a member is told once the log has it.
#[derive(Clone, Debug)]
pub(super) struct News {
    at: usize,
    member: String,
    asked_at: TimeMs,
    /// For one that joins: no smaller epoch can be its first.
    least: Option<i64>,
    epoch: i64,
    held: Option<BTreeSet<u32>>,
}

impl Teams {
    pub(super) fn consumer_beats(&mut self, machine: &mut Machine, at: usize, ending: bool) {
        let member = &self.consumers[at];
        if member.waits {
            return;
        }
        if !ending && member.epoch > 0 && machine.random.percent(3) {
            return self.consumer_leaves(machine, at);
        }
        let joins = member.epoch == 0;
        // Whoever joins and heard nothing tries again as who it is.
        let is_fresh = joins && member.member.is_empty();
        if is_fresh {
            self.next_member += 1;
            self.consumers[at].member = format!("k{at}-{}", self.next_member);
        }
        let member = self.consumers[at].clone();
        let mut beat = self.beat(at, member.epoch);
        beat.rebalance_ms = joins.then_some(REBALANCE_MS);
        beat.reads = joins.then(|| vec![topic_name()]);
        let held = member.held.iter().map(|shard| partition(*shard));
        beat.held = (!joins).then(|| held.collect());
        let Some(serving) = &mut self.serving else {
            return;
        };
        let mut effects = Vec::new();
        let heard = serving
            .core
            .beat(machine.now, &consumers(), beat, &topic, &mut effects);
        let news = match heard {
            Ok(told) => {
                let until = machine.now.plus(SESSION_MS);
                self.holders.heard(&member.member, machine.now, until);
                self.consumers[at].waits = true;
                let is_new = is_fresh && at + 1 != MEMBERS;
                let assigned = told.assigned;
                Some(Then::Told(News {
                    at,
                    member: member.member,
                    asked_at: machine.now,
                    least: joins.then(|| self.holders.newest() + i64::from(is_new)),
                    epoch: told.epoch,
                    held: assigned.map(|all| all.into_iter().map(|it| it.shard).collect()),
                }))
            }
            Err(why) => {
                if !joins {
                    self.holders
                        .refused(&member.member, machine.now, &why.to_string());
                }
                self.consumers[at] = Beater::default();
                None
            }
        };
        self.follow(machine, effects, news);
    }

    fn beat(&self, at: usize, epoch: i64) -> Beat {
        Beat {
            who: Who {
                member: self.consumers[at].member.as_str().into(),
                instance: (at + 1 == MEMBERS).then(|| "static".into()),
            },
            epoch,
            rack: None,
            rebalance_ms: None,
            reads: None,
            assignor: None,
            held: None,
            client: String::new(),
            host: String::new(),
        }
    }

    /// It works on nothing any more and says so; one with a name of its own may say that it comes back.
    fn consumer_leaves(&mut self, machine: &mut Machine, at: usize) {
        let comes_back = at + 1 == MEMBERS && machine.random.percent(50);
        let beat = self.beat(at, if comes_back { -2 } else { -1 });
        self.holders.gone(&self.consumers[at].member);
        self.consumers[at] = Beater::default();
        let Some(serving) = &mut self.serving else {
            return;
        };
        let mut effects = Vec::new();
        // Whether it was a member still does not matter to it.
        let _ = serving
            .core
            .beat(machine.now, &consumers(), beat, &topic, &mut effects);
        self.follow(machine, effects, None);
    }

    /// A member hears what the log has.
    pub(super) fn told(&mut self, machine: &mut Machine, news: News) {
        let member = &mut self.consumers[news.at];
        // It may have died since, and another be in its place.
        if member.member != news.member {
            return;
        }
        member.waits = false;
        // What comes after its session is over it does not wait for.
        if machine.now >= news.asked_at.plus(SESSION_MS) {
            return;
        }
        member.epoch = news.epoch;
        member.held = news.held.unwrap_or_else(|| member.held.clone());
        if machine.strikes(Twin::EarlyHandover, 10) {
            member.held.insert(0);
        }
        let held = member.held.clone();
        self.holders
            .told(&news.member, machine.now, news.least, news.epoch, &held);
        self.check_books();
    }

    /// A member's answer will not come.
    pub(super) fn untold(&mut self, news: &News) {
        let member = &mut self.consumers[news.at];
        if member.member == news.member {
            member.waits = false;
        }
    }

    /// By the group's own books a partition is one member's.
    fn check_books(&mut self) {
        let view = self.serving.as_ref();
        let view = view.and_then(|serving| serving.core.view(&consumers()));
        let Some((_, TeamView::Consumer(books))) = view else {
            return;
        };
        let mut owners = BTreeMap::new();
        for (owner, partition) in books.owners() {
            if let Some(other) = owners.insert(partition.shard, owner) {
                let what = format!("partition {} is {other}'s and {owner}'s", partition.shard);
                self.holders.broken(what);
            }
        }
    }
}
