//! What can be done: the verbs of a permission.

use std::fmt;
use std::str::FromStr;

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One verb of the permission grammar.
        ///
        /// Tokens spell it with a dot, as in `stream.publish`. A verb this build does not know is ignored where a
        /// token is read and refused where a rule is written.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Action {
            $($(#[$doc])* $variant,)*
        }

        impl Action {
            /// Every action this build knows, in a fixed order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The spelling used in tokens and rules.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

actions! {
    /// Append to a stream.
    StreamPublish = "stream.publish",
    /// Read a stream, live or from history.
    StreamSubscribe = "stream.subscribe",
    /// Move the start of a stream forward.
    StreamTrim = "stream.trim",
    /// Create, change and delete streams.
    StreamManage = "stream.manage",
    /// Read values and counters of a cache.
    CacheRead = "cache.read",
    /// Write values of a cache.
    CacheWrite = "cache.write",
    /// Be told of changes to a cache.
    CacheWatch = "cache.watch",
    /// Add to counters of a cache.
    CounterAdd = "counter.add",
    /// Create, change and delete caches.
    CacheManage = "cache.manage",
    /// Take, answer and describe the work of a consumer group.
    GroupConsume = "group.consume",
    /// Seek, redrive, discard and delete consumer groups.
    GroupManage = "group.manage",
    /// Create and delete namespaces.
    NamespaceManage = "ns.manage",
    /// Create and delete tenants; over one tenant, everything inside it.
    TenantManage = "tenant.manage",
    /// List roles and rules.
    RbacView = "rbac.view",
    /// Write rules.
    RbacPolicyManage = "rbac.policy.manage",
    /// Give roles to principals.
    RbacAssignmentManage = "rbac.assignment.manage",
    /// Follow the catalogue and look at nodes.
    NodeView = "node.view",
    /// Register and operate nodes.
    NodeManage = "node.manage",
    /// Act for another principal.
    TokenDelegate = "token.delegate",
    /// Read what was done by whom.
    AuditView = "audit.view",
    /// List and end sessions, and revoke.
    SessionManage = "session.manage",
    /// Set quotas.
    QuotaManage = "quota.manage",
    /// Open rooms by the templates of a namespace; of each room also some right of use is needed.
    TemplateUse = "template.use",
}

impl Action {
    /// The older, wider actions that allow this one over the same object.
    ///
    /// They keep tokens of the field working: those were minted before the narrower actions existed.
    #[must_use]
    pub const fn implied_by(self) -> &'static [Self] {
        match self {
            Self::CacheWatch => &[Self::CacheRead],
            Self::CounterAdd => &[Self::CacheWrite],
            Self::GroupConsume => &[Self::StreamSubscribe],
            Self::GroupManage => &[Self::StreamManage],
            Self::TemplateUse => &[Self::NamespaceManage],
            Self::StreamPublish
            | Self::StreamSubscribe
            | Self::StreamTrim
            | Self::StreamManage
            | Self::CacheRead
            | Self::CacheWrite
            | Self::CacheManage
            | Self::NamespaceManage
            | Self::TenantManage
            | Self::RbacView
            | Self::RbacPolicyManage
            | Self::RbacAssignmentManage
            | Self::NodeView
            | Self::NodeManage
            | Self::TokenDelegate
            | Self::AuditView
            | Self::SessionManage
            | Self::QuotaManage => &[],
        }
    }

    /// Whether a single key of a cache is a meaningful object for this action.
    #[must_use]
    pub const fn takes_keys(self) -> bool {
        matches!(
            self,
            Self::CacheRead | Self::CacheWrite | Self::CacheWatch | Self::CounterAdd
        )
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A verb that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown action `{0}`")]
pub struct UnknownAction(pub String);

impl FromStr for Action {
    type Err = UnknownAction;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .find(|action| action.name() == text)
            .copied()
            .ok_or_else(|| UnknownAction(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_reads_back_from_its_own_name() {
        for action in Action::ALL {
            assert_eq!(action.name().parse(), Ok(*action));
        }
    }

    #[test]
    fn an_implying_action_is_implied_by_nothing_itself() {
        for action in Action::ALL {
            for wider in action.implied_by() {
                assert!(
                    wider.implied_by().is_empty(),
                    "{action} would need a second step"
                );
            }
        }
    }
}
