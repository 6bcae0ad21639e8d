//! Service accounts, and the providers a tenant trusts.

use felix_auth::{Audience, RefreshToken, Secret};
use felix_meta::{Command, ServiceKey, SessionAsk, SessionRecord};
use felix_model::TimeMs;
use serde_json::{Value, json};

use crate::common::{self, Answer, World};
use crate::login::{Login, now};

const ACCOUNTS: &str = "/v1/tenants/acme/service-accounts";

#[tokio::test]
async fn a_program_signs_in_with_a_key_that_is_shown_once() {
    let login = Login::new().await;
    let world = &login.world;
    let made = world.post(ACCOUNTS, &json!({"name": "ingest"})).await;
    assert_eq!(
        (made.status, &made.body["principal_id"]),
        (201, &json!("sa:ingest"))
    );
    let again = world.post(ACCOUNTS, &json!({"name": "ingest"})).await;
    assert_eq!(again.status, 200, "an identical one exists");
    login.give("sa:ingest", "role:writer").await;
    let key = new_key(world, &json!({})).await;
    let answer = login.exchange(&key.1, &json!({})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let principal = login
        .principal(&answer.body["felix_token"], Audience::Broker)
        .await;
    assert_eq!(&*principal.subject, "sa:ingest");
    assert!(principal.session.is_some() && principal.idp.is_none());
    let next = login
        .refresh(answer.body["refresh_token"].as_str().unwrap())
        .await;
    assert_eq!(next.status, 200, "{next:?}");
    // The secret is nowhere to be seen again.
    let secret = key.1.rsplit('.').next().unwrap();
    for path in [
        ACCOUNTS.to_owned(),
        format!("{ACCOUNTS}/ingest"),
        format!("{ACCOUNTS}/ingest/keys"),
    ] {
        let shown = world.get(&path).await;
        assert_eq!(shown.status, 200);
        let shown = shown.body.to_string();
        assert!(shown.contains(&key.0) && !shown.contains(secret) && !shown.contains("sha256"));
    }
}

#[tokio::test]
async fn a_key_that_is_not_good_has_one_answer_whatever_is_wrong_with_it() {
    let login = Login::new().await;
    let world = &login.world;
    world.post(ACCOUNTS, &json!({"name": "ingest"})).await;
    login.give("sa:ingest", "role:writer").await;
    let (id, key) = new_key(world, &json!({})).await;
    let (head, _) = key.rsplit_once('.').unwrap();
    let zeros = "0".repeat(32);
    let wrong_secret = format!("{head}.{}", "A".repeat(43));
    let wrong_tenant = key.replacen("acme", "ops", 1);
    let wrong_id = key.replacen(&id, &zeros, 1);
    for bad in [&wrong_secret, &wrong_tenant, &wrong_id] {
        is_not_accepted(&login.exchange(bad, &json!({})).await);
    }
    for tenant in ["ops", "nobody"] {
        let path = format!("/v1/tenants/{tenant}/token/exchange");
        is_not_accepted(&world.call("POST", &path, &key, None).await);
    }
    assert_eq!(login.exchange("fsk_nonsense", &json!({})).await.status, 401);
    assert_eq!(login.exchange(&key, &json!({})).await.status, 200);
    let past = json!({"expires_at_ms": now() * 1000 - 1});
    let refused = world.post(&format!("{ACCOUNTS}/ingest/keys"), &past).await;
    assert_eq!(refused.status, 400);
    // Shut out, let in again, and the key removed.
    let account = format!("{ACCOUNTS}/ingest");
    let token = login.exchange(&key, &json!({})).await.body;
    let disabled = world.patch(&account, &json!({"disabled": true})).await;
    assert_eq!(
        (disabled.status, &disabled.body["disabled"]),
        (200, &json!(true))
    );
    is_not_accepted(&login.exchange(&key, &json!({})).await);
    let refresh = login
        .refresh(token["refresh_token"].as_str().unwrap())
        .await;
    assert_eq!(refresh.status, 403);
    world.patch(&account, &json!({"disabled": false})).await;
    assert_eq!(login.exchange(&key, &json!({})).await.status, 200);
    assert_eq!(
        world.delete(&format!("{account}/keys/{id}")).await.status,
        204
    );
    is_not_accepted(&login.exchange(&key, &json!({})).await);
    assert_eq!(
        world.delete(&format!("{account}/keys/{id}")).await.status,
        404
    );
    assert_eq!(world.delete(&account).await.status, 204);
    assert_eq!(world.get(&account).await.status, 404);
}

#[tokio::test]
async fn a_session_of_an_account_does_not_outlive_the_last_of_its_keys() {
    let login = Login::new().await;
    login.world.post(ACCOUNTS, &json!({"name": "ingest"})).await;
    login.give("sa:ingest", "role:writer").await;
    let authority = login.world.plane.authority();
    let ran_out = ServiceKey {
        key_id: "old".into(),
        secret_sha256: "ab".repeat(32),
        created_at_ms: TimeMs(1),
        expires_at_ms: Some(TimeMs(2)),
    };
    let add = Command::AddServiceKey {
        tenant_id: common::tenant("acme"),
        name: "ingest".into(),
        key: ran_out,
    };
    authority.submit(add).await.unwrap();
    let opened = || async {
        let refresh = RefreshToken {
            session_id: felix_auth::random_id().unwrap(),
            generation: 0,
            secret: Secret::generate().unwrap(),
        };
        let open = Command::OpenSession {
            tenant_id: common::tenant("acme"),
            session: session_of_the_account(&refresh),
            principal: None,
        };
        authority.submit(open).await.unwrap();
        refresh.to_text()
    };
    assert_eq!(login.refresh(&opened().await).await.status, 403);
    new_key(&login.world, &json!({})).await;
    assert_eq!(login.refresh(&opened().await).await.status, 200);
}

fn session_of_the_account(refresh: &RefreshToken) -> SessionRecord {
    let at = TimeMs(now() * 1000);
    SessionRecord {
        session_id: refresh.session_id.clone(),
        principal_id: "sa:ingest".into(),
        issuer: None,
        service_account: Some("ingest".into()),
        groups: vec![],
        audience: "felix-broker".into(),
        ask: SessionAsk::default(),
        may_act: None,
        created_at_ms: at,
        refreshed_at_ms: at,
        expires_at_ms: TimeMs(at.0 + 600_000),
        generation: refresh.generation,
        secret_sha256: refresh.secret.digest(),
        from: String::new(),
    }
}

#[tokio::test]
async fn service_accounts_need_the_right_over_the_whole_tenant() {
    let world = World::new().await;
    let small = world
        .token_with(
            "p:small",
            &[
                ("rbac.assignment.manage", "tenant:acme"),
                ("ns.manage", "namespace:acme/*"),
            ],
        )
        .await;
    let body = json!({"name": "x"});
    assert_eq!(world.call("GET", ACCOUNTS, &small, None).await.status, 403);
    assert_eq!(
        world
            .call("POST", ACCOUNTS, &small, Some(&body))
            .await
            .status,
        403
    );
    let bad = world.post(ACCOUNTS, &json!({"name": "a/b"})).await;
    assert_eq!(bad.status, 400);
}

#[tokio::test]
async fn an_issuer_that_could_hand_people_over_needs_the_right_over_the_installation_too() {
    let login = Login::new().await;
    let world = &login.world;
    let path = "/v1/tenants/acme/idp-issuers";
    let listed = world.get(path).await;
    assert_eq!(listed.body["items"], json!([login.issuer()]));
    assert_eq!(
        world.post(path, &login.issuer()).await.status,
        204,
        "nothing changes"
    );
    let mut other = login.issuer();
    other["jwks_url"] = json!(format!("{}/other", login.idp.issuer));
    assert_eq!(world.post(path, &other).await.status, 403, "changed");
    let one = format!("{path}/{}", login.idp.issuer.replace('/', "%2F"));
    assert_eq!(world.delete(&one).await.status, 403, "removed");
    // A second tenant, whose administrator also manages the installation.
    let spec = json!({
        "initial_admin_principals": ["p:root"],
        "policies": [{"subject": "p:root", "object": "cluster:*", "action": "tenant.manage"}],
    });
    let made = world
        .bootstrap("second/initialize", common::BOOTSTRAP, &spec)
        .await;
    assert_eq!(made.status, 200, "{made:?}");
    let spec = json!({"initial_admin_principals": ["p:admin"]});
    world
        .bootstrap("third/initialize", common::BOOTSTRAP, &spec)
        .await;
    let plain = common::token(&world.plane, "third", "p:admin");
    let taken = world
        .call(
            "POST",
            "/v1/tenants/third/idp-issuers",
            &plain,
            Some(&login.issuer()),
        )
        .await;
    assert_eq!(taken.status, 403, "another tenant trusts it");
    let root = common::token(&world.plane, "second", "p:root");
    let second = "/v1/tenants/second/idp-issuers";
    let as_root = |method: &'static str, path: String, body: Option<Value>| {
        let root = &root;
        async move { world.call(method, &path, root, body.as_ref()).await.status }
    };
    assert_eq!(
        as_root("POST", second.into(), Some(login.issuer())).await,
        204
    );
    assert_eq!(as_root("POST", second.into(), Some(other)).await, 204);
    let one = format!("{second}/{}", login.idp.issuer.replace('/', "%2F"));
    assert_eq!(as_root("DELETE", one.clone(), None).await, 204);
    assert_eq!(as_root("DELETE", one, None).await, 404);
}

