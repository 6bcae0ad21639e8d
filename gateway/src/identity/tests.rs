//! Letting in, renewing and ending, against a provider and a control plane that do what the test says.

use std::time::Duration;

use felix_auth::Action;
use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::sign_in;
use crate::stub::controlplane::{self, ControlPlane};
use crate::stub::provider::{self, CLIENT, Provider};

/// What has not happened after this long does not happen.
const PATIENCE: Duration = Duration::from_secs(30);

struct Bench {
    provider: provider::Running,
    plane: controlplane::Running,
    identity: Identity,
    sessions: Arc<Sessions>,
}

impl Bench {
    async fn new(manners: controlplane::Manners) -> Self {
        Self::with(manners, None).await
    }

    async fn with(manners: controlplane::Manners, credential: Option<PathBuf>) -> Self {
        let provider = Provider::start(provider::Manners::default()).await;
        let plane = ControlPlane::start(manners).await;
        let settings = Settings {
            tenant: "t".parse().unwrap(),
            controlplane_url: plane.served.url(),
            controlplane_roots: None,
            issuer: provider.served.url(),
            client_id: CLIENT.into(),
            provider_roots: Vec::new(),
            credential,
        };
        let sessions = Arc::<Sessions>::default();
        let identity = Identity::new(settings, Arc::clone(&sessions)).unwrap();
        Self {
            provider,
            plane,
            identity,
            sessions,
        }
    }

    fn token(&self, subject: &str) -> Secret {
        self.provider.provider.id_token(subject, &json!({}))
    }

    async fn admit(&self, token: &Secret) -> Result<Granted, Refused> {
        let presented = Presented::IdToken(token.clone());
        self.identity.admit(presented, ask()).await
    }

    fn asked(&self, verb: &str) -> usize {
        self.plane.plane.asked(verb).len()
    }

    /// Waits until no session at the control plane can be continued.
    async fn nothing_is_left(&self) {
        timeout(PATIENCE, async {
            while self.plane.plane.live() > 0 {
                self.plane.plane.came.notified().await;
            }
        })
        .await
        .unwrap();
    }

    /// Waits until something was asked so often.
    async fn until_asked(&self, verb: &str, times: usize) {
        timeout(PATIENCE, async {
            while self.asked(verb) < times {
                self.plane.plane.came.notified().await;
            }
        })
        .await
        .unwrap();
    }
}

fn permission(action: Action, object: &str) -> Permission {
    Permission::new(action, object.parse().unwrap()).unwrap()
}

fn ask() -> Ask {
    Ask::Exactly {
        required: vec![permission(
            Action::StreamSubscribe,
            "stream:t/ns/board-7-edits",
        )],
        optional: vec![permission(Action::CacheRead, "cache:t/ns/board-7-presence")],
    }
}

async fn ended(granted: &Granted) -> Ended {
    let mut ended = granted.ended();
    let waiting = ended.wait_for(Option::is_some);
    let ended = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    ended.unwrap()
}

#[tokio::test]
async fn a_sign_in_becomes_a_token_for_exactly_the_scope() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let granted = bench.admit(&bench.token("ann")).await.unwrap();
    assert_eq!(&*granted.principal, "ann");
    let asked = &bench.plane.plane.asked("exchange")[0];
    assert_eq!(asked.body["requested"], json!([]));
    assert_eq!(
        asked.body["permissions"],
        json!([
            "stream.subscribe:stream:t/ns/board-7-edits",
            "cache.read:cache:t/ns/board-7-presence"
        ])
    );
    assert!(granted.allows(&permission(
        Action::StreamSubscribe,
        "stream:t/ns/board-7-edits"
    )));
    // Optional, and not held; another room; an action that was not asked for.
    for other in [
        permission(Action::CacheRead, "cache:t/ns/board-7-presence"),
        permission(Action::StreamSubscribe, "stream:t/ns/board-8-edits"),
        permission(Action::StreamPublish, "stream:t/ns/board-7-edits"),
    ] {
        assert!(!granted.allows(&other), "{other}");
    }
}

