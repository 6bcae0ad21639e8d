//! No answer tells a stranger whether a tenant exists.

use serde_json::{Value, json};

use crate::common;
use crate::idp::Key;
use crate::login::{Ask, Login, now, seen};

#[tokio::test]
async fn every_route_answers_a_stranger_alike_whether_or_not_the_tenant_exists() {
    let login = Login::new().await;
    let routes = routes(&login).await;
    assert!(routes.len() > 40, "{}", routes.len());
    let spec = json!({"initial_admin_principals": ["p:admin"]});
    let made = login
        .world
        .bootstrap("elsewhere/initialize", common::BOOTSTRAP, &spec)
        .await;
    assert_eq!(made.status, 200);
    let good_elsewhere = common::token(&login.world.plane, "elsewhere", "p:admin");
    for (method, path) in &routes {
        for bearer in ["", "nonsense", "a.b.c", good_elsewhere.as_str()] {
            for body in [None, Some(json!({})), Some(json!([1]))] {
                let ask = Ask {
                    method,
                    path,
                    bearer,
                    body,
                };
                let exists = seen(&login.world, &ask, "acme").await;
                let unknown = seen(&login.world, &ask, "none").await;
                assert_eq!(exists, unknown, "{method} {path}");
                assert!(
                    exists.status >= 400 || path.ends_with("/token/revoke"),
                    "{method} {path}"
                );
            }
        }
    }
}

#[tokio::test]
async fn credentials_that_are_not_good_are_answered_alike_whether_or_not_the_tenant_exists() {
    let login = Login::new().await;
    let stranger = Key::ec("k1");
    let claims = login.idp.claims("alice", now());
    let mut unknown = login.key.header();
    unknown["kid"] = json!("nobody");
    let key = format!("fsk_{{tenant_id}}.{}.{}", "0".repeat(32), "A".repeat(43));
    let exchange = "/v1/tenants/{tenant_id}/token/exchange";
    for bearer in [
        stranger.sign(&claims),
        login.key.sign_with(&unknown, &claims),
        login.upstream(|claims| claims["aud"] = json!("another")),
        login.upstream(|claims| claims["exp"] = json!(now() - 100)),
        login.upstream(|claims| claims["iss"] = json!("https://nobody.example")),
        key.replace("{tenant_id}", "acme"),
        key.replace("{tenant_id}", "none"),
    ] {
        alike(&login, exchange, &bearer, None).await;
    }
    let refresh = format!("{}-0.{}", "0".repeat(32), "A".repeat(43));
    let body = json!({ "refresh_token": refresh });
    for route in ["refresh", "revoke"] {
        let path = format!("/v1/tenants/{{tenant_id}}/token/{route}");
        alike(&login, &path, "", Some(body.clone())).await;
    }
}

async fn alike(login: &Login, path: &str, bearer: &str, body: Option<Value>) {
    let ask = Ask {
        method: "POST",
        path,
        bearer,
        body,
    };
    let exists = seen(&login.world, &ask, "acme").await;
    for other in ["none", "ops"] {
        assert_eq!(
            exists,
            seen(&login.world, &ask, other).await,
            "{path} {bearer}"
        );
    }
}

/// Every route about a tenant but the one that publishes its keys, with something for every name in its path.
async fn routes(login: &Login) -> Vec<(String, String)> {
    let document = login
        .world
        .call("GET", "/v1/openapi.json", "", None)
        .await
        .body;
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        if !path.contains("{tenant_id}") || path.ends_with("jwks.json") {
            continue;
        }
        let filled = path
            .split('/')
            .map(|part| match part {
                "{tenant_id}" => part,
                part if part.starts_with('{') => "ns",
                part => part,
            })
            .collect::<Vec<_>>()
            .join("/");
        for method in item.as_object().unwrap().keys() {
            routes.push((method.to_uppercase(), filled.clone()));
        }
    }
    routes
}