#[tokio::test]
async fn an_issuer_has_a_url_that_may_be_fetched() {
    let world = World::new().await;
    let path = "/v1/tenants/acme/idp-issuers";
    for (n, url) in [
        "http://login.example.com",
        "https://10.0.0.1",
        "https://192.168.1.1/realm",
        "https://169.254.169.254",
        "https://[fd00::1]",
        "https://[::]",
        "https://user:secret@login.example.com",
        "https://login.example.com#x",
        "https://login.example.com?x",
        "ftp://login.example.com",
        "login.example.com",
        "",
    ]
    .into_iter()
    .enumerate()
    {
        let body = json!({"issuer": url, "audiences": ["app"]});
        let refused = world.post(path, &body).await;
        assert_eq!(refused.status, 400, "{url}: {refused:?}");
        if url.is_empty() {
            continue;
        }
        let body = json!({
            "issuer": format!("https://login{n}.example"),
            "audiences": ["app"],
            "jwks_url": url,
        });
        let expected = if url.ends_with("?x") { 204 } else { 400 };
        assert_eq!(world.post(path, &body).await.status, expected, "{url}");
    }
    let none = json!({"issuer": "https://a.example", "audiences": []});
    assert_eq!(world.post(path, &none).await.status, 400);
}

async fn new_key(world: &World, body: &Value) -> (String, String) {
    let made = world.post(&format!("{ACCOUNTS}/ingest/keys"), body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let text = |name: &str| made.body[name].as_str().unwrap().to_owned();
    assert!(text("key").starts_with("fsk_acme."));
    (text("key_id"), text("key"))
}

fn is_not_accepted(answer: &Answer) {
    assert_eq!(
        (answer.status, &answer.body["message"]),
        (
            403,
            &json!("the credential is not accepted for this tenant")
        ),
        "{answer:?}"
    );
}
