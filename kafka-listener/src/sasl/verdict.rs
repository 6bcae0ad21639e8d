//! Whom a credential speaks for.

use std::net::SocketAddr;
use std::sync::Arc;

use felix_auth::{
    Audience, ISSUER, Principal, TOKEN_BYTES_MAX, TokenRefused, claimed_tenant, verify,
};
use felix_controlplane_client::{CallFailed, TokenSource};
use felix_meta::http::ExchangeSpec;
use felix_model::TenantId;

use super::{Credential, LoginRefused};
use crate::listener::{Shared, now};
use crate::who::{Tokens, Who};

/// Judges a credential: a Felix token is verified here, anything else is exchanged for one at the control plane.
///
/// # Errors
/// [`LoginRefused`] in the same words whether or not the tenant exists.
pub(super) async fn judge(
    shared: &Shared,
    peer: SocketAddr,
    credential: Credential,
) -> Result<Arc<Who>, LoginRefused> {
    let Credential { tenant, secret } = credential;
    let who = match felix_token(&secret, tenant.as_deref()) {
        Some(tenant) => {
            let tokens = Tokens {
                broker: secret.into(),
                control: None,
            };
            let principal = principal(shared, &tenant, &tokens.broker).await?;
            shared.logins.share(principal, tokens, &shared.upstream)
        }
        None => exchanged(shared, tenant.as_deref(), &secret).await?,
    };
    if who.principal.loopback_only && !peer.ip().to_canonical().is_loopback() {
        return Err(LoginRefused(
            "this token is for development and is accepted from this host only".into(),
        ));
    }
    if who.stands(&shared.names, now()) {
        Ok(who)
    } else {
        Err(LoginRefused("this token was revoked".into()))
    }
}

/// The tenant of what says that it is a Felix token; the one that was named with it comes first, so that a token of
/// another tenant is refused as such.
fn felix_token(secret: &str, named: Option<&str>) -> Option<TenantId> {
    if secret.len() > TOKEN_BYTES_MAX || !issued_by_us(secret) {
        return None;
    }
    let claimed = claimed_tenant(secret).ok()?;
    named.map_or(Some(claimed), |named| named.parse().ok())
}

/// Whether a token says that it is one of ours. Nothing is believed of it here.
fn issued_by_us(token: &str) -> bool {
    use base64::Engine;
    #[derive(serde::Deserialize)]
    struct Claim {
        iss: String,
    }
    let body = token.split('.').nth(1).unwrap_or_default();
    let body = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(body);
    let claim = body
        .ok()
        .and_then(|body| serde_json::from_slice::<Claim>(&body).ok());
    claim.is_some_and(|claim| claim.iss == ISSUER)
}

async fn principal(
    shared: &Shared,
    tenant: &TenantId,
    token: &str,
) -> Result<Principal, LoginRefused> {
    let judge = || {
        let keys = shared.names.keys(tenant);
        verify(token, tenant, Audience::Broker, &keys, now())
    };
    let judged = match judge() {
        // The tenant or its key may be newer than the catalogue held here.
        Err(TokenRefused::UnknownKey) if shared.names.catch_up().await => judge(),
        judged => judged,
    };
    judged.map_err(|refused| LoginRefused(refused.to_string()))
}

/// Asks the control plane for tokens in exchange. A credential that several connections log in with is exchanged once
/// while one of them is open and its token is not old.
async fn exchanged(
    shared: &Shared,
    named: Option<&str>,
    secret: &str,
) -> Result<Arc<Who>, LoginRefused> {
    let tenant: TenantId = named.and_then(|named| named.parse().ok()).ok_or_else(|| {
        LoginRefused("a token of an identity provider comes with the tenant it is for".into())
    })?;
    if let Some(who) = shared.logins.of_credential(&tenant, secret, now()) {
        return Ok(who);
    }
    let broker = exchange(shared, &tenant, secret, Audience::Broker).await;
    let broker = broker.map_err(|failed| refusal(&failed))?;
    // Who may do nothing at the control plane has no token for it, and needs none.
    let control = exchange(shared, &tenant, secret, Audience::ControlPlane).await;
    let principal = principal(shared, &tenant, &broker).await?;
    let tokens = Tokens {
        broker,
        control: control.ok(),
    };
    let who = shared.logins.share(principal, tokens, &shared.upstream);
    shared.logins.remember_credential(&tenant, secret, &who);
    Ok(who)
}

async fn exchange(
    shared: &Shared,
    tenant: &TenantId,
    secret: &str,
    audience: Audience,
) -> Result<Arc<str>, CallFailed> {
    let unusable = || CallFailed::Malformed {
        url: String::new(),
        detail: "the control plane's address cannot be used".into(),
    };
    let api = shared
        .upstream
        .control(TokenSource::fixed(secret))
        .ok_or_else(unusable)?;
    let spec = ExchangeSpec {
        audience: Some(audience.name().to_owned()),
        ..ExchangeSpec::default()
    };
    let answer = api.exchange(tenant, &spec).await?;
    Ok(answer.felix_token.into())
}

fn refusal(failed: &CallFailed) -> LoginRefused {
    if matches!(failed, CallFailed::Refused { status, .. } if *status < 500) {
        LoginRefused("the credential is not accepted for this tenant".into())
    } else {
        LoginRefused("the credential cannot be judged now; try again".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_us_as_issuer_is_taken_for_a_felix_token() {
        let token = |body: &str| {
            use base64::Engine;
            let body = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(body);
            format!("e30.{body}.sig")
        };
        let ours = token(r#"{"iss":"felix-auth","tid":"acme"}"#);
        assert_eq!(felix_token(&ours, None).unwrap().as_str(), "acme");
        assert_eq!(felix_token(&ours, Some("beta")).unwrap().as_str(), "beta");
        assert!(
            felix_token(
                &token(r#"{"iss":"https://idp.example","tid":"acme"}"#),
                None
            )
            .is_none()
        );
        for other in ["fsk_acme.key.secret", "", "a.b", "..."] {
            assert!(felix_token(other, Some("acme")).is_none(), "{other}");
        }
    }
}