#[tokio::test]
async fn what_no_provider_signed_never_reaches_the_control_plane() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let good = bench.token("ann");
    let other = bench.token("bob");
    let (signed, _) = good.reveal().rsplit_once('.').unwrap();
    let (_, signature) = other.reveal().rsplit_once('.').unwrap();
    let forged = format!("{signed}.{signature}");
    let provider = &bench.provider.provider;
    for (token, signed_out) in [
        (Secret::new("not a token"), true),
        (Secret::new("x".repeat(1 << 20)), true),
        (Secret::new("fsk_t.key.secret"), true),
        (Secret::new(forged), true),
        (provider.id_token("ann", &json!({"exp": 1})), true),
        (provider.id_token("ann", &json!({"exp": null})), true),
        (
            provider.id_token("ann", &json!({"iss": "https://evil.example"})),
            false,
        ),
        (
            provider.id_token("ann", &json!({"aud": "another app"})),
            false,
        ),
    ] {
        let refused = bench.admit(&token).await.unwrap_err();
        let says = refused.to_string();
        assert_eq!(
            matches!(refused, Refused::SignedOut(_)),
            signed_out,
            "{says}"
        );
        assert!(!says.contains(token.reveal()));
    }
    assert_eq!(bench.asked("exchange"), 0);
}

#[tokio::test]
async fn whoever_lacks_something_required_is_told_what_and_leaves_no_session() {
    let manners = controlplane::Manners {
        holds: vec!["cache.read:cache:t/ns/board-7-presence"],
        ..Default::default()
    };
    let bench = Bench::new(manners).await;
    let refused = bench.admit(&bench.token("ann")).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("stream.subscribe:stream:t/ns/board-7-edits")
    );
    assert!(matches!(refused, Refused::Forbidden(_)));
    bench.nothing_is_left().await;
}

#[tokio::test]
async fn a_token_issued_before_is_used_again_only_while_the_control_plane_is_away() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let token = bench.token("ann");
    let first = bench.admit(&token).await.unwrap();
    let held = first.tokens.token().await.unwrap();
    drop(first);
    for (status, code) in [
        (502, "unavailable"),
        (503, "unavailable"),
        (504, "unavailable"),
    ] {
        bench
            .plane
            .plane
            .behave(|manners| manners.exchange = (status, code));
        let again = bench.admit(&token).await.unwrap();
        assert_eq!(again.tokens.token().await.unwrap(), held);
        let other = bench.admit(&bench.token("bob")).await.unwrap_err();
        assert!(matches!(other, Refused::Unavailable(_)), "{other}");
    }
    // It answers, so what it says counts.
    for (status, code) in [(409, "conflict"), (500, "internal")] {
        bench
            .plane
            .plane
            .behave(|manners| manners.exchange = (status, code));
        let refused = bench.admit(&token).await.unwrap_err();
        assert!(matches!(refused, Refused::Unavailable(_)), "{refused}");
    }
    bench
        .plane
        .plane
        .behave(|manners| manners.exchange = (403, "forbidden"));
    let refused = bench.admit(&token).await.unwrap_err();
    assert_eq!(refused, Refused::Forbidden("words".into()));
    bench
        .plane
        .plane
        .behave(|manners| manners.exchange = (503, "unavailable"));
    assert!(bench.admit(&token).await.is_err());
}

#[tokio::test]
async fn whoever_is_refused_again_and_again_reaches_the_control_plane_so_often_and_others_are_let_in()
 {
    let bench = Bench::new(controlplane::Manners::default()).await;
    // What only the tenant can judge.
    let bad = |number: usize| {
        let groups = vec!["g"; felix_auth::oidc::GROUPS_MAX + 1 + number];
        let provider = &bench.provider.provider;
        provider.id_token("eve", &json!({"groups": groups}))
    };
    bench
        .plane
        .plane
        .behave(|manners| manners.exchange = (403, "forbidden"));
    for _ in 0..10 {
        let refused = bench.admit(&bad(0)).await.unwrap_err();
        assert_eq!(refused, Refused::Forbidden("words".into()));
    }
    assert_eq!(
        bench.asked("exchange"),
        1,
        "the same token is asked about once"
    );
    let mut refused = Vec::new();
    for number in 1..100 {
        refused.push(bench.admit(&bad(number)).await.unwrap_err());
    }
    assert!(bench.asked("exchange") < 50, "{}", bench.asked("exchange"));
    assert!(matches!(refused.last(), Some(Refused::Unavailable(_))));
    bench
        .plane
        .plane
        .behave(|manners| manners.exchange = (200, ""));
    assert!(bench.admit(&bench.token("ann")).await.is_ok());
}

