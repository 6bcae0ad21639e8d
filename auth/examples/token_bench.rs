//! Measures what a token costs: verifying it beside the bare signature check of the same library, and one permission
//! check of a token with 1,000 grants.
//!
//! `cargo run --release -p felix-auth --example token_bench [-- <rounds>]`
//!
//! Both sides of the ratio run turn by turn in one process, in samples so short that the best of each is one that nothing
//! interrupted, also on a busy machine. Prints the best, and ends with 1 when a bound is missed: 1.3 times the bare check,
//! 100 ns a permission check.

#![expect(clippy::unwrap_used, reason = "a tool for developers may panic")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Verifier as _, VerifyingKey};
use felix_auth::{
    Action, Audience, Claims, KeySet, Permissions, Resource, SigningKey, mint, verify,
};
use felix_model::{TenantId, TimeMs};

/// Verifications in one sample.
const VERIFICATIONS: u32 = 5;

/// Permission checks in one sample.
const CHECKS: u32 = 2_000;

/// Grants of the token whose checks are measured.
const GRANTS: usize = 1_000;

/// Seconds since 1970 at which everything happens.
const NOW: u64 = 1_800_000_000;

const RATIO_MAX: f64 = 1.3;
const CHECK_MAX: Duration = Duration::from_nanos(100);

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1);
    let rounds = rounds.map_or(2_000, |text| text.parse().unwrap());
    let mut met = true;
    for grants in [1, 10, 50] {
        met &= verifications(rounds, grants);
    }
    met &= checks(rounds);
    if met {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

fn verifications(rounds: usize, grants: usize) -> bool {
    let key = SigningKey::generate().unwrap();
    let permissions = (0..grants).map(|n| format!("stream.publish:stream:acme/shop/orders-{n}"));
    let mut claims = Claims::new(
        tenant(),
        "p:alice".to_owned(),
        Audience::Broker,
        (TimeMs(NOW * 1000), 900),
        permissions.map(|grant| grant.parse().unwrap()).collect(),
    );
    claims.session = Some("0f3c9a5be2d14c77".to_owned());
    claims.roles = vec!["role:writer".to_owned()];
    let token = mint(&key, &claims).unwrap();
    let keys = KeySet::new(std::slice::from_ref(key.public()));

    let bytes = URL_SAFE_NO_PAD.decode(&key.public().x).unwrap();
    let bare = VerifyingKey::from_bytes(&bytes.try_into().unwrap()).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let signature = Signature::from_slice(&URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();

    let tenant = tenant();
    let (mut alone, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        alone.push(sample(VERIFICATIONS, || {
            black_box(bare.verify(black_box(signed.as_bytes()), &signature)).unwrap();
        }));
        whole.push(sample(VERIFICATIONS, || {
            let now = TimeMs(NOW * 1_000);
            let token = black_box(token.as_str());
            drop(black_box(verify(token, &tenant, Audience::Broker, &keys, now)).unwrap());
        }));
    }
    let (alone, whole) = (best(alone), best(whole));
    let ratio = whole.as_secs_f64() / alone.as_secs_f64();
    println!(
        "verify, {grants} grants, {} bytes: {whole:?}; signature alone {alone:?}; ratio {ratio:.2} (at most {RATIO_MAX})",
        token.len()
    );
    ratio <= RATIO_MAX
}

fn checks(rounds: usize) -> bool {
    let names: Vec<String> = (0..GRANTS).map(|n| format!("room-{n}")).collect();
    let grants = names.iter().map(|name| {
        let grant = format!("stream.publish:stream:acme/shop/{name}");
        grant.parse().unwrap()
    });
    let permissions = Permissions::compile("acme", grants);
    let mut samples = Vec::new();
    for round in 0..rounds {
        let mut at = round;
        samples.push(sample(CHECKS, || {
            at = (at + 7) % names.len();
            let resource = Resource::Stream {
                tenant: "acme",
                namespace: "shop",
                stream: names.get(at).map_or("", String::as_str),
            };
            assert!(black_box(
                permissions.allows(Action::StreamPublish, black_box(&resource))
            ));
        }));
    }
    let check = best(samples);
    println!("permission check among {GRANTS} grants: {check:?} (at most {CHECK_MAX:?})");
    check <= CHECK_MAX
}

/// What one of `times` took.
fn sample(times: u32, mut work: impl FnMut()) -> Duration {
    let began = Instant::now();
    for _ in 0..times {
        work();
    }
    began.elapsed() / times
}

fn best(samples: Vec<Duration>) -> Duration {
    samples.into_iter().min().unwrap_or_default()
}
