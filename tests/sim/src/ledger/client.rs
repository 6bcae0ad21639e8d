//! Clients: they append and confirm through one member each, and remember what they are told.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use felix_controlplane::ledger::AppendRefused;
use felix_meta::Revision;
use tokio::time::sleep;

use super::check::{Appended, Told};
use super::member::Running;
use super::world::World;
use super::{Check, Twin};
use crate::random::Random;

/// How often a waiting client looks whether its member is still there.
const LOOK: Duration = Duration::from_millis(20);

/// Lives until the world is quiet.
pub(crate) async fn live(world: Arc<World>, member: u64, number: u64) {
    let mut random = Random::new(world.plan.seed ^ 0x00c1_1e47 ^ (number << 32));
    let mut names = 0_u64;
    while !world.is_quiet() {
        sleep(Duration::from_millis(random.between(1, 250))).await;
        let Some(running) = world.running(member) else {
            continue;
        };
        if random.percent(25) {
            confirm(&world, member, &running).await;
        } else {
            names += 1;
            append(
                &world,
                &running,
                &mut random,
                format!("m{member}c{number}n{names}"),
            )
            .await;
        }
    }
}

/// Confirms once. Answers whether that worked.
pub(crate) async fn confirm(world: &World, member: u64, running: &Running) -> bool {
    let known = world.history().known();
    let confirmed = match world.plan.twin {
        Twin::ConfirmFromLocal => Some(running.core.reach().revision),
        Twin::Sound | Twin::AckBeforeFlush | Twin::WipedVotes | Twin::ForgetVotes => {
            match as_long_as_it_lives(running, running.core.confirm()).await {
                Some(Ok(revision)) => Some(revision.0),
                Some(Err(_)) | None => None,
            }
        }
    };
    let Some(revision) = confirmed.filter(|_| running.is_alive()) else {
        return false;
    };
    world.say(format_args!("member {member} confirms {revision}"));
    world.count(|tally| tally.confirmed += 1);
    if running.core.reach().revision < revision {
        let detail = format!("member {member} confirmed {revision}, which is not readable there");
        world.violate(Check::Confirmed, detail);
    }
    world.show(member, running);
    world.history().confirmed(member, known, revision);
    true
}

async fn append(world: &World, running: &Running, random: &mut Random, name: String) {
    let seen = running.core.reach().revision;
    // Some stand on what is past, as whoever decides slowly does.
    let expected = match random.percent(10) {
        true => seen.saturating_sub(random.between(1, 3)),
        false => seen,
    };
    let count = random.between(1, 3);
    let long = random.between(0, 120);
    let records: Vec<Bytes> = (0..count)
        .map(|n| {
            Bytes::from(format!(
                "{name}.{n} {}",
                "x".repeat(usize::try_from(long).unwrap_or(0))
            ))
        })
        .collect();
    let appending = running.core.append(Revision(expected), &records);
    let answer = as_long_as_it_lives(running, appending).await;
    let answer = answer.filter(|_| running.is_alive());
    let told = match &answer {
        Some(Ok(())) => Told::Done,
        Some(Err(AppendRefused::Raced { .. })) => Told::Raced,
        Some(Err(
            AppendRefused::Unreachable(_) | AppendRefused::Full | AppendRefused::Unfit(_),
        )) => Told::Not,
        Some(Err(AppendRefused::Unconfirmed(_) | AppendRefused::Failed(_))) | None => Told::Unsure,
    };
    world.say(format_args!("{name} behind {expected}: {told:?}"));
    world.count(|tally| match told {
        Told::Done => tally.done += 1,
        Told::Raced => tally.raced += 1,
        Told::Not => tally.not += 1,
        Told::Unsure => tally.unsure += 1,
    });
    world.history().answered(Appended {
        name,
        expected,
        records,
        told,
    });
}

/// The answer of a call, or none when the member's life ended before.
async fn as_long_as_it_lives<T>(running: &Running, call: impl Future<Output = T>) -> Option<T> {
    let ended = async {
        while running.is_alive() {
            sleep(LOOK).await;
        }
    };
    tokio::select! {
        biased;
        answer = call => Some(answer),
        () = ended => None,
    }
}
