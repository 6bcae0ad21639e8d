//! What the people of the development provider may do.
//!
//! Everybody may use and manage the one namespace and look at the node; who is in the group of administrators may do
//! what the developer's own token may. The provider's address is part of its name, so a node that moved its ports trusts
//! the new one and forgets the old one.

use felix_auth::TENANT_ADMIN_ROLE;
use felix_controlplane::{ControlPlane, WriteFailed};
use felix_meta::record::{Grouping, Policy};
use felix_meta::{ClaimMappings, Command, IssuerRecord};
use felix_model::{TenantId, TimeMs};

use super::provider::{ADMINS, CLIENT_ID, PEOPLE};
use super::seed::{NAMESPACE, OPERATOR_ROLE, TENANT};

/// The role of everybody.
const PEOPLE_ROLE: &str = "role:dev-people";

/// Lets the people of the provider in.
///
/// # Errors
/// When the control plane cannot write.
pub(super) async fn give(
    controlplane: &ControlPlane,
    tenant: &TenantId,
    issuer: &str,
) -> Result<(), WriteFailed> {
    let authority = controlplane.authority();
    for old in outdated(controlplane, issuer) {
        forget(controlplane, tenant, &old).await?;
    }
    let record = IssuerRecord {
        issuer: issuer.to_owned(),
        audiences: vec![CLIENT_ID.to_owned()],
        discovery_url: None,
        jwks_url: None,
        claim_mappings: ClaimMappings::default(),
    };
    authority
        .submit(Command::SetIssuer(tenant.clone(), record))
        .await?;
    let policy = |object: String, action: &str| Policy {
        subject: PEOPLE_ROLE.to_owned(),
        object,
        action: action.to_owned(),
    };
    for policy in [
        policy(format!("namespace:{TENANT}/{NAMESPACE}"), "ns.manage"),
        policy("cluster:*".to_owned(), "node.view"),
    ] {
        authority
            .submit(Command::AddPolicy(tenant.clone(), policy))
            .await?;
    }
    for grouping in groupings(issuer) {
        authority
            .submit(Command::AddGrouping(tenant.clone(), grouping))
            .await?;
    }
    Ok(())
}

fn groupings(issuer: &str) -> [Grouping; 3] {
    let given = |group: &str, role: &str| Grouping {
        user: format!("group:{issuer}#{group}"),
        role: role.to_owned(),
    };
    [
        given(PEOPLE, PEOPLE_ROLE),
        given(ADMINS, TENANT_ADMIN_ROLE),
        given(ADMINS, OPERATOR_ROLE),
    ]
}

/// Providers of ours at other ports of this machine.
fn outdated(controlplane: &ControlPlane, issuer: &str) -> Vec<String> {
    let catalogue = controlplane.authority().catalogue();
    let entry = catalogue.tenant(TENANT);
    let issuers = entry.into_iter().flat_map(|entry| entry.issuers.values());
    issuers
        .filter(|one| one.issuer != issuer && one.issuer.starts_with("http://127.0.0.1:"))
        .filter(|one| one.audiences == [CLIENT_ID])
        .map(|one| one.issuer.clone())
        .collect()
}

async fn forget(
    controlplane: &ControlPlane,
    tenant: &TenantId,
    issuer: &str,
) -> Result<(), WriteFailed> {
    let authority = controlplane.authority();
    let now_ms = now();
    for grouping in groupings(issuer) {
        let held = authority.catalogue();
        let held = held.tenant(tenant.as_ref());
        if held.is_some_and(|entry| entry.groupings.contains(&grouping)) {
            authority
                .submit(Command::RemoveGrouping(tenant.clone(), grouping, now_ms))
                .await?;
        }
    }
    let command = Command::RemoveIssuer {
        tenant_id: tenant.clone(),
        issuer: issuer.to_owned(),
        now_ms,
    };
    authority.submit(command).await.map(|_| ())
}

fn now() -> TimeMs {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    TimeMs(since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }))
}
