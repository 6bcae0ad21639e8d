//! Looking things up by name, and what to say when they are not there.

use std::fmt;
use std::sync::Arc;

use crate::catalogue::Catalogue;
use crate::limits::{CLOSE_MATCH_CANDIDATES_MAX, CLOSE_MATCHES_MAX};
use crate::record::{CacheRecord, StreamRecord};

/// A kind of thing in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A tenant.
    Tenant,
    /// A namespace.
    Namespace,
    /// A stream.
    Stream,
    /// A cache.
    Cache,
    /// A template.
    Template,
    /// A signing key.
    Key,
    /// A rule.
    Policy,
    /// A gift of a role.
    Grouping,
    /// An identity provider.
    Issuer,
    /// A service account.
    ServiceAccount,
    /// A key of a service account.
    ServiceKey,
    /// A session.
    Session,
    /// A quota.
    Quota,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Tenant => "tenant",
            Self::Namespace => "namespace",
            Self::Stream => "stream",
            Self::Cache => "cache",
            Self::Template => "template",
            Self::Key => "signing key",
            Self::Policy => "policy",
            Self::Grouping => "grouping",
            Self::Issuer => "issuer",
            Self::ServiceAccount => "service account",
            Self::ServiceKey => "service key",
            Self::Session => "session",
            Self::Quota => "quota for",
        })
    }
}

/// Something that does not exist: the outermost part that is missing, so a missing namespace is not reported as a
/// missing stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {kind} `{name}`")]
pub struct Missing {
    /// What kind of thing.
    pub kind: Kind,
    /// The name asked for.
    pub name: String,
}

impl Missing {
    pub(crate) fn new(kind: Kind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
        }
    }
}

impl Catalogue {
    /// A stream by its three names.
    ///
    /// # Errors
    /// [`Missing`] naming the tenant, namespace or stream that is not there.
    pub fn find_stream(
        &self,
        tenant: &str,
        namespace: &str,
        stream: &str,
    ) -> Result<&Arc<StreamRecord>, Missing> {
        self.find_namespace(tenant, namespace)?
            .streams
            .get(stream)
            .ok_or_else(|| Missing::new(Kind::Stream, stream))
    }

    /// A cache by its three names.
    ///
    /// # Errors
    /// [`Missing`] naming the tenant, namespace or cache that is not there.
    pub fn find_cache(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
    ) -> Result<&Arc<CacheRecord>, Missing> {
        self.find_namespace(tenant, namespace)?
            .caches
            .get(cache)
            .ok_or_else(|| Missing::new(Kind::Cache, cache))
    }

    /// Streams of the namespace whose names are close to a misspelt one, best first, at most three.
    ///
    /// Only names that `visible` accepts are offered: a suggestion must not tell what its reader may not see. A huge
    /// namespace is looked at only in part.
    pub fn close_streams(
        &self,
        tenant: &str,
        namespace: &str,
        asked: &str,
        visible: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let Ok(space) = self.find_namespace(tenant, namespace) else {
            return Vec::new();
        };
        close(asked, space.streams.keys().map(AsRef::as_ref), visible)
    }

    /// Caches of the namespace whose names are close to a misspelt one; as [`Catalogue::close_streams`].
    pub fn close_caches(
        &self,
        tenant: &str,
        namespace: &str,
        asked: &str,
        visible: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let Ok(space) = self.find_namespace(tenant, namespace) else {
            return Vec::new();
        };
        close(asked, space.caches.keys().map(AsRef::as_ref), visible)
    }

    /// Namespaces of the tenant whose names are close to a misspelt one; as [`Catalogue::close_streams`].
    pub fn close_namespaces(
        &self,
        tenant: &str,
        asked: &str,
        visible: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let Some(tenant) = self.tenant(tenant) else {
            return Vec::new();
        };
        close(asked, tenant.namespaces.keys().map(AsRef::as_ref), visible)
    }
}

/// The candidates nearest to what was asked, best first.
fn close<'a>(
    asked: &str,
    candidates: impl Iterator<Item = &'a str>,
    visible: impl Fn(&str) -> bool,
) -> Vec<String> {
    let allowed = (asked.len() / 3).clamp(1, 3);
    let mut near: Vec<(usize, &str)> = candidates
        .take(CLOSE_MATCH_CANDIDATES_MAX)
        // The distance is at least the difference in length, and costs far more to compute.
        .filter(|name| name.len().abs_diff(asked.len()) <= allowed)
        .map(|name| (distance(asked, name), name))
        .filter(|(distance, name)| *distance <= allowed && visible(name))
        .collect();
    near.sort_unstable();
    near.into_iter()
        .take(CLOSE_MATCHES_MAX)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// Edits from one name to the other, where a change of case costs nothing.
fn distance(a: &str, b: &str) -> usize {
    strsim::osa_distance(&a.to_ascii_lowercase(), &b.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_come_first() {
        let names = ["orders", "order", "borders", "invoices", "ORDRS"];
        let found = close("ordrs", names.into_iter(), |_| true);
        assert_eq!(found, ["ORDRS", "orders"]);
    }

    #[test]
    fn a_name_the_reader_may_not_see_is_not_offered() {
        assert!(close("ordrs", ["orders"].into_iter(), |_| false).is_empty());
    }

    #[test]
    fn short_names_are_close_only_by_one_edit() {
        assert_eq!(
            close("ab", ["abc", "xy", "abcd"].into_iter(), |_| true),
            ["abc"]
        );
    }
}
