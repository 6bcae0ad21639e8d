//! `auth explain`: why a token may or may not do something.

use felix_auth::{Action, Object, Permission, Permissions};
use serde_json::json;

use super::App;
use super::token::{Claims, now_seconds};
use crate::cli::AuthCommand;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};
use crate::suggest::close_matches;

pub(super) fn run(app: &App, command: &AuthCommand) -> Result<(), Failure> {
    let AuthCommand::Explain { action, object } = command;
    const FIELDS: &[Field] = &[
        Field::plain("allowed"),
        Field::plain("because"),
        Field::plain("action"),
        Field::plain("object"),
        Field::plain("tenant"),
        Field::plain("nearest"),
    ];
    let ask = ask(action, object)?;
    let settings = app.settings()?;
    // Which of the two tokens is meant follows from who checks the action.
    let for_controlplane = is_for_controlplane(ask.action) && settings.token_file().is_none();
    let token = if for_controlplane {
        settings
            .controlplane_token()
            .or_else(|_| settings.token())?
    } else {
        settings.token()?
    };
    let claims = Claims::decode(&token)?;
    let verdict = explain(&claims, &ask, now_seconds());
    let report = Report::one(
        "felixctl.auth.explain/1",
        FIELDS,
        &json!({
            "allowed": verdict.allowed,
            "because": verdict.because,
            "action": action,
            "object": object,
            "tenant": claims.tenant(),
            "nearest": verdict.nearest,
        }),
    );
    app.output.report(&report)?;
    if verdict.allowed {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Refused,
        format!("this token may not {action} on {object}"),
    ))
}

fn ask(action: &str, object: &str) -> Result<Permission, Failure> {
    let action: Action = action
        .parse()
        .map_err(|unknown: felix_auth::UnknownAction| {
            let names = Action::ALL.iter().map(|action| action.name());
            Failure::usage(unknown.to_string()).with_matches(close_matches(&unknown.0, names))
        })?;
    let object: Object = object.parse().map_err(|bad: felix_auth::BadObject| {
        Failure::usage(format!("{object:?} is no object: {bad}"))
            .with_hint("for example stream:dev/default/orders or cache:dev/default/config")
    })?;
    Permission::new(action, object).map_err(|bad| Failure::usage(bad.to_string()))
}

fn is_for_controlplane(action: Action) -> bool {
    let name = action.name();
    ["ns.", "tenant.", "rbac.", "node.", "token."]
        .iter()
        .any(|start| name.starts_with(start))
        || name.ends_with(".manage")
}

struct Verdict {
    allowed: bool,
    because: String,
    /// Grants of the same action over something else: what was probably meant to be wider.
    nearest: Vec<String>,
}

/// Decides as the servers do, with the same matcher, and says which grant decided. The signature
/// and whether the key is still good are theirs alone to judge.
fn explain(claims: &Claims, ask: &Permission, now: u64) -> Verdict {
    let permissions = Permissions::compile_claim(claims.tenant(), claims.permissions());
    let deciding = |action: Action| {
        permissions
            .grants()
            .iter()
            .find(|grant| grant.action == action && grant.object.holds(&ask.object))
    };
    let direct = deciding(ask.action);
    let found = direct.or_else(|| {
        ask.action
            .implied_by()
            .iter()
            .find_map(|wider| deciding(*wider))
    });
    let nearest: Vec<String> = permissions
        .grants()
        .iter()
        .filter(|grant| grant.action == ask.action)
        .map(ToString::to_string)
        .collect();
    let refused = |because: String| Verdict {
        allowed: false,
        because,
        nearest: nearest.clone(),
    };
    if claims.expired(now) {
        return refused("the token has expired".into());
    }
    if let Some(tenant) = ask.object.tenant()
        && tenant != claims.tenant()
    {
        return refused(format!(
            "the token is for tenant {}, the object belongs to tenant {tenant}",
            claims.tenant()
        ));
    }
    match (found, direct) {
        (Some(grant), Some(_)) => Verdict {
            allowed: true,
            because: format!("the token grants {grant}"),
            nearest: Vec::new(),
        },
        (Some(grant), None) => Verdict {
            allowed: true,
            because: format!("the token grants {grant}, which implies {}", ask.action),
            nearest: Vec::new(),
        },
        (None, _) if nearest.is_empty() => refused(format!(
            "no permission of the token is about {}",
            ask.action
        )),
        (None, _) => refused(format!("the token grants {} only elsewhere", ask.action)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    fn verdict(perms: &[&str], action: &str, object: &str) -> Verdict {
        let part = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let body = json!({"tid": "dev", "exp": 100, "perms": perms});
        let token = format!("{}.{}.", part(json!({})), part(body));
        let claims = Claims::decode(&token).expect("a token");
        explain(&claims, &ask(action, object).expect("a question"), 50)
    }

    #[test]
    fn the_grant_that_decides_is_named() {
        let yes = verdict(
            &["stream.publish:stream:dev/default/*"],
            "stream.publish",
            "stream:dev/default/orders",
        );
        assert!(yes.allowed);
        assert_eq!(
            yes.because,
            "the token grants stream.publish:stream:dev/default/*"
        );
        let implied = verdict(
            &["cache.read:cache:dev/default/*"],
            "cache.watch",
            "cache:dev/default/config",
        );
        assert!(implied.allowed);
        assert!(
            implied.because.ends_with("which implies cache.watch"),
            "{}",
            implied.because
        );
    }

    #[test]
    fn a_refusal_says_what_is_missing() {
        let elsewhere = verdict(
            &["stream.publish:stream:dev/default/payments"],
            "stream.publish",
            "stream:dev/default/orders",
        );
        assert!(!elsewhere.allowed);
        assert_eq!(
            elsewhere.nearest,
            ["stream.publish:stream:dev/default/payments"]
        );
        let nothing = verdict(&[], "stream.publish", "stream:dev/default/orders");
        assert_eq!(
            nothing.because,
            "no permission of the token is about stream.publish"
        );
        let other = verdict(
            &["stream.publish:stream:dev/default/*"],
            "stream.publish",
            "stream:acme/default/orders",
        );
        assert!(
            other.because.contains("belongs to tenant acme"),
            "{}",
            other.because
        );
    }

    #[test]
    fn a_misspelt_action_finds_the_right_one() {
        let failure = ask("stream.publsh", "stream:a/b/c").expect_err("unknown");
        assert_eq!(failure.did_you_mean, ["stream.publish"]);
        assert_eq!(
            ask("stream.publish", "streams")
                .expect_err("bad object")
                .exit,
            Exit::Usage
        );
    }
}
