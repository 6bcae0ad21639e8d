//! Templates of a namespace: what a room of an application consists of, said once.
//!
//! A template has a prefix and names the streams and caches that each of its rooms has. The room of a scope has them
//! under the names `{prefix}{scope}-{item}`: with the prefix `board-` and a stream `edits`, the room `plans` has the
//! stream `board-plans-edits`. Items hold no `-`, so a name belongs to one room only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use felix_model::{BadName, Namespace, TenantId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::catalogue::NamespaceEntry;
use crate::limits::ROOMS_PER_TEMPLATE_DEFAULT;
use crate::record::{CacheSpec, StreamSpec};

/// A template of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TemplateRecord {
    /// The tenant it belongs to.
    #[schema(value_type = String)]
    pub tenant_id: TenantId,
    /// The namespace its rooms are in.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// Its name.
    pub template: String,
    /// What the names of its rooms' streams and caches begin with.
    pub prefix: String,
    /// The streams of a room; `stream` is the end of the name.
    pub streams: Vec<StreamSpec>,
    /// The caches of a room; `cache` is the end of the name.
    pub caches: Vec<CacheSpec>,
    /// How many rooms there may be at a time.
    pub rooms_max: u32,
}

/// The body that sets a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateSpec {
    /// What the names of its rooms' streams and caches begin with.
    pub prefix: String,
    /// The streams of a room; `stream` is the end of the name and holds no `-`.
    #[serde(default)]
    pub streams: Vec<StreamSpec>,
    /// The caches of a room; `cache` is the end of the name and holds no `-`.
    #[serde(default)]
    pub caches: Vec<CacheSpec>,
    /// How many rooms there may be at a time; default 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rooms_max: Option<u32>,
}

impl TemplateSpec {
    /// The template that the body says, in its place.
    #[must_use]
    pub fn named(
        self,
        tenant_id: TenantId,
        namespace: Namespace,
        template: String,
    ) -> TemplateRecord {
        TemplateRecord {
            tenant_id,
            namespace,
            template,
            prefix: self.prefix,
            streams: self.streams,
            caches: self.caches,
            rooms_max: self.rooms_max.unwrap_or(ROOMS_PER_TEMPLATE_DEFAULT),
        }
    }
}

impl TemplateRecord {
    /// The streams and caches of one room, under their whole names.
    ///
    /// # Errors
    /// When the scope makes a name that none may have.
    pub fn room(&self, scope: &str) -> Result<(Vec<StreamSpec>, Vec<CacheSpec>), BadName> {
        let mut streams = self.streams.clone();
        for spec in &mut streams {
            spec.stream = self.name(scope, spec.stream.as_str()).parse()?;
        }
        let mut caches = self.caches.clone();
        for spec in &mut caches {
            spec.cache = self.name(scope, spec.cache.as_str()).parse()?;
        }
        Ok((streams, caches))
    }

    /// The scope of the room that a stream or cache belongs to by its name; `None` when it is of no room of this
    /// template.
    #[must_use]
    pub fn scope_of<'a>(&self, name: &'a str) -> Option<&'a str> {
        let (scope, _) = name.strip_prefix(self.prefix.as_str())?.rsplit_once('-')?;
        (!scope.is_empty()).then_some(scope)
    }

    fn name(&self, scope: &str, item: &str) -> String {
        format!("{}{scope}-{item}", self.prefix)
    }
}

/// A template and the rooms that were opened by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateEntry {
    /// What a room consists of.
    pub record: TemplateRecord,
    /// The scopes of its rooms, as long as something of a room is left.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub rooms: BTreeSet<String>,
}

/// The templates of a namespace, by name. They change far more seldom than what is beside them, so they are shared.
pub type Templates = BTreeMap<String, Arc<TemplateEntry>>;

impl NamespaceEntry {
    /// Forgets the room that a stream or cache belonged to when it was the last of it, so that the room's place is free.
    pub(crate) fn forget_if_empty(&mut self, gone: &str) {
        let of_room = self.templates.iter().find_map(|(name, entry)| {
            let scope = entry.record.scope_of(gone)?;
            entry
                .rooms
                .contains(scope)
                .then(|| (name.clone(), scope.to_owned()))
        });
        let Some((name, scope)) = of_room else { return };
        let Some(entry) = self.templates.get(&name) else {
            return;
        };
        let of_it = |name: &str| entry.record.scope_of(name) == Some(&scope);
        let left = self.streams.keys().any(|one| of_it(one.as_str()))
            || self.caches.keys().any(|one| of_it(one.as_str()));
        if !left && let Some(entry) = self.templates.get_mut(&name) {
            Arc::make_mut(entry).rooms.remove(&scope);
        }
    }
}