#[tokio::test]
async fn whoever_signed_out_is_not_let_in_again_by_what_was_issued_before() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let token = bench.token("ann");
    let granted = bench.admit(&token).await.unwrap();
    granted.sign_out();
    assert_eq!(ended(&granted).await, Ended::SignedOut);
    bench
        .plane
        .plane
        .behave(|manners| manners.exchange = (503, "unavailable"));
    assert!(bench.admit(&token).await.is_err());
    // His tokens are taken back.
    bench.nothing_is_left().await;
}

#[tokio::test]
async fn a_token_is_renewed_once_in_its_life_and_before_it_runs_out() {
    let manners = controlplane::Manners {
        life_s: 9,
        ..Default::default()
    };
    let bench = Bench::new(manners).await;
    let granted = bench.admit(&bench.token("ann")).await.unwrap();
    let first = granted.expires_at();
    let held = granted.tokens.token().await.unwrap();
    bench.until_asked("refresh", 1).await;
    let next = timeout(PATIENCE, async {
        loop {
            let token = granted.tokens.token().await.unwrap();
            if token != held {
                return token;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_ne!(next.await.unwrap(), held);
    assert!(granted.expires_at() > first);
    assert_eq!(*granted.ended().borrow(), None);
    assert_eq!((bench.asked("exchange"), bench.asked("refresh")), (1, 1));
}

#[tokio::test]
async fn twenty_reconnects_with_a_slow_control_plane_leave_one_refresh_for_each_token() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let token = bench.token("ann");
    let mut last = None;
    for _ in 0..20 {
        let granted = bench.admit(&token).await.unwrap();
        let held = granted.tokens.token().await.unwrap();
        // A refresh begins as the connection is lost, and the page comes again.
        bench.plane.plane.behave(|manners| manners.slow = true);
        granted.tokens.invalidate(&held);
        let before = bench.asked("refresh");
        let tokens = granted.tokens.clone();
        let fetching = tokio::spawn(async move { tokens.token().await });
        bench.until_asked("refresh", before + 1).await;
        drop(granted);
        bench.plane.plane.behave(|manners| manners.slow = false);
        bench.plane.plane.go.notify_one();
        let late = fetching.await.unwrap().unwrap();
        last = Some(late);
    }
    assert_eq!(bench.asked("refresh"), 20);
    let current = bench.admit(&token).await.unwrap();
    let held = current.tokens.token().await.unwrap();
    assert_ne!(
        Some(&held),
        last.as_ref(),
        "no late token replaced the new one"
    );
    assert_eq!(current.tokens.token().await.unwrap(), held);
    assert_eq!(bench.asked("refresh"), 20);
}

#[tokio::test]
async fn whoever_was_removed_is_out_as_soon_as_a_broker_refuses_his_token() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let granted = bench.admit(&bench.token("ann")).await.unwrap();
    let held = granted.tokens.token().await.unwrap();
    bench.plane.plane.behave(|manners| {
        manners.refresh = (403, "forbidden");
        manners.exchange = (403, "forbidden");
    });
    // What a client does when a broker ended its streams.
    granted.tokens.invalidate(&held);
    assert!(granted.tokens.token().await.is_err());
    assert_eq!(ended(&granted).await, Ended::Removed);
}

#[tokio::test]
async fn a_change_of_roles_that_leaves_enough_ends_nothing() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let granted = bench.admit(&bench.token("ann")).await.unwrap();
    let held = granted.tokens.token().await.unwrap();
    // The change ended his sessions at the control plane, and he may still come in.
    bench
        .plane
        .plane
        .behave(|manners| manners.refresh = (403, "forbidden"));
    granted.tokens.invalidate(&held);
    assert_ne!(granted.tokens.token().await.unwrap(), held);
    assert_eq!(*granted.ended().borrow(), None);
    assert_eq!(bench.asked("exchange"), 2);
}

#[tokio::test]
async fn a_session_whose_token_runs_out_with_the_control_plane_away_is_over() {
    let manners = controlplane::Manners {
        life_s: 3,
        ..Default::default()
    };
    let bench = Bench::new(manners).await;
    let granted = bench.admit(&bench.token("ann")).await.unwrap();
    bench.plane.plane.behave(|manners| {
        manners.refresh = (503, "unavailable");
        manners.exchange = (503, "unavailable");
    });
    assert_eq!(ended(&granted).await, Ended::Expired);
    assert!(granted.expires_at() <= now());
}

#[tokio::test]
async fn a_page_renews_its_sign_in_in_the_session_as_the_same_person_and_as_nobody_else() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let granted = bench.admit(&bench.token("ann")).await.unwrap();
    let held = granted.tokens.token().await.unwrap();
    let refused = granted
        .renew_with(&bench.identity, bench.token("bob"))
        .await
        .unwrap_err();
    assert!(matches!(refused, Refused::Forbidden(_)), "{refused}");
    assert_eq!(
        granted.tokens.token().await.unwrap(),
        held,
        "it goes on as it was"
    );
    let forged = Secret::new("forged");
    assert!(granted.renew_with(&bench.identity, forged).await.is_err());
    let until = granted
        .renew_with(&bench.identity, bench.token("ann"))
        .await
        .unwrap();
    assert_eq!(until, granted.expires_at());
    assert_ne!(granted.tokens.token().await.unwrap(), held);
    assert_eq!(*granted.ended().borrow(), None);
}

