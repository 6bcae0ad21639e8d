//! `whoami`: who the context is, until when, with which rights.

use felix_auth::Audience;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::App;
use super::token::Claims;
use crate::credentials::Credentials;
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::parse::show_time;
use crate::settings::{Credential, Settings};

pub(super) async fn run(app: &App) -> Result<(), Failure> {
    show(app, &app.settings()?).await
}

/// The tokens are the context's own, so what they say is taken as they say it.
pub(super) async fn show(app: &App, settings: &Settings) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("principal"),
        Field::plain("name"),
        Field::plain("issuer"),
        Field::plain("subject"),
        Field::plain("tenant"),
        Field::plain("context"),
        Field::plain("credential"),
        Field::plain("session"),
        Field::plain("expires_at"),
        Field::plain("renewable_until"),
        Field::plain("actor"),
        Field::plain("roles"),
        Field::shown("rights", lines),
    ];
    let mut claims = Vec::new();
    let mut refused = None;
    for audience in [Audience::Broker, Audience::ControlPlane] {
        let token = match app.tokens(settings, audience) {
            Ok(tokens) => tokens.token().await,
            Err(failure) => Err(failure),
        };
        match token.and_then(|token| Claims::decode(token.reveal())) {
            Ok(one) => claims.push(one),
            Err(failure) => refused = refused.or(Some(failure)),
        }
    }
    let Some(first) = claims.first() else {
        return Err(refused.unwrap_or_else(|| Failure::usage("nothing says who you are")));
    };
    let kept = kept(app, settings);
    let person = kept.as_ref().map(|kept| &kept.person);
    let shown = json!({
        "principal": first.text("sub"),
        "name": person.and_then(|person| person.name.clone()),
        "issuer": person.and_then(|person| person.issuer.clone()),
        "subject": person.and_then(|person| person.subject.clone()),
        "tenant": first.tenant(),
        "context": settings.context,
        "credential": credential(settings),
        "session": claims.iter().filter_map(|one| one.text("sid")).collect::<Vec<_>>(),
        "expires_at": claims.iter().filter_map(|one| one.claim("exp").as_i64()).min().map(time),
        "renewable_until": kept.as_ref().and_then(renewable_until).map(time),
        "actor": first.claim("act").get("sub").cloned(),
        "roles": unique(claims.iter().flat_map(|one| texts(&one.claim("roles")))),
        "rights": unique(claims.iter().flat_map(|one| one.permissions().map(ToOwned::to_owned))),
    });
    Ok(app
        .output
        .report(&Report::one("felixctl.whoami/1", FIELDS, &shown))?)
}

/// The principal of somebody at an identity provider: everybody who knows both names can tell it.
pub(super) fn principal_id(issuer: &str, subject: &str) -> String {
    let digest = Sha256::digest(format!("{issuer}|{subject}").as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is kept of a sign-in; of a service account there is nobody to show.
fn kept(app: &App, settings: &Settings) -> Option<Credentials> {
    match settings.credential(Audience::Broker).ok()? {
        Credential::SignIn(_) => app.store(settings).ok()?.load().ok()?,
        Credential::Token(_) | Credential::TokenFile(_) | Credential::ServiceAccount(_) => None,
    }
}

fn credential(settings: &Settings) -> Option<&'static str> {
    let either = settings
        .credential(Audience::Broker)
        .or_else(|_| settings.credential(Audience::ControlPlane));
    Some(match either.ok()? {
        Credential::Token(_) | Credential::TokenFile(_) => "token",
        Credential::SignIn(_) => "login",
        Credential::ServiceAccount(_) => "service account",
    })
}

fn renewable_until(kept: &Credentials) -> Option<i64> {
    let ends = kept.tokens.values().filter_map(|it| {
        it.refresh_token.as_ref()?;
        it.refresh_expires_at
    });
    i64::try_from(ends.min()?).ok()
}

fn time(seconds: i64) -> String {
    show_time(seconds.saturating_mul(1_000))
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .filter_map(Value::as_str)
        .map(ToOwned::to_owned)
        .collect()
}

fn unique(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut unique: Vec<String> = Vec::new();
    for text in texts {
        if !unique.contains(&text) {
            unique.push(text);
        }
    }
    unique
}

/// The rights of a person can be many: as many as fit are shown, and their number.
fn lines(value: &Value) -> String {
    const SHOWN: usize = 12;
    let all = texts(value);
    if all.is_empty() {
        return "none".into();
    }
    let mut text = all
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if all.len() > SHOWN {
        text.push_str(&format!(
            ", and {} more (--json shows all)",
            all.len() - SHOWN
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_the_hash_of_both_names() {
        assert_eq!(
            principal_id("https://login.example.com", "42"),
            "0abd79d628af3e9180bd29bc4b1a0979f369a5211ace3a1d325b20dc446248b8"
        );
    }

    #[test]
    fn many_rights_are_cut_and_counted() {
        let many: Vec<String> = (0..20)
            .map(|n| format!("stream.publish:stream:t/n/s{n}"))
            .collect();
        let shown = lines(&json!(many));
        assert!(shown.ends_with("and 8 more (--json shows all)"), "{shown}");
        assert_eq!(lines(&json!([])), "none");
    }
}
