//! What a revocation can be about: said by the control plane, kept in its catalogue, and looked at by whoever verifies
//! tokens.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a revocation is about, and what its id means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevokedKind {
    /// Tokens of a principal, and those he acts with: their `sub` or `act.sub` is the id.
    Principal,
    /// Tokens of a session, and those its tokens were acted with: their `sid` or `act.sid` is the id.
    Session,
    /// One token, and those it was acted with: their `jti` or `act.jti` is the id.
    Token,
    /// Tokens that hold something by a role, or by rules of a group: the id is among their `roles` or `act.roles`.
    Role,
    /// Tokens of people a provider vouched for. The id is the issuer as it is written in its record; tokens carry the
    /// start of its hash as `idp` or `act.idp`.
    Issuer,
    /// Every token of the tenant, whatever the id.
    Tenant,
}

impl RevokedKind {
    /// Every kind, in the order in which the catalogue keeps them.
    pub const ALL: [Self; 6] = [
        Self::Principal,
        Self::Session,
        Self::Token,
        Self::Role,
        Self::Issuer,
        Self::Tenant,
    ];

    /// The spelling in records, answers and commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Session => "session",
            Self::Token => "token",
            Self::Role => "role",
            Self::Issuer => "issuer",
            Self::Tenant => "tenant",
        }
    }
}

impl fmt::Display for RevokedKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A kind of revocation that this build does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown kind of revocation `{0}`; there are principal, session, token, role, issuer and tenant"
)]
pub struct UnknownRevokedKind(String);

impl FromStr for RevokedKind {
    type Err = UnknownRevokedKind;

    fn from_str(text: &str) -> Result<Self, UnknownRevokedKind> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| UnknownRevokedKind(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_back_from_its_own_name_and_is_written_by_it() {
        for kind in RevokedKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
        }
        let unknown = "planet".parse::<RevokedKind>().unwrap_err();
        assert!(unknown.to_string().contains("`planet`"), "{unknown}");
    }
}
