//! `auth explain`: why a token may or may not do something.

use std::io::Read as _;

use felix_auth::{
    Action, Audience, Lacks, Object, Permission, Permissions, Resource, TOKEN_BYTES_MAX, Verdict,
    explain,
};
use serde_json::json;

use super::App;
use super::token::Claims;
use crate::cli::AuthCommand;
use crate::credentials::now_seconds;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Report};
use crate::secret::Secret;
use crate::suggest::close_matches;

pub(super) async fn run(app: &App, command: &AuthCommand) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("allowed"),
        Field::plain("because"),
        Field::plain("action"),
        Field::plain("object"),
        Field::plain("tenant"),
        Field::plain("nearest"),
    ];
    let AuthCommand::Explain { question } = command;
    let (token, action, object) = match question.as_slice() {
        [token, action, object] => (Some(token.as_str()), action, object),
        [action, object] => (None, action, object),
        _ => return Err(Failure::usage("the question is an action and an object")),
    };
    let ask = ask(action, object)?;
    let token = match token {
        Some("-") => from_stdin()?,
        Some(token) => token.into(),
        None => own_token(app, ask.action).await?,
    };
    let claims = Claims::decode(token.reveal())?;
    let answer = answer(&claims, &ask, now_seconds());
    let report = Report::one(
        "felixctl.auth.explain/1",
        FIELDS,
        &json!({
            "allowed": answer.allowed,
            "because": answer.because,
            "action": action,
            "object": object,
            "tenant": claims.tenant(),
            "nearest": answer.nearest,
        }),
    );
    app.output.report(&report)?;
    if answer.allowed {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Refused,
        format!("this token may not {action} on {object}"),
    ))
}

/// Which of the two tokens is meant follows from who checks the action.
async fn own_token(app: &App, action: Action) -> Result<Secret, Failure> {
    let settings = app.settings()?;
    let audience = audience_of(action);
    let tokens = match app.tokens(&settings, audience) {
        Err(_) if audience == Audience::ControlPlane => app.tokens(&settings, Audience::Broker)?,
        tokens => tokens?,
    };
    tokens.token().await
}

fn from_stdin() -> Result<Secret, Failure> {
    let mut text = String::new();
    let limit = TOKEN_BYTES_MAX as u64 + 1;
    std::io::stdin().take(limit).read_to_string(&mut text)?;
    crate::settings::trimmed(&text)
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

fn audience_of(action: Action) -> Audience {
    let name = action.name();
    let of_controlplane = [
        "ns.", "tenant.", "rbac.", "node.", "token.", "audit.", "session.", "quota.",
    ]
    .iter()
    .any(|start| name.starts_with(start))
        || name.ends_with(".manage");
    if of_controlplane {
        Audience::ControlPlane
    } else {
        Audience::Broker
    }
}

struct Answer {
    allowed: bool,
    because: String,
    /// Grants that come close: what was probably meant to be wider.
    nearest: Vec<String>,
}

/// Decides as the servers do, with the same matcher, and says which grant decided. The signature,
/// revocations and whether the key is still good are theirs alone to judge.
fn answer(claims: &Claims, ask: &Permission, now: u64) -> Answer {
    let permissions = Permissions::compile_claim(claims.tenant(), claims.permissions());
    let found = match ask.object.as_resource() {
        Some(resource) => exact(&permissions, ask, &resource),
        None => pattern(&permissions, ask),
    };
    let ended = if claims.expired(now) {
        Some("the token has expired".to_owned())
    } else {
        ask.object
            .tenant()
            .filter(|tenant| *tenant != claims.tenant())
            .map(|tenant| {
                format!(
                    "the token is for tenant {}, the object belongs to tenant {tenant}",
                    claims.tenant()
                )
            })
    };
    match ended {
        Some(because) => Answer {
            allowed: false,
            because,
            nearest: Vec::new(),
        },
        None => found,
    }
}

/// A question about one thing, as a server would ask it.
fn exact(permissions: &Permissions, ask: &Permission, resource: &Resource<'_>) -> Answer {
    let explanation = explain(permissions, ask.action, resource);
    let because = match &explanation.verdict {
        Verdict::Allowed { by } => granted_by(by, ask.action),
        Verdict::Restricted { would, by } => {
            let by: Vec<String> = by.iter().map(ToString::to_string).collect();
            format!(
                "the token grants {would}, but {} keeps it to other groups of this stream",
                by.join(" and ")
            )
        }
        Verdict::OtherTenant => "the object belongs to another tenant".to_owned(),
        Verdict::Missing => missing(
            explanation
                .near
                .iter()
                .any(|miss| miss.lacks != Lacks::Action),
            ask.action,
        ),
    };
    Answer {
        allowed: matches!(explanation.verdict, Verdict::Allowed { .. }),
        because,
        nearest: explanation
            .near
            .iter()
            .map(|miss| miss.grant.to_string())
            .collect(),
    }
}

/// A question about many things at once: one grant must hold them all.
fn pattern(permissions: &Permissions, ask: &Permission) -> Answer {
    let grants = permissions.grants();
    let gives = |grant: &&Permission| {
        grant.action == ask.action || ask.action.implied_by().contains(&grant.action)
    };
    let holding = grants
        .iter()
        .find(|grant| gives(grant) && grant.object.holds(&ask.object));
    let nearest: Vec<String> = grants
        .iter()
        .filter(gives)
        .map(ToString::to_string)
        .collect();
    match holding {
        Some(grant) => Answer {
            allowed: true,
            because: granted_by(grant, ask.action),
            nearest: Vec::new(),
        },
        None => Answer {
            allowed: false,
            because: missing(!nearest.is_empty(), ask.action),
            nearest,
        },
    }
}

fn granted_by(grant: &Permission, action: Action) -> String {
    if grant.action == action {
        format!("the token grants {grant}")
    } else {
        format!("the token grants {grant}, which implies {action}")
    }
}

fn missing(elsewhere: bool, action: Action) -> String {
    if elsewhere {
        format!("the token grants {action} only elsewhere")
    } else {
        format!("no permission of the token is about {action}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    fn verdict(perms: &[&str], action: &str, object: &str) -> Answer {
        let part = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let body = json!({"tid": "dev", "exp": 100, "perms": perms});
        let token = format!("{}.{}.", part(json!({})), part(body));
        let claims = Claims::decode(&token).expect("a token");
        answer(&claims, &ask(action, object).expect("a question"), 50)
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
    fn a_question_about_many_needs_one_grant_that_holds_them_all() {
        let rooms = &["stream.publish:stream:dev/default/room.*"];
        assert!(verdict(rooms, "stream.publish", "stream:dev/default/room.7").allowed);
        assert!(verdict(rooms, "stream.publish", "stream:dev/default/room.eu.*").allowed);
        let wider = verdict(rooms, "stream.publish", "stream:dev/default/*");
        assert!(!wider.allowed);
        assert_eq!(wider.nearest, rooms);
    }

    #[test]
    fn a_group_grant_that_restricts_is_named() {
        let grants = &[
            "stream.subscribe:stream:dev/default/orders",
            "group.consume:group:dev/default/orders/billing",
        ];
        let other = verdict(grants, "group.consume", "group:dev/default/orders/audit");
        assert!(!other.allowed);
        assert!(
            other.because.contains("orders/billing"),
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