#[tokio::test]
async fn signing_out_ends_a_session_of_that_sign_in_that_went_on_with_a_newer_token() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let id = sign_in::opened(
        &bench.sessions,
        &bench.provider.served.url(),
        "ann",
        bench.token("ann"),
        None,
    );
    let presented = Presented::Session(id.clone());
    let granted = bench.identity.admit(presented, ask()).await.unwrap();
    let held = granted.tokens.token().await.unwrap();
    granted
        .renew_with(&bench.identity, bench.token("ann"))
        .await
        .unwrap();
    assert_ne!(granted.tokens.token().await.unwrap(), held);
    assert_eq!(*granted.ended().borrow(), None);
    bench.sessions.end(&id);
    assert_eq!(ended(&granted).await, Ended::SignedOut);
    bench.nothing_is_left().await;
}

#[tokio::test]
async fn signing_out_while_a_token_is_renewed_leaves_nothing_of_the_new_one() {
    for by_page in [false, true] {
        let bench = Bench::new(controlplane::Manners::default()).await;
        let token = bench.token("ann");
        let granted = Arc::new(bench.admit(&token).await.unwrap());
        let held = granted.tokens.token().await.unwrap();
        let plane = &bench.plane.plane;
        plane.behave(|manners| manners.slow = true);
        let renewing = async {
            match by_page {
                true => granted
                    .renew_with(&bench.identity, token.clone())
                    .await
                    .map(drop)
                    .map_err(|refused| refused.to_string()),
                false => {
                    granted.tokens.invalidate(&held);
                    let next = granted.tokens.token().await;
                    next.map(drop).map_err(|failed| failed.to_string())
                }
            }
        };
        let signing_out = async {
            match by_page {
                true => bench.until_asked("exchange", 2).await,
                false => bench.until_asked("refresh", 1).await,
            }
            granted.sign_out();
            plane.behave(|manners| manners.slow = false);
            plane.go.notify_one();
        };
        let (renewed, ()) = tokio::join!(renewing, signing_out);
        assert!(renewed.is_err());
        bench.nothing_is_left().await;
        plane.behave(|manners| manners.exchange = (503, "unavailable"));
        assert!(bench.admit(&token).await.is_err(), "nothing is used again");
    }
}

/// Somebody with a sign-in whose ID tokens are always about to run out.
async fn signed_in_for_a_moment(bench: &Bench) -> Granted {
    let provider = &bench.provider.provider;
    provider.behave(|manners| manners.life_s = Some(30));
    let id = sign_in::opened(
        &bench.sessions,
        &bench.provider.served.url(),
        "ann",
        bench.token("ann"),
        Some(Secret::new("refresh")),
    );
    let presented = Presented::Session(id);
    bench.identity.admit(presented, ask()).await.unwrap()
}

