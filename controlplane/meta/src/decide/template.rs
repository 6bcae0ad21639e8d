//! Templates and the rooms that are opened by them.

use felix_model::{Incarnation, Namespace, TenantId};

use super::{Conflict, Decision, Place, Refused, room};
use crate::catalogue::{Catalogue, TenantEntry};
use crate::check::{self, Invalid};
use crate::event::Event;
use crate::limits::{ROOMS_PER_TENANT_MAX, TEMPLATES_PER_NAMESPACE_MAX};
use crate::lookup::{Kind, Missing};
use crate::template::{TemplateEntry, TemplateRecord};

impl Catalogue {
    pub(super) fn set_template(&self, template: &TemplateRecord) -> Result<Decision, Refused> {
        check::template(template)?;
        let space =
            self.find_namespace(template.tenant_id.as_ref(), template.namespace.as_ref())?;
        if let Some(held) = space.templates.get(&template.template) {
            if held.record == *template {
                return Ok(Decision::Unchanged);
            }
            if held.record.prefix != template.prefix && !held.rooms.is_empty() {
                return Err(Conflict::RoomsExist {
                    template: template.template.clone(),
                    rooms: held.rooms.len(),
                }
                .into());
            }
        } else {
            room(
                "templates",
                space.templates.len(),
                TEMPLATES_PER_NAMESPACE_MAX,
            )?;
        }
        let meets = |other: &TemplateRecord| {
            other.template != template.template
                && (other.prefix.starts_with(&template.prefix)
                    || template.prefix.starts_with(&other.prefix))
        };
        // With one prefix inside another a name could belong to two rooms.
        if let Some(other) = space.templates.values().find(|one| meets(&one.record)) {
            return Err(Conflict::PrefixTaken {
                prefix: template.prefix.clone(),
                template: other.record.template.clone(),
            }
            .into());
        }
        let template = template.clone();
        Ok(Decision::Change(Event::TemplateSet { template }))
    }

    pub(super) fn remove_template(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        template: &str,
    ) -> Result<Decision, Refused> {
        self.find_template(tenant.as_ref(), namespace.as_ref(), template)?;
        Ok(Decision::Change(Event::TemplateRemoved {
            tenant_id: tenant.clone(),
            namespace: namespace.clone(),
            template: template.to_owned(),
        }))
    }

    pub(super) fn open_room(
        &self,
        tenant: &TenantId,
        namespace: &Namespace,
        template: &str,
        scope: &str,
    ) -> Result<Decision, Refused> {
        check::room_scope(scope)?;
        let entry = self.find_tenant(tenant.as_ref())?;
        let space = self.find_namespace(tenant.as_ref(), namespace.as_ref())?;
        let held = self.find_template(tenant.as_ref(), namespace.as_ref(), template)?;
        let (streams, caches) = held.record.room(scope).map_err(Invalid::Name)?;
        let place = Place {
            tenant,
            namespace,
            incarnation: Incarnation(self.revision().next().0),
        };
        // What is there already stays as it is: the room is somebody's by now, and this only completes it.
        let (streams, _) = place.new_streams(space, &streams);
        let (caches, _) = place.new_caches(space, &caches);
        if streams.is_empty() && caches.is_empty() {
            return Ok(Decision::Unchanged);
        }
        if !held.rooms.contains(scope) {
            room(
                "rooms of this template",
                held.rooms.len(),
                held.record.rooms_max as usize,
            )?;
            room("rooms", rooms_of(entry), ROOMS_PER_TENANT_MAX)?;
        }
        Ok(Decision::Change(Event::RoomOpened {
            tenant_id: tenant.clone(),
            namespace: namespace.clone(),
            template: template.to_owned(),
            scope: scope.to_owned(),
            streams,
            caches,
        }))
    }

    /// A template by its three names.
    ///
    /// # Errors
    /// [`Missing`] naming the tenant, namespace or template that is not there.
    pub fn find_template(
        &self,
        tenant: &str,
        namespace: &str,
        template: &str,
    ) -> Result<&TemplateEntry, Missing> {
        let held = self
            .find_namespace(tenant, namespace)?
            .templates
            .get(template);
        let held = held.ok_or_else(|| Missing::new(Kind::Template, template))?;
        Ok(held)
    }
}

fn rooms_of(tenant: &TenantEntry) -> usize {
    let templates = tenant
        .namespaces
        .values()
        .flat_map(|space| space.templates.values());
    templates.map(|one| one.rooms.len()).sum()
}
