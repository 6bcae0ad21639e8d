//! DescribeAcls: the rules of the tenant in the form that Kafka has for them. They are changed at the control plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use felix_auth::{Action, NamePattern, Object};
use felix_meta::Policy;
use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};

use super::admin::{self, Refused};
use super::{Ctx, Head, text};
use crate::topics::DEFAULT_NAMESPACE;

/// Whatever a filter compares.
const ANY: i8 = 1;
/// A pattern of names that a filter's name matches.
const MATCH: i8 = 2;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;

const TOPIC: i8 = 2;
const GROUP: i8 = 3;
const CLUSTER: i8 = 4;

const ALLOW: i8 = 3;

/// Rights that Kafka has something like, in the numbers of its operations.
const OPERATIONS: [(Action, i8); 7] = [
    (Action::TenantManage, 2),
    (Action::StreamSubscribe, 3),
    (Action::GroupConsume, 3),
    (Action::StreamPublish, 4),
    (Action::StreamTrim, 6),
    (Action::GroupManage, 6),
    (Action::StreamManage, 7),
];

/// What a rule is about: kind of resource, name, kind of pattern.
type About = (i8, String, i8);

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    _head: Head,
    request: DescribeAclsRequest,
) -> DescribeAclsResponse {
    match rules(&ctx).await {
        Ok(rules) => DescribeAclsResponse::default()
            .with_error_message(None)
            .with_resources(described(&request, &rules)),
        Err(refused) => DescribeAclsResponse::default()
            .with_error_code(refused.code)
            .with_error_message(Some(text(&refused.message))),
    }
}

async fn rules(ctx: &Ctx) -> Result<Vec<Policy>, Refused> {
    let rules = admin::control(ctx)?.policies(ctx.who.tenant()).await;
    rules.map_err(|failed| admin::refusal(&failed))
}

fn described(request: &DescribeAclsRequest, rules: &[Policy]) -> Vec<DescribeAclsResource> {
    let mut resources: BTreeMap<About, Vec<AclDescription>> = BTreeMap::new();
    for rule in rules {
        let Some((about, operation)) = kafka_form(rule) else {
            continue;
        };
        let who = principal(&rule.subject);
        let wanted = matches_resource(request, &about)
            && request
                .principal_filter
                .as_ref()
                .is_none_or(|wanted| wanted.as_str() == who)
            && request
                .host_filter
                .as_ref()
                .is_none_or(|wanted| wanted.as_str() == "*")
            && [ANY, operation].contains(&request.operation)
            && [ANY, ALLOW].contains(&request.permission_type);
        if wanted {
            let acl = AclDescription::default()
                .with_principal(text(&who))
                .with_host(text("*"))
                .with_operation(operation)
                .with_permission_type(ALLOW);
            resources.entry(about).or_default().push(acl);
        }
    }
    let resources = resources.into_iter().map(|((kind, name, pattern), acls)| {
        DescribeAclsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(&name))
            .with_pattern_type(pattern)
            .with_acls(acls)
    });
    resources.collect()
}

fn principal(subject: &str) -> String {
    match subject.strip_prefix("role:") {
        Some(role) => format!("Role:{role}"),
        None => format!("User:{subject}"),
    }
}

fn matches_resource(request: &DescribeAclsRequest, (kind, name, pattern): &About) -> bool {
    if ![ANY, *kind].contains(&request.resource_type_filter) {
        return false;
    }
    let Some(wanted) = &request.resource_name_filter else {
        return [ANY, MATCH, *pattern].contains(&request.pattern_type_filter);
    };
    let wanted = wanted.as_str();
    match request.pattern_type_filter {
        MATCH => match *pattern {
            PREFIXED => wanted.starts_with(name.as_str()),
            _ => name == wanted || name == "*",
        },
        ANY => name == wanted,
        exactly => exactly == *pattern && name == wanted,
    }
}

/// What a rule is about and which operation it allows; `None` for rules that Kafka has nothing like.
fn kafka_form(rule: &Policy) -> Option<(About, i8)> {
    let action: Action = rule.action.parse().ok()?;
    let object: Object = rule.object.parse().ok()?;
    let (_, operation) = *OPERATIONS.iter().find(|(known, _)| *known == action)?;
    let about = if let Object::Stream {
        namespace, stream, ..
    } = &object
    {
        named(TOPIC, namespace, stream)
    } else if let Object::Group { group, .. } = object {
        match group {
            NamePattern::Any => (GROUP, "*".to_owned(), LITERAL),
            NamePattern::Exact(name) => (GROUP, name.into(), LITERAL),
            NamePattern::Prefix(prefix) => (GROUP, prefix.into(), PREFIXED),
        }
    } else if matches!(object, Object::Tenant(_)) {
        (CLUSTER, "kafka-cluster".to_owned(), LITERAL)
    } else {
        return None;
    };
    Some((about, operation))
}

fn named(kind: i8, namespace: &NamePattern, name: &NamePattern) -> About {
    let before = match namespace {
        NamePattern::Exact(namespace) if &**namespace != DEFAULT_NAMESPACE => {
            format!("{namespace}.")
        }
        NamePattern::Exact(_) | NamePattern::Prefix(_) | NamePattern::Any => String::new(),
    };
    match name {
        NamePattern::Exact(name) => (kind, format!("{before}{name}"), LITERAL),
        NamePattern::Prefix(prefix) => (kind, format!("{before}{prefix}"), PREFIXED),
        NamePattern::Any if before.is_empty() => (kind, "*".to_owned(), LITERAL),
        NamePattern::Any => (kind, before, PREFIXED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: &str, object: &str) -> Policy {
        Policy {
            subject: "role:reader".into(),
            object: object.into(),
            action: action.into(),
        }
    }

    #[test]
    fn rules_about_streams_are_shown_as_those_of_topics() {
        let about =
            |object: &str| kafka_form(&rule("stream.publish", object)).map(|(about, _)| about);
        let topic = |name: &str, pattern| Some((TOPIC, name.to_owned(), pattern));
        assert_eq!(
            about("stream:acme/default/orders"),
            topic("orders", LITERAL)
        );
        assert_eq!(about("stream:acme/shop/*"), topic("shop.", PREFIXED));
        assert_eq!(about("stream:acme/*/*"), topic("*", LITERAL));
        assert_eq!(
            kafka_form(&rule("cache.read", "cache:acme/default/c")),
            None
        );
    }

    #[test]
    fn filters_pick_what_they_say() {
        let rules = [rule("stream.publish", "stream:acme/default/orders")];
        let filter = DescribeAclsRequest::default()
            .with_resource_type_filter(ANY)
            .with_resource_name_filter(None)
            .with_principal_filter(None)
            .with_host_filter(None)
            .with_pattern_type_filter(ANY)
            .with_operation(ANY)
            .with_permission_type(ANY);
        assert_eq!(described(&filter, &rules).len(), 1);
        let other = filter
            .clone()
            .with_resource_name_filter(Some(text("other")));
        assert!(described(&other, &rules).is_empty());
        let groups = filter.with_resource_type_filter(GROUP);
        assert!(described(&groups, &rules).is_empty());
    }
}