#[tokio::test]
async fn whoever_was_disabled_at_the_provider_is_out_when_his_token_is_renewed() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let granted = signed_in_for_a_moment(&bench).await;
    let held = granted.tokens.token().await.unwrap();
    let provider = &bench.provider.provider;
    provider.behave(|manners| manners.refuses_refresh = true);
    granted.tokens.invalidate(&held);
    assert!(granted.tokens.token().await.is_err());
    assert_eq!(ended(&granted).await, Ended::SignedOut);
    assert_eq!(bench.asked("refresh"), 0);
    bench.nothing_is_left().await;
}

#[tokio::test]
async fn a_provider_that_is_away_ends_nobody() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let granted = signed_in_for_a_moment(&bench).await;
    let held = granted.tokens.token().await.unwrap();
    let provider = &bench.provider.provider;
    provider.behave(|manners| manners.away = Some(axum::http::StatusCode::SERVICE_UNAVAILABLE));
    granted.tokens.invalidate(&held);
    assert_ne!(granted.tokens.token().await.unwrap(), held);
    assert_eq!(*granted.ended().borrow(), None);
    assert_eq!(bench.asked("refresh"), 1);
}

#[tokio::test]
async fn a_sign_in_that_nothing_can_renew_is_over_with_its_id_token() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let open = |refresh| {
        let token = bench.provider.provider.id_token("ann", &json!({"exp": 1}));
        let issuer = bench.provider.served.url();
        let id = sign_in::opened(&bench.sessions, &issuer, "ann", token, refresh);
        bench.sessions.find(&id).is_some()
    };
    assert!(!open(None));
    assert!(open(Some(Secret::new("refresh"))));
}

#[tokio::test]
async fn an_expired_token_is_refused_once_and_a_new_one_is_let_in() {
    let bench = Bench::new(controlplane::Manners::default()).await;
    let expired = bench
        .provider
        .provider
        .id_token("ann", &json!({"exp": 1, "iat": 0}));
    let refused = bench.admit(&expired).await.unwrap_err();
    assert!(matches!(refused, Refused::SignedOut(_)), "{refused}");
    assert_eq!(bench.asked("exchange"), 0, "nothing is tried again");
    assert!(bench.admit(&bench.token("ann")).await.is_ok());
}

fn acting(directory: &tempfile::TempDir) -> PathBuf {
    let credential = directory.path().join("credential");
    std::fs::write(&credential, "the gateway\n").unwrap();
    credential
}

#[tokio::test]
async fn over_shared_connections_everybody_acts_through_a_token_made_for_the_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::with(Default::default(), Some(acting(&directory))).await;
    let granted = bench.admit(&bench.token("ann")).await.unwrap();
    assert_eq!(&*granted.principal, "ann through a gateway");
    let exchanges = bench.plane.plane.asked("exchange");
    assert_eq!(exchanges[0].bearer, "the gateway");
    assert_eq!(exchanges[0].body["requested"], json!(["token.delegate"]));
    assert_eq!(exchanges[0].body["audience"], "felix-controlplane");
    assert!(exchanges[1].body["actor_token"].is_string());
    let own = exchanges[1].body["actor_token"].as_str().unwrap();
    let delegated = &bench.plane.plane.asked("delegate")[0];
    assert_eq!(delegated.bearer, own);
    // The next person needs no new token of the gateway.
    bench.admit(&bench.token("bob")).await.unwrap();
    assert_eq!(bench.asked("exchange"), 3);
    let connecting = bench.identity.connection_tokens().unwrap();
    connecting.token().await.unwrap();
    let asked = bench.plane.plane.asked("exchange").pop().unwrap();
    assert_eq!(
        (&asked.body["requested"], &asked.body["permissions"]),
        (&json!([]), &json!([]))
    );
}

#[tokio::test]
async fn a_gateway_that_is_not_taken_for_an_actor_tries_once_more_with_a_fresh_token() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::with(Default::default(), Some(acting(&directory))).await;
    bench
        .plane
        .plane
        .behave(|manners| manners.delegate = (403, "forbidden"));
    let refused = bench.admit(&bench.token("ann")).await.unwrap_err();
    assert!(matches!(refused, Refused::Unavailable(_)), "{refused}");
    assert!(refused.to_string().contains("gateway"), "{refused}");
    bench
        .plane
        .plane
        .behave(|manners| manners.delegate = (200, ""));
    assert!(bench.admit(&bench.token("ann")).await.is_ok());
}
