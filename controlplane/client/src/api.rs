//! The routes of the API, one method each.

use felix_meta::http::{
    CatalogueChanges, CatalogueSnapshot, ExchangeSpec, Page, ResourcesAnswer, ResourcesSpec,
    SigningKeys, TokenAnswer,
};
use felix_meta::{
    CachePatch, CacheRecord, CacheSpec, Grouping, NamespaceRecord, NamespaceSpec, Policy, Revision,
    StreamPatch, StreamRecord, StreamSpec, TenantRecord,
};
use felix_model::{CacheName, Namespace, StreamName, TenantId};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::{BadEndpoint, CallFailed, Caller, Request};
use crate::held::Held;
use crate::limits::{PAGE_ITEMS, PAGES_MAX, POLL_TIMEOUT, POLL_WAIT, SNAPSHOT_BYTES_MAX};
use crate::token::TokenSource;
use crate::trust::Trust;

/// Calls to one control plane with one token. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Api {
    pub(crate) caller: Caller,
}

/// What a create came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made<T> {
    /// `false` when it was there already, exactly as asked.
    pub created: bool,
    /// The thing as it is now.
    pub item: T,
}

impl Api {
    /// Prepares calls to an `http` address; nothing is sent yet.
    ///
    /// # Errors
    /// [`BadEndpoint`] when the address cannot be used.
    pub fn new(url: &str, token: TokenSource) -> Result<Self, BadEndpoint> {
        Self::with_trust(url, token, &Trust::default())
    }

    /// Prepares calls to an address that may be `https`, trusting the certificates in `roots` (PEM) and no others.
    ///
    /// # Errors
    /// [`BadEndpoint`] when the address or the roots cannot be used.
    pub fn trusting(url: &str, token: TokenSource, roots: &[u8]) -> Result<Self, BadEndpoint> {
        Self::with_trust(url, token, &Trust::roots(Some(roots)))
    }

    /// Prepares calls to an address that may be `https`, trusting whom `trust` says and presenting what it says.
    ///
    /// # Errors
    /// [`BadEndpoint`] when the address, the roots or the certificate cannot be used.
    pub fn with_trust(url: &str, token: TokenSource, trust: &Trust) -> Result<Self, BadEndpoint> {
        Caller::new(url, token, trust).map(|caller| Self { caller })
    }

    /// The same calls in the name of somebody else, over the same connections.
    #[must_use]
    pub fn with_token(&self, token: TokenSource) -> Self {
        Self {
            caller: self.caller.with_token(token),
        }
    }

    /// The address that calls go to.
    #[must_use]
    pub fn url(&self) -> &str {
        self.caller.url()
    }

    /// The token that is held for calls, if it is one that is replaced while they are made.
    pub(crate) const fn held(&self) -> Option<&Held> {
        match self.caller.token() {
            TokenSource::Held(held) => Some(held),
            TokenSource::None | TokenSource::Fixed(_) | TokenSource::File(_) => None,
        }
    }

    /// Whether the control plane is ready to serve.
    ///
    /// # Errors
    /// [`CallFailed`] when it is not, or cannot be asked.
    pub async fn ready(&self) -> Result<(), CallFailed> {
        self.caller
            .send_only(Request::get(vec!["v1", "system", "ready"]))
            .await
    }

