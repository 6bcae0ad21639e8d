//! Templates of namespaces, and the rooms that are opened by them.

use felix_meta::http::ResourcesAnswer;
use felix_meta::{TemplateRecord, TemplateSpec};
use felix_model::{Namespace, TenantId};
use reqwest::{Method, StatusCode};

use crate::api::{Api, Made, below};
use crate::call::{CallFailed, Request};

impl Api {
    /// All templates of a namespace.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn templates(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
    ) -> Result<Vec<TemplateRecord>, CallFailed> {
        self.all(&below(tenant, namespace, &["templates"])).await
    }

    /// One template.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn template(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        template: &str,
    ) -> Result<TemplateRecord, CallFailed> {
        self.get(&below(tenant, namespace, &["templates", template]))
            .await
    }

    /// Sets a template, in place of the one of the same name.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn set_template(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        template: &str,
        spec: &TemplateSpec,
    ) -> Result<TemplateRecord, CallFailed> {
        let path = below(tenant, namespace, &["templates", template]);
        self.read(Request::new(Method::PUT, path).body(spec)).await
    }

    /// Removes a template; its rooms stay.
    ///
    /// # Errors
    /// [`CallFailed`].
    pub async fn remove_template(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        template: &str,
    ) -> Result<(), CallFailed> {
        self.delete(&below(tenant, namespace, &["templates", template]))
            .await
    }

    /// Opens the room of a scope: what is missing of it is made, all at once, and can be used when this returns. Opening
    /// it again makes nothing. The token must be good for the control plane and hold `template.use` over the namespace
    /// and some right of use on each of the room's streams and caches.
    ///
    /// # Errors
    /// [`CallFailed`]; `409` when there are as many rooms as allowed, `404` when there is no such template.
    pub async fn open_room(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        template: &str,
        scope: &str,
    ) -> Result<Made<ResourcesAnswer>, CallFailed> {
        let path = below(tenant, namespace, &["templates", template, "rooms", scope]);
        let (status, item) = self.caller.call(Request::new(Method::POST, path)).await?;
        Ok(Made {
            created: status == StatusCode::CREATED,
            item,
        })
    }
}
