//! States and commands that the tests begin from.

use felix_meta::{
    Catalogue, ClaimMappings, Command, Decision, Entry, Event, Grouping, IssuerRecord, Policy,
    PrincipalRecord, Refused, ServiceKey, SessionAsk, SessionRecord, TenantRecord, VerifyingKey,
};
use felix_model::TimeMs;

pub(crate) const ISSUER: &str = "https://login.example";

/// A name of whatever kind is wanted.
pub(crate) fn n<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

/// A tenant `t` with a provider, a service account `bot` and its key `k1`.
pub(crate) fn state() -> Catalogue {
    let mut state = Catalogue::default();
    for command in beginning("t") {
        run(&mut state, &command);
    }
    state
}

pub(crate) fn beginning(tenant: &str) -> Vec<Command> {
    vec![
        Command::InitializeTenant {
            tenant: TenantRecord {
                tenant_id: n(tenant),
                display_name: String::new(),
            },
            key: verifying("k"),
            policies: vec![],
            groupings: vec![],
            issuers: vec![],
        },
        Command::SetIssuer(n(tenant), issuer(ISSUER)),
        account(tenant, "bot"),
        Command::AddServiceKey {
            tenant_id: n(tenant),
            name: "bot".into(),
            key: service_key("k1"),
        },
    ]
}

pub(crate) fn run(state: &mut Catalogue, command: &Command) -> Event {
    let entry =
        entry(state, command, 1).unwrap_or_else(|refused| panic!("{command:?}: {refused:?}"));
    let entry = entry.unwrap_or_else(|| panic!("{command:?} changed nothing"));
    entry.event
}

/// Decides and applies, and answers with what was written.
pub(crate) fn entry(
    state: &mut Catalogue,
    command: &Command,
    at: u64,
) -> Result<Option<Entry>, Refused> {
    let Decision::Change(event) = state.decide(command)? else {
        return Ok(None);
    };
    let entry = state.entry(TimeMs(at), event, None);
    state.apply_entry(&entry);
    Ok(Some(entry))
}

pub(crate) fn issuer(issuer: &str) -> IssuerRecord {
    IssuerRecord {
        issuer: issuer.into(),
        audiences: vec!["app".into()],
        discovery_url: None,
        jwks_url: None,
        claim_mappings: ClaimMappings::default(),
    }
}

pub(crate) fn account(tenant: &str, name: &str) -> Command {
    Command::CreateServiceAccount {
        tenant_id: n(tenant),
        name: name.into(),
        display_name: String::new(),
    }
}

pub(crate) fn service_key(id: &str) -> ServiceKey {
    ServiceKey {
        key_id: id.into(),
        secret_sha256: digest(1),
        created_at_ms: TimeMs(1),
        expires_at_ms: None,
    }
}

pub(crate) fn session(id: &str, principal: &str, at: u64) -> SessionRecord {
    let account = principal.strip_prefix("sa:").map(str::to_owned);
    SessionRecord {
        session_id: id.into(),
        principal_id: principal.into(),
        issuer: account.is_none().then(|| ISSUER.to_owned()),
        service_account: account,
        groups: vec![format!("group:{ISSUER}#staff")],
        audience: "felix-broker".into(),
        ask: SessionAsk::default(),
        may_act: None,
        created_at_ms: TimeMs(at),
        refreshed_at_ms: TimeMs(at),
        expires_at_ms: TimeMs(at + 1000),
        generation: 0,
        secret_sha256: digest(2),
        from: "192.0.2.1".into(),
    }
}

pub(crate) fn open(tenant: &str, id: &str, principal: &str, at: u64) -> Command {
    Command::OpenSession {
        tenant_id: n(tenant),
        session: session(id, principal, at),
        principal: Some(PrincipalRecord {
            principal_id: principal.into(),
            issuer: ISSUER.into(),
            subject: principal.into(),
            first_seen_ms: TimeMs(at),
        }),
    }
}

pub(crate) fn refresh(tenant: &str, id: &str, expected_generation: u64, at: u64) -> Command {
    Command::RefreshSession {
        tenant_id: n(tenant),
        session_id: id.into(),
        expected_generation,
        secret_sha256: digest(3),
        ends_at_ms: None,
        now_ms: TimeMs(at),
    }
}

pub(crate) fn digest(byte: u8) -> String {
    format!("{byte:02x}").repeat(32)
}

pub(crate) fn verifying(kid: &str) -> VerifyingKey {
    VerifyingKey {
        kid: kid.into(),
        x: "x".into(),
    }
}

pub(crate) fn policy(subject: &str) -> Policy {
    Policy {
        subject: subject.into(),
        object: "stream:t/ns/s".into(),
        action: "stream.publish".into(),
    }
}

pub(crate) fn grouping(user: &str, role: &str) -> Grouping {
    Grouping {
        user: user.into(),
        role: role.into(),
    }
}

/// The revocations of tenant `t`, each as its kind and id.
pub(crate) fn revoked(state: &Catalogue) -> Vec<(String, String)> {
    let entry = state.tenant("t").unwrap();
    entry
        .revocations
        .iter()
        .map(|one| (one.kind.name().to_owned(), one.id.clone()))
        .collect()
}