    /// All tenants.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn tenants(&self) -> Result<Vec<TenantRecord>, CallFailed> {
        self.all(&["v1", "tenants"]).await
    }

    /// Makes a tenant, without keys. An existing one is a conflict.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn create_tenant(
        &self,
        tenant: &TenantRecord,
    ) -> Result<Made<TenantRecord>, CallFailed> {
        self.make(&["v1", "tenants"], tenant).await
    }

    /// Deletes a tenant and everything it owns.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn delete_tenant(&self, tenant: &TenantId) -> Result<(), CallFailed> {
        self.delete(&["v1", "tenants", tenant.as_ref()]).await
    }

    /// All namespaces of a tenant.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn namespaces(&self, tenant: &TenantId) -> Result<Vec<NamespaceRecord>, CallFailed> {
        self.all(&["v1", "tenants", tenant.as_ref(), "namespaces"])
            .await
    }

    /// Makes a namespace.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn create_namespace(
        &self,
        tenant: &TenantId,
        spec: &NamespaceSpec,
    ) -> Result<Made<NamespaceRecord>, CallFailed> {
        self.make(&["v1", "tenants", tenant.as_ref(), "namespaces"], spec)
            .await
    }

    /// Deletes a namespace and everything in it.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn delete_namespace(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
    ) -> Result<(), CallFailed> {
        self.delete(&[
            "v1",
            "tenants",
            tenant.as_ref(),
            "namespaces",
            namespace.as_ref(),
        ])
        .await
    }

    /// All streams of a namespace.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn streams(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
    ) -> Result<Vec<StreamRecord>, CallFailed> {
        self.all(&below(tenant, namespace, &["streams"])).await
    }

    /// One stream.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn stream(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        stream: &StreamName,
    ) -> Result<StreamRecord, CallFailed> {
        self.get(&below(tenant, namespace, &["streams", stream.as_ref()]))
            .await
    }

    /// Makes a stream. It is usable when this returns.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn create_stream(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        spec: &StreamSpec,
    ) -> Result<Made<StreamRecord>, CallFailed> {
        self.make(&below(tenant, namespace, &["streams"]), spec)
            .await
    }

    /// Changes a stream.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn update_stream(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        stream: &StreamName,
        patch: &StreamPatch,
    ) -> Result<StreamRecord, CallFailed> {
        self.patch(
            &below(tenant, namespace, &["streams", stream.as_ref()]),
            patch,
        )
        .await
    }

    /// Deletes a stream and its records.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn delete_stream(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        stream: &StreamName,
    ) -> Result<(), CallFailed> {
        self.delete(&below(tenant, namespace, &["streams", stream.as_ref()]))
            .await
    }

    /// All caches of a namespace.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn caches(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
    ) -> Result<Vec<CacheRecord>, CallFailed> {
        self.all(&below(tenant, namespace, &["caches"])).await
    }

    /// One cache.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn cache(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        cache: &CacheName,
    ) -> Result<CacheRecord, CallFailed> {
        self.get(&below(tenant, namespace, &["caches", cache.as_ref()]))
            .await
    }

    /// Makes a cache.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn create_cache(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        spec: &CacheSpec,
    ) -> Result<Made<CacheRecord>, CallFailed> {
        self.make(&below(tenant, namespace, &["caches"]), spec)
            .await
    }

    /// Changes a cache.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn update_cache(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        cache: &CacheName,
        patch: &CachePatch,
    ) -> Result<CacheRecord, CallFailed> {
        self.patch(
            &below(tenant, namespace, &["caches", cache.as_ref()]),
            patch,
        )
        .await
    }

    /// Deletes a cache and its entries.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn delete_cache(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        cache: &CacheName,
    ) -> Result<(), CallFailed> {
        self.delete(&below(tenant, namespace, &["caches", cache.as_ref()]))
            .await
    }

    /// Makes streams and caches, all of them or none.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn create_resources(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        spec: &ResourcesSpec,
    ) -> Result<ResourcesAnswer, CallFailed> {
        let path = below(tenant, namespace, &["resources"]);
        self.make(&path, spec).await.map(|made| made.item)
    }

    /// The keys of a tenant, by id.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn signing_keys(&self, tenant: &TenantId) -> Result<SigningKeys, CallFailed> {
        self.get(&["v1", "tenants", tenant.as_ref(), "signing-keys"])
            .await
    }

    /// Makes a key that verifies and does not sign yet.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn stage_signing_key(&self, tenant: &TenantId) -> Result<SigningKeys, CallFailed> {
        let path = vec!["v1", "tenants", tenant.as_ref(), "signing-keys"];
        self.read(Request::new(Method::POST, path)).await
    }

    /// Lets a staged key sign.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn activate_signing_key(
        &self,
        tenant: &TenantId,
        kid: &str,
    ) -> Result<SigningKeys, CallFailed> {
        let path = vec![
            "v1",
            "tenants",
            tenant.as_ref(),
            "signing-keys",
            kid,
            "activate",
        ];
        self.read(Request::new(Method::POST, path)).await
    }

    /// Lets a key verify no more.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn retire_signing_key(
        &self,
        tenant: &TenantId,
        kid: &str,
    ) -> Result<SigningKeys, CallFailed> {
        let path = vec!["v1", "tenants", tenant.as_ref(), "signing-keys", kid];
        self.read(Request::new(Method::DELETE, path)).await
    }

    /// Exchanges the credential these calls are made with, a provider's token or a service account's key, for a Felix
    /// token.
    ///
    /// # Errors
    /// [`CallFailed`]; the refusal does not say whether the tenant exists.
    pub async fn exchange(
        &self,
        tenant: &TenantId,
        spec: &ExchangeSpec,
    ) -> Result<TokenAnswer, CallFailed> {
        let path = vec!["v1", "tenants", tenant.as_ref(), "token", "exchange"];
        self.read(Request::new(Method::POST, path).body(spec)).await
    }

    /// The rules that the caller may see.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn policies(&self, tenant: &TenantId) -> Result<Vec<Policy>, CallFailed> {
        self.all(&["v1", "tenants", tenant.as_ref(), "rbac", "policies"])
            .await
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn add_policy(&self, tenant: &TenantId, policy: &Policy) -> Result<(), CallFailed> {
        self.rule(Method::POST, tenant, "policies", policy).await
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn remove_policy(
        &self,
        tenant: &TenantId,
        policy: &Policy,
    ) -> Result<(), CallFailed> {
        self.rule(Method::DELETE, tenant, "policies", policy).await
    }

    /// The gifts of roles that the caller may see.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn groupings(&self, tenant: &TenantId) -> Result<Vec<Grouping>, CallFailed> {
        self.all(&["v1", "tenants", tenant.as_ref(), "rbac", "groupings"])
            .await
    }

    /// Gives a role.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn add_grouping(
        &self,
        tenant: &TenantId,
        grouping: &Grouping,
    ) -> Result<(), CallFailed> {
        self.rule(Method::POST, tenant, "groupings", grouping).await
    }

    /// Takes a role away.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn remove_grouping(
        &self,
        tenant: &TenantId,
        grouping: &Grouping,
    ) -> Result<(), CallFailed> {
        self.rule(Method::DELETE, tenant, "groupings", grouping)
            .await
    }

    /// The whole catalogue, with everything that was acknowledged to anybody before this call.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn catalogue(&self) -> Result<CatalogueSnapshot, CallFailed> {
        let request = snapshot_request().query("consistency", &NEWEST);
        self.read(request).await
    }

    /// The whole catalogue as the process that answers knows it, which may be a moment behind.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn catalogue_as_known(&self) -> Result<CatalogueSnapshot, CallFailed> {
        self.read(snapshot_request()).await
    }

    /// What happened after a revision and was acknowledged to anybody before this call.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn changes_since(&self, since: Revision) -> Result<serde_json::Value, CallFailed> {
        let path = vec!["v1", "catalogue", "changes"];
        let request = Request::get(path).query("since", &since);
        self.read(request.query("consistency", &NEWEST)).await
    }

    /// What happened after a revision, waiting for something to happen.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn await_changes(&self, since: Revision) -> Result<serde_json::Value, CallFailed> {
        let path = vec!["v1", "catalogue", "changes"];
        let mut request = Request::get(path)
            .query("since", &since)
            .query("wait_ms", &POLL_WAIT.as_millis());
        request.timeout = POLL_TIMEOUT;
        self.read(request).await
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, CallFailed> {
        self.read(Request::get(path.to_vec())).await
    }

    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        request: Request<'_>,
    ) -> Result<T, CallFailed> {
        self.caller.call(request).await.map(|(_, body)| body)
    }

    pub(crate) async fn all<T: DeserializeOwned>(
        &self,
        path: &[&str],
    ) -> Result<Vec<T>, CallFailed> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let mut request = Request::get(path.to_vec()).query("limit", &PAGE_ITEMS);
            if let Some(cursor) = &cursor {
                request = request.query("cursor", cursor);
            }
            let page: Page<T> = self.read(request).await?;
            items.extend(page.items);
            match page.next_cursor {
                // A cursor that stands still would be asked for without end.
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => return Ok(items),
            }
        }
        Err(CallFailed::Malformed {
            url: self.caller.url().to_owned(),
            detail: format!("a listing goes on after {PAGES_MAX} pages"),
        })
    }

    async fn make<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<Made<T>, CallFailed> {
        let request = Request::new(Method::POST, path.to_vec()).body(body);
        let (status, item) = self.caller.call(request).await?;
        Ok(Made {
            created: status == StatusCode::CREATED,
            item,
        })
    }

    async fn patch<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, CallFailed> {
        self.read(Request::new(Method::PATCH, path.to_vec()).body(body))
            .await
    }

    pub(crate) async fn delete(&self, path: &[&str]) -> Result<(), CallFailed> {
        self.caller
            .send_only(Request::new(Method::DELETE, path.to_vec()))
            .await
    }

    async fn rule(
        &self,
        method: Method,
        tenant: &TenantId,
        kind: &str,
        body: &impl Serialize,
    ) -> Result<(), CallFailed> {
        let path = vec!["v1", "tenants", tenant.as_ref(), "rbac", kind];
        self.caller
            .send_only(Request::new(method, path).body(body))
            .await
    }
}

