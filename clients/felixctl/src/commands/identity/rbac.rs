//! `rbac policy | grouping`.

use felix_auth::{Action, Object, Permission};
use serde_json::{Value, json};

use super::{tenant, text};
use crate::cli::{GroupingCommand, GroupingRule, PolicyCommand, PolicyRule, RbacCommand};
use crate::commands::App;
use crate::confirm;
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::suggest::close_matches;

const POLICY: &[Field] = &[
    Field::plain("subject"),
    Field::plain("object"),
    Field::plain("action"),
];
const GROUPING: &[Field] = &[Field::plain("user"), Field::plain("role")];

pub(in crate::commands) async fn run(app: &App, command: RbacCommand) -> Result<(), Failure> {
    match command {
        RbacCommand::Policy(command) => policy(app, command).await,
        RbacCommand::Grouping(command) => grouping(app, command).await,
    }
}

async fn policy(app: &App, command: PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::Ls { subject } => {
            let (api, path) = tenant(app).await?;
            let mut rules = api.list(&format!("{path}/rbac/policies")).await?;
            rules.retain(|rule| is(rule, "subject", subject.as_deref()));
            Ok(app
                .output
                .report(&Report::list("felixctl.rbac.policy.ls/1", POLICY, rules))?)
        }
        PolicyCommand::Add(rule) => {
            check(&rule)?;
            let (api, path) = tenant(app).await?;
            api.post(&format!("{path}/rbac/policies"), Some(&policy_body(&rule)))
                .await?;
            let PolicyRule {
                subject,
                object,
                action,
            } = rule;
            Ok(app.output.say(&format!(
                "{subject} may {action} on {object}, from each holder's next token on"
            ))?)
        }
        PolicyCommand::Rm { rule, yes } => {
            let (api, path) = tenant(app).await?;
            let what = format!("the rule {} {} {}", rule.subject, rule.object, rule.action);
            confirm::destroy(&what, &rule.subject, yes.into())?;
            api.delete_this(&format!("{path}/rbac/policies"), &policy_body(&rule))
                .await?;
            Ok(app.output.say(&format!(
                "{what} is removed; tokens that carry it are refused within seconds"
            ))?)
        }
    }
}

async fn grouping(app: &App, command: GroupingCommand) -> Result<(), Failure> {
    match command {
        GroupingCommand::Ls { user, role } => {
            let (api, path) = tenant(app).await?;
            let mut rules = api.list(&format!("{path}/rbac/groupings")).await?;
            rules.retain(|rule| {
                is(rule, "user", user.as_deref()) && is(rule, "role", role.as_deref())
            });
            Ok(app.output.report(&Report::list(
                "felixctl.rbac.grouping.ls/1",
                GROUPING,
                rules,
            ))?)
        }
        GroupingCommand::Add(rule) => {
            let (api, path) = tenant(app).await?;
            api.post(
                &format!("{path}/rbac/groupings"),
                Some(&grouping_body(&rule)),
            )
            .await?;
            let GroupingRule { user, role } = rule;
            Ok(app
                .output
                .say(&format!("{user} has {role} from the next token on"))?)
        }
        GroupingCommand::Rm { rule, yes } => {
            let (api, path) = tenant(app).await?;
            let what = format!("the gift of {} to {}", rule.role, rule.user);
            confirm::destroy(&what, &rule.role, yes.into())?;
            api.delete_this(&format!("{path}/rbac/groupings"), &grouping_body(&rule))
                .await?;
            Ok(app.output.say(&format!(
                "{what} is removed; tokens that came from it are refused within seconds"
            ))?)
        }
    }
}

fn is(rule: &Value, field: &str, wanted: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| text(rule, field) == Some(wanted))
}

fn policy_body(rule: &PolicyRule) -> Value {
    json!({ "subject": rule.subject, "object": rule.object, "action": rule.action })
}

fn grouping_body(rule: &GroupingRule) -> Value {
    json!({ "user": rule.user, "role": rule.role })
}

/// A rule with a slip in it is refused here, where the right spelling can be named.
fn check(rule: &PolicyRule) -> Result<(), Failure> {
    let action: Action = rule
        .action
        .parse()
        .map_err(|unknown: felix_auth::UnknownAction| {
            let names = Action::ALL.iter().map(|action| action.name());
            Failure::usage(unknown.to_string()).with_matches(close_matches(&unknown.0, names))
        })?;
    let object: Object = rule.object.parse().map_err(|bad: felix_auth::BadObject| {
        Failure::usage(format!("{:?} is no object: {bad}", rule.object))
            .with_hint("for example stream:dev/default/orders or stream:dev/default/room.*")
    })?;
    Permission::new(action, object)
        .map(drop)
        .map_err(|bad| Failure::usage(bad.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_with_a_slip_in_it_is_not_sent() {
        let rule = |object: &str, action: &str| PolicyRule {
            subject: "role:w".into(),
            object: object.into(),
            action: action.into(),
        };
        assert!(check(&rule("stream:dev/default/room.*", "stream.publish")).is_ok());
        let slip = check(&rule("stream:dev/default/x", "stream.publsh")).expect_err("a slip");
        assert_eq!(slip.did_you_mean, ["stream.publish"]);
        assert!(check(&rule("stream:*", "stream.publish")).is_err());
        assert!(check(&rule("cache:dev/default/c/k", "cache.manage")).is_err());
    }
}
