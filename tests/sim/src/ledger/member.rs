//! The lives of a member.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use felix_controlplane::ledger::raft::{Core, Draw, Layout, MemberOptions, Timing};
use felix_journal::SimDisk;

use super::Check;
use super::disk::LifeDisk;
use super::world::{MEMBERS, World};
use crate::random::Random;

/// One member: its disk, and its life if it has one.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) disk: SimDisk,
    /// How many lives it had.
    pub(crate) life: u64,
    pub(crate) running: Option<Running>,
    /// Revisions it has shown in this life.
    pub(crate) shown: u64,
}

/// A life.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) core: Arc<Core>,
    pub(crate) alive: Arc<AtomicBool>,
}

impl Running {
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The process is killed; what it wrote stays.
    Kill,
    /// The power fails; what was not synced may be lost.
    Power,
    /// The machine is replaced; the disk is empty.
    Wipe,
}

impl World {
    pub(crate) fn slot<T>(&self, member: u64, look: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get_mut(&member).map(look)
    }

    /// The life of a member, if it has one.
    pub(crate) fn running(&self, member: u64) -> Option<Running> {
        self.slot(member, |slot| slot.running.clone()).flatten()
    }

    /// Starts a member on its disk.
    pub(crate) async fn start(&self, member: u64) {
        let Some((disk, life)) = self.slot(member, |slot| {
            slot.life += 1;
            (slot.disk.clone(), slot.life)
        }) else {
            return;
        };
        disk.heal();
        disk.full(1 << 40);
        let alive = Arc::new(AtomicBool::new(true));
        let life_disk = LifeDisk {
            disk,
            alive: Arc::clone(&alive),
            twin: self.plan.twin,
        };
        let options = options(self.plan.seed, member, life);
        let wire = self.net.wire(member, life);
        let started =
            Core::start(Arc::new(life_disk), Path::new("/data"), options, Some(wire)).await;
        match started {
            Ok(core) => {
                self.say(format_args!(
                    "member {member} starts, life {life}, disk {}",
                    core.storage()
                ));
                self.net.join(member, life, Arc::clone(&core));
                self.slot(member, |slot| {
                    slot.running = Some(Running { core, alive });
                    slot.shown = 0;
                });
            }
            Err(error) => {
                self.violate(
                    Check::Start,
                    format!("member {member} does not start: {error}"),
                );
            }
        }
    }

    /// Ends a member's life.
    pub(crate) fn end(&self, member: u64, end: End, seed: u64) {
        self.say(format_args!("member {member} ends: {end:?}"));
        self.net.leave(member);
        let ended = self.slot(member, |slot| {
            let ended = slot.running.take();
            if let Some(running) = &ended {
                running.alive.store(false, Ordering::Relaxed);
            }
            match end {
                End::Kill => slot.disk.kill(),
                End::Power => slot.disk.power_cut(seed),
                End::Wipe => {
                    slot.disk.kill();
                    slot.disk = SimDisk::new(seed);
                }
            }
            ended
        });
        if let Some(Some(running)) = ended {
            // What it does from now on reaches neither disk nor network; this only ends its tasks.
            tokio::spawn(async move { running.core.stop().await });
        }
        self.count(|tally| match end {
            End::Kill => tally.kills += 1,
            End::Power => tally.power_cuts += 1,
            End::Wipe => tally.wipes += 1,
        });
    }

    /// Whether the loss of one disk now can be borne: a leader with a majority behind it says that all members are voters on
    /// the disks that they are really on.
    pub(crate) fn bears_a_wipe(&self) -> bool {
        let Some(leader) = self.leading() else {
            return false;
        };
        let listed = leader.core.members();
        listed.len() == MEMBERS.len()
            && listed.iter().all(|row| {
                row.role == "voter"
                    && self
                        .running(row.member)
                        .is_some_and(|running| Some(running.core.storage()) == row.storage)
            })
    }

    /// A member that leads, with a majority behind it.
    pub(crate) fn leading(&self) -> Option<Running> {
        MEMBERS
            .iter()
            .filter_map(|member| self.running(*member))
            .find(|running| running.core.leads())
    }

    /// Looks at everybody: who has stopped of himself, and what new records they show.
    pub(crate) async fn look(&self) {
        for member in MEMBERS {
            let Some(running) = self.running(member) else {
                continue;
            };
            self.show(member, &running);
            if let Some(why) = running.core.has_stopped() {
                let by_disk = ["input/output error", "after an earlier disk failure"];
                if !by_disk.iter().any(|words| why.contains(words)) {
                    self.violate(Check::Running, format!("member {member} stopped: {why}"));
                }
                // As whoever watches over processes would.
                self.end(member, End::Kill, 0);
                self.start(member).await;
            }
        }
    }

    /// Takes what a member shows into the history.
    pub(crate) fn show(&self, member: u64, running: &Running) {
        let upto = running.core.reach().revision;
        loop {
            let after = self.slot(member, |slot| slot.shown).unwrap_or(upto);
            if after >= upto {
                return;
            }
            match running.core.read_after(after, 64 * 1024) {
                Ok(records) if !records.is_empty() => {
                    self.history().shown(member, after, &records);
                    self.slot(member, |slot| slot.shown = after + records.len() as u64);
                }
                Ok(_) => {
                    self.violate(
                        Check::Agreement,
                        format!("member {member} hides revision {}", after + 1),
                    );
                    return;
                }
                // Its disk is failing; it will stop, or be restarted.
                Err(_) => return,
            }
        }
    }
}

/// A member's options, the same for the same seed and life.
fn options(seed: u64, member: u64, life: u64) -> MemberOptions {
    let random = Mutex::new(Random::new(seed ^ (member << 48) ^ (life << 56)));
    let draw: Draw = Arc::new(move || {
        let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
        random.next()
    });
    let peers = MEMBERS
        .iter()
        .map(|member| (*member, format!("member-{member}:8444")));
    MemberOptions {
        cluster: cluster(),
        member,
        peers: peers.collect(),
        // Also long after it was formed: whoever leaves it set must not be hurt.
        forms: true,
        timing: Timing {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(300),
            election_max: Duration::from_millis(700),
            answer: Duration::from_millis(2500),
            snapshot: Duration::from_millis(1000),
        },
        layout: Layout {
            segment_bytes: 4096,
            snapshot_entries: 25,
            keep_entries: 10,
        },
        draw,
    }
}

#[expect(clippy::expect_used, reason = "a literal")]
fn cluster() -> felix_model::ClusterId {
    "simulated".parse().expect("a valid name")
}