/// The path of something in a namespace.
pub(crate) fn below<'a>(
    tenant: &'a TenantId,
    namespace: &'a Namespace,
    rest: &[&'a str],
) -> Vec<&'a str> {
    let mut path = vec![
        "v1",
        "tenants",
        tenant.as_ref(),
        "namespaces",
        namespace.as_ref(),
    ];
    path.extend(rest);
    path
}

/// Asks for a read of the newest state there is, and not of what the answering process knows.
const NEWEST: &str = "linearizable";

/// Reads the answer of a changes call, looking at the form of each entry before its content.
pub(crate) fn read_changes(
    body: &serde_json::Value,
) -> Result<CatalogueChanges, felix_meta::EntryRefused> {
    let malformed = |what: &str| felix_meta::EntryRefused::Malformed(what.to_owned());
    let entries = body
        .get("entries")
        .and_then(serde_json::Value::as_array)
        .ok_or_else(|| malformed("no list of entries"))?
        .iter()
        .map(felix_meta::Entry::from_json)
        .collect::<Result<_, _>>()?;
    let revision = body
        .get("revision")
        .and_then(serde_json::Value::as_u64)
        .ok_or_else(|| malformed("no revision"))?;
    let resync = body
        .get("resync")
        .and_then(serde_json::Value::as_bool)
        .unwrap_or(false);
    Ok(CatalogueChanges {
        entries,
        revision: Revision(revision),
        resync,
    })
}

fn snapshot_request<'a>() -> Request<'a> {
    let mut request = Request::get(vec!["v1", "catalogue", "snapshot"]);
    request.answer_bytes_max = SNAPSHOT_BYTES_MAX;
    request
}
