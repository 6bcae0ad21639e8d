//! What goes wrong, and when.

use std::sync::Arc;
use std::time::Duration;

use felix_controlplane::ledger::raft::{Change, Refused};
use felix_journal::disk::Fault;
use tokio::time::{Instant, advance, sleep};

use super::Check;
use super::member::End;
use super::net::Weather;
use super::world::{MEMBERS, World};
use crate::random::Random;

/// A leader that was cut off has said so after this long.
const CLAIMS_MAX: Duration = Duration::from_millis(1500);

/// Does harm until the plan's time is over.
pub(crate) async fn harm(world: Arc<World>) {
    let mut random = Random::new(world.plan.seed ^ 0x4a12);
    let until = Instant::now() + Duration::from_millis(world.plan.ms);
    let mut awaited: Option<u64> = None;
    while Instant::now() < until {
        sleep(Duration::from_millis(random.between(50, 900))).await;
        world.look().await;
        awaited = take_in_again(&world, awaited).await;
        let member = random.pick(MEMBERS);
        match random.below(100) {
            0..=14 => cut_off(&world, member, &mut random),
            15..=24 => cut_one_way(&world, member, &mut random),
            25..=44 => {
                world.say(format_args!("the network heals"));
                world.net.heal();
            }
            45..=62 => crash(&world, member, &mut random).await,
            63..=68 => wipe(&world, member, &mut random).await,
            69..=71 => {
                if awaited.is_none() {
                    awaited = replace(&world, member, &mut random).await;
                }
            }
            72..=79 => weather(&world, &mut random),
            80..=85 => fail_disk(&world, member, &mut random),
            86..=88 => fill_disk(&world, member, &mut random),
            89..=92 => jump(&world, &mut random).await,
            93..=94 => isolate_leader(&world).await,
            _ => restart_all(&world, &mut random).await,
        }
    }
    world.net.heal();
    world.net.set_weather(Weather::CALM);
    for member in MEMBERS {
        world.slot(member, |slot| {
            slot.disk.heal();
            slot.disk.full(1 << 40);
        });
        if world.running(member).is_none() {
            world.start(member).await;
        }
    }
    world.look().await;
    while awaited.is_some() && Instant::now() < until + Duration::from_secs(60) {
        sleep(Duration::from_millis(300)).await;
        awaited = take_in_again(&world, awaited).await;
    }
}

fn cut_off(world: &World, member: u64, random: &mut Random) {
    world.say(format_args!("member {member} is cut off"));
    if random.percent(70) {
        world.net.heal();
    }
    for other in MEMBERS.into_iter().filter(|other| *other != member) {
        world.net.cut(member, other);
        world.net.cut(other, member);
    }
    world.count(|tally| tally.cuts += 1);
}

fn cut_one_way(world: &World, member: u64, random: &mut Random) {
    let other = random.pick(MEMBERS);
    if other != member {
        world.say(format_args!("nothing goes from {member} to {other}"));
        world.net.cut(member, other);
        world.count(|tally| tally.cuts += 1);
    }
}

async fn crash(world: &World, member: u64, random: &mut Random) {
    if world.running(member).is_none() {
        return world.start(member).await;
    }
    let end = if random.percent(60) {
        End::Power
    } else {
        End::Kill
    };
    world.end(member, end, random.next());
    // Some come back only when they are picked again.
    if random.percent(75) {
        sleep(Duration::from_millis(random.between(0, 600))).await;
        world.start(member).await;
    }
}

async fn wipe(world: &World, member: u64, random: &mut Random) {
    if !world.bears_a_wipe() {
        return;
    }
    world.end(member, End::Wipe, random.next());
    sleep(Duration::from_millis(random.between(0, 300))).await;
    world.start(member).await;
}

