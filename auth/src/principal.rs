//! Who is asking.

use std::sync::Arc;

use felix_model::{TenantId, TimeMs};
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::matcher::Permissions;
use crate::resource::Resource;

/// What the token of an actor rests on, besides the actor himself. It stands in the `act` claim of what he made with that
/// token, so that whatever takes back the one takes back the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorToken {
    /// Its session.
    #[serde(rename = "sid", default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Box<str>>,
    /// Its own id.
    #[serde(rename = "jti", default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<Box<str>>,
    /// The roles that gave it something, the right to act for others among it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Box<str>>,
    /// Which identity provider vouched for the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idp: Option<Box<str>>,
}

impl ActorToken {
    /// Of the token behind this principal.
    #[must_use]
    pub fn of(actor: &Principal) -> Self {
        Self {
            session: actor.session.as_deref().map(Into::into),
            token_id: actor.token_id.as_deref().map(Into::into),
            roles: actor.roles.to_vec(),
            idp: actor.idp.as_deref().map(Into::into),
        }
    }
}

/// Who is asking: what is kept of a verified token. The token's text is not in it.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Tenant the principal acts in.
    pub tenant: TenantId,
    /// The principal's id.
    pub subject: Arc<str>,
    /// Who acts for him, if someone does.
    pub actor: Option<Arc<str>>,
    /// What the actor acted with.
    pub actor_token: Option<Arc<ActorToken>>,
    /// Who alone may act for him with this token.
    pub may_act: Option<Arc<str>>,
    /// The session the token belongs to.
    pub session: Option<Arc<str>>,
    /// The token's own id.
    pub token_id: Option<Arc<str>>,
    /// The roles that gave something.
    pub roles: Arc<[Box<str>]>,
    /// Which identity provider vouched, as [`crate::issuer_digest`] writes it.
    pub idp: Option<Arc<str>>,
    /// When the token was minted, unix ms. Of a token that says only the second it is the start of that.
    pub issued_at_ms: TimeMs,
    /// When the token stops being good, unix ms; exclusive.
    pub expires_at_ms: TimeMs,
    /// Whether the token may be used only on connections from this machine. Whoever owns the connection checks it.
    pub loopback_only: bool,
    /// What he may do.
    pub permissions: Arc<Permissions>,
}

impl Principal {
    /// Somebody with these rights between two instants (unix ms, the second exclusive), and nothing else said of him.
    #[must_use]
    pub fn new(
        tenant: TenantId,
        subject: impl Into<Arc<str>>,
        (issued_at_ms, expires_at_ms): (TimeMs, TimeMs),
        permissions: Arc<Permissions>,
    ) -> Self {
        Self {
            tenant,
            subject: subject.into(),
            actor: None,
            actor_token: None,
            may_act: None,
            session: None,
            token_id: None,
            roles: Arc::default(),
            idp: None,
            issued_at_ms,
            expires_at_ms,
            loopback_only: false,
            permissions,
        }
    }

    /// Whether the principal may do this to that. Allocates nothing; does not look at the time.
    #[must_use]
    pub fn allows(&self, action: Action, resource: &Resource<'_>) -> bool {
        self.permissions.allows(action, resource)
    }

    /// Whether the token behind this principal has run out at `now`, without leeway.
    #[must_use]
    pub fn is_expired(&self, now: TimeMs) -> bool {
        now.0 >= self.expires_at_ms.0
    }
}