/// Removes a member, and gives its number to an empty machine. Answers who is to be taken in again.
async fn replace(world: &World, member: u64, random: &mut Random) -> Option<u64> {
    if !world.bears_a_wipe() {
        return None;
    }
    let other = MEMBERS.into_iter().find(|other| *other != member)?;
    let removed = world
        .running(other)?
        .core
        .change_members(Change::Remove { member })
        .await;
    world.say(format_args!("member {member} is removed: {removed:?}"));
    match removed {
        Ok(()) => {
            world.end(member, End::Wipe, random.next());
            world.start(member).await;
            world.count(|tally| tally.replaced += 1);
            Some(member)
        }
        // It may have been done, or be done later.
        Err(Refused::Unknown { .. }) => Some(member),
        Err(_) => None,
    }
}

/// Takes in whoever was let go by a change whose outcome nobody knew.
pub(crate) async fn welcome(world: &World) {
    for member in MEMBERS {
        take_in_again(world, Some(member)).await;
    }
}

async fn take_in_again(world: &World, awaited: Option<u64>) -> Option<u64> {
    let member = awaited?;
    let Some(leader) = world.leading().map(|leading| leading.core) else {
        return awaited;
    };
    if leader.members().iter().any(|row| row.member == member) {
        return None;
    }
    let address = format!("member-{member}:8444");
    let added = leader.change_members(Change::Add { member, address }).await;
    world.say(format_args!("member {member} is added: {added:?}"));
    if matches!(&added, Err(Refused::Not { code, .. }) if code == "not_empty") {
        world.end(member, End::Wipe, world.plan.seed ^ leader.reach().revision);
        world.start(member).await;
    }
    Some(member)
}

fn weather(world: &World, random: &mut Random) {
    let slowest = random.pick([3, 30, 120, 400]);
    let weather = Weather {
        lost: random.pick([0, 2, 10, 30]),
        doubled: random.pick([0, 5, 20]),
        way: (1, slowest),
    };
    world.say(format_args!("{weather:?}"));
    world.net.set_weather(weather);
}

fn fail_disk(world: &World, member: u64, random: &mut Random) {
    let after = random.below(30);
    world.slot(member, |slot| {
        slot.disk.fail(slot.disk.calls() + after, Fault::Io)
    });
    world.say(format_args!(
        "member {member}'s disk fails in {after} calls"
    ));
    world.count(|tally| tally.disk_faults += 1);
}

fn fill_disk(world: &World, member: u64, random: &mut Random) {
    let full = random.percent(60);
    world.slot(member, |slot| {
        slot.disk.full(if full { 0 } else { 1 << 40 })
    });
    world.say(format_args!("member {member}'s disk is full: {full}"));
    world.count(|tally| tally.disk_faults += u64::from(full));
}

/// Everybody sleeps, as machines do that are suspended: every deadline is over at once.
async fn jump(world: &World, random: &mut Random) {
    let ms = random.pick([300, 1_000, 5_000, 60_000]);
    world.say(format_args!("the clock jumps by {ms} ms"));
    world.count(|tally| tally.jumps += 1);
    advance(Duration::from_millis(ms)).await;
}

/// Cuts the leader off and sees that it stops claiming to be one.
async fn isolate_leader(world: &World) {
    let Some(leader) = world.leading() else {
        return;
    };
    let member = leader.core.member();
    world.say(format_args!("the leader, member {member}, is cut off"));
    world.net.heal();
    for other in MEMBERS.into_iter().filter(|other| *other != member) {
        world.net.cut(member, other);
        world.net.cut(other, member);
    }
    sleep(CLAIMS_MAX).await;
    if leader.is_alive() && leader.core.leads() && leader.core.members().len() > 1 {
        let detail = format!("member {member} claims to lead {CLAIMS_MAX:?} after it was cut off");
        world.violate(Check::Leadership, detail);
    }
}

async fn restart_all(world: &World, random: &mut Random) {
    for member in MEMBERS {
        if world.running(member).is_some() {
            world.end(member, End::Power, random.next());
        }
    }
    for member in MEMBERS {
        sleep(Duration::from_millis(random.between(0, 50))).await;
        world.start(member).await;
    }
}
