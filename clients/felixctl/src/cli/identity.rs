//! Who somebody is and what he may: signing in, roles, identity providers, keys, service accounts,
//! sessions, the audit log and quotas.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use felix_model::RevokedKind;

use crate::sign_in::Upstream;

/// Sign in with an identity provider.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  felixctl login --issuer https://login.example.com/realms/work --client-id felixctl
  felixctl login --device
  felixctl login --context prod --controlplane-url https://felix.example.com:8443 --tenant acme \\
    --brokers felix.example.com:5000 --issuer https://login.example.com --client-id felixctl

How you signed in is remembered in the context, so the next time `felixctl login` is enough. The
tokens are kept beside the contexts in a file that only you may read, and renewed as needed.")]
pub struct Login {
    /// The identity provider, exactly as it calls itself [default: the one of the last time]
    #[arg(long, value_name = "URL")]
    pub issuer: Option<String>,
    /// Name of felixctl at the provider [default: the one of the last time]
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// File with the client's password, for providers that give one to desktop programs
    #[arg(long, value_name = "FILE")]
    pub client_secret_file: Option<PathBuf>,
    /// Scopes to ask for, separated by spaces [default: openid profile email]
    #[arg(long, value_name = "SCOPES")]
    pub scope: Option<String>,
    /// Ask for an access token for this audience, and exchange that
    #[arg(long, value_name = "AUDIENCE")]
    pub audience: Option<String>,
    /// Which token is exchanged [default: access-token with --audience, else id-token]
    #[arg(long, value_enum, value_name = "WHICH")]
    pub exchange: Option<Upstream>,
    /// Where the browser comes back to [default: http://127.0.0.1/callback on any free port]
    #[arg(long, value_name = "URL")]
    pub redirect: Option<String>,
    /// Show a code to type in the browser of any machine
    #[arg(long)]
    pub device: bool,
    /// Print the address instead of opening the browser
    #[arg(long)]
    pub no_browser: bool,
}

/// Commands on rules and roles.
#[derive(Debug, Subcommand)]
pub enum RbacCommand {
    /// Rules: which role may do what
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Who has which role
    #[command(subcommand)]
    Grouping(GroupingCommand),
}

/// A rule.
#[derive(Clone, Debug, Args)]
pub struct PolicyRule {
    /// The role, as in role:writers
    pub subject: String,
    /// What it is about, as in stream:dev/default/orders or stream:dev/default/room.*
    pub object: String,
    /// What it allows, as in stream.publish
    pub action: String,
}

/// Commands on rules.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// List the rules
    #[command(visible_alias = "list")]
    Ls {
        /// Only rules of this role
        #[arg(long, value_name = "ROLE")]
        subject: Option<String>,
    },
    /// Add a rule
    Add(PolicyRule),
    /// Remove a rule
    Rm {
        /// Which rule.
        #[command(flatten)]
        rule: PolicyRule,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// Who has a role.
#[derive(Clone, Debug, Args)]
pub struct GroupingRule {
    /// A principal, or a group of an identity provider as group:ISSUER#NAME
    pub user: String,
    /// The role, as in role:writers
    pub role: String,
}

/// Commands on who has which role.
#[derive(Debug, Subcommand)]
pub enum GroupingCommand {
    /// List who has which role
    #[command(visible_alias = "list")]
    Ls {
        /// Only roles of this user
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// Only users of this role
        #[arg(long, value_name = "ROLE")]
        role: Option<String>,
    },
    /// Give a role
    Add(GroupingRule),
    /// Take a role back
    Rm {
        /// Which role of whom.
        #[command(flatten)]
        rule: GroupingRule,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// Commands on identity providers.
#[derive(Debug, Subcommand)]
pub enum IdpCommand {
    /// List the identity providers
    #[command(visible_alias = "list")]
    Ls,
    /// Trust an identity provider, or change how it is trusted
    Add(IdpAdd),
    /// Stop trusting an identity provider and end the sessions that came from it
    Rm {
        /// The issuer
        issuer: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// Trust an identity provider.
#[derive(Clone, Debug, Args)]
pub struct IdpAdd {
    /// The issuer, exactly as it calls itself
    pub issuer: String,
    /// Accept tokens for this audience; may be given again
    #[arg(long = "audience", required = true, value_name = "AUDIENCE")]
    pub audiences: Vec<String>,
    /// Where it describes itself [default: ISSUER/.well-known/openid-configuration]
    #[arg(long, value_name = "URL")]
    pub discovery_url: Option<String>,
    /// Where its keys are [default: where it says]
    #[arg(long, value_name = "URL")]
    pub jwks_url: Option<String>,
    /// Claim that names the person
    #[arg(long, default_value = "sub", value_name = "CLAIM")]
    pub subject_claim: String,
    /// Claim that lists his groups
    #[arg(long, default_value = "groups", value_name = "CLAIM")]
    pub groups_claim: String,
}

/// Commands on signing keys.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List the keys that verify, and which one signs
    #[command(visible_alias = "list")]
    Ls,
    /// Make a key that verifies and does not sign yet
    Stage,
    /// Let a staged key sign
    Activate {
        /// The key
        kid: String,
    },
    /// Stop accepting a key; every token it signed is refused
    Retire {
        /// The key
        kid: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Stage a key, wait until every broker knows it, and let it sign
    #[command(after_help = "\
The old key goes on verifying, so that no token is refused; retire it once the last token it signed
has expired, 15 minutes later unless the control plane is set otherwise. With --emergency one new
key takes the place of all others at once: use it when a key was stolen. Sessions go on with new
tokens; tokens that nothing renews are worth nothing any more.")]
    Rotate {
        /// Retire the old keys at once, which refuses every token they signed
        #[arg(long)]
        emergency: bool,
        /// How long brokers get to learn of the new key before it signs
        #[arg(long, value_parser = crate::parse::duration, default_value = "10s", value_name = "TIME")]
        settle: Duration,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// Commands on service accounts.
#[derive(Debug, Subcommand)]
pub enum AccountCommand {
    /// List the service accounts
    #[command(visible_alias = "list")]
    Ls,
    /// Show one service account and its keys
    #[command(visible_alias = "describe")]
    Show {
        /// The service account
        name: String,
    },
    /// Create a service account with its first key
    Create(AccountCreate),
    /// Refuse a service account and end its sessions, and keep it
    Disable {
        /// The service account
        name: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Accept a disabled service account again
    Enable {
        /// The service account
        name: String,
    },
    /// Remove a service account and end its sessions
    Rm {
        /// The service account
        name: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Add and remove keys
    #[command(subcommand)]
    Key(ServiceKeyCommand),
}

/// Create a service account.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  felixctl service-account create billing --role role:writers --out billing.key
  felixctl pub orders hello --service-account-key-file billing.key

The key is shown once, here. With --out it is written to a file that only you may read, and not
shown.")]
pub struct AccountCreate {
    /// Name of the new service account
    pub name: String,
    /// Name shown to people [default: the account's name]
    #[arg(long, value_name = "TEXT")]
    pub display_name: Option<String>,
    /// Give it this role; may be given again
    #[arg(long = "role", value_name = "ROLE")]
    pub roles: Vec<String>,
    /// How its key is made.
    #[command(flatten)]
    pub key: NewKey,
}

/// How a key is made and where it goes.
#[derive(Clone, Debug, Default, Args)]
pub struct NewKey {
    /// Write the key to this new file instead of showing it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The key ends after this long [default: never]
    #[arg(long, value_parser = crate::parse::duration, value_name = "TIME")]
    pub expires_in: Option<Duration>,
}

/// Commands on the keys of a service account.
#[derive(Debug, Subcommand)]
pub enum ServiceKeyCommand {
    /// Make another key
    Add {
        /// The service account
        name: String,
        /// How it is made.
        #[command(flatten)]
        key: NewKey,
    },
    /// Refuse a key and end the sessions of the account
    Rm {
        /// The service account
        name: String,
        /// The key
        key_id: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// Commands on sessions.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List the sessions of the tenant
    #[command(visible_alias = "list")]
    Ls {
        /// Only sessions of this principal
        #[arg(long, value_name = "PRINCIPAL")]
        principal: Option<String>,
    },
    /// End a session: its tokens are refused and not renewed
    End {
        /// The session
        session_id: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// What a revocation may be about, with a word about each.
fn revoked_kind() -> impl TypedValueParser<Value = RevokedKind> {
    let kinds = RevokedKind::ALL.map(|kind| {
        let help = match kind {
            RevokedKind::Principal => "A principal, by its id",
            RevokedKind::Session => "One session",
            RevokedKind::Token => "One token, by its `jti`",
            RevokedKind::Role => "Whoever had a role",
            RevokedKind::Issuer => "Whoever came from an identity provider",
            RevokedKind::Tenant => "The whole tenant",
        };
        PossibleValue::new(kind.name()).help(help)
    });
    PossibleValuesParser::new(kinds).try_map(|name| name.parse::<RevokedKind>())
}

/// Refuse tokens that were issued until now.
#[derive(Clone, Debug, Args)]
pub struct Revoke {
    /// What the tokens have in common
    #[arg(value_parser = revoked_kind())]
    pub kind: RevokedKind,
    /// Which one
    pub id: String,
    /// Why, for the audit log
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    pub reason: String,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
}

/// Which records of the audit log.
#[derive(Clone, Debug, Default, Args)]
pub struct AuditFilter {
    /// Only what this principal did
    #[arg(long, value_name = "PRINCIPAL")]
    pub principal: Option<String>,
    /// Only what is called so, as in session_opened or refused
    #[arg(long, value_name = "WHAT")]
    pub what: Option<String>,
    /// The log of the whole cluster instead of the tenant's
    #[arg(long)]
    pub cluster: bool,
}

/// Read the audit log.
#[derive(Clone, Debug, Args)]
pub struct AuditLs {
    /// Which records.
    #[command(flatten)]
    pub filter: AuditFilter,
    /// Only records after this sequence number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub after: u64,
    /// At most this many, the newest
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
}

/// Commands on the audit log.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List what was done
    #[command(visible_alias = "list")]
    Ls(AuditLs),
    /// Follow what is done, until Ctrl-C
    Tail(AuditFilter),
    /// Compute the chain of hashes anew and compare
    Verify {
        /// The log of the whole cluster instead of the tenant's
        #[arg(long)]
        cluster: bool,
    },
}

/// Whose quota. Without a flag, the tenant's.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = false)]
pub struct QuotaScope {
    /// Of this namespace
    #[arg(long = "of-namespace", value_name = "NAMESPACE")]
    pub of_namespace: Option<String>,
    /// Of this principal
    #[arg(long = "of-principal", value_name = "PRINCIPAL")]
    pub of_principal: Option<String>,
}

/// Set limits. What is not given stays as it is; `none` lifts a limit.
#[derive(Clone, Debug, Args)]
pub struct QuotaSet {
    /// Whose.
    #[command(flatten)]
    pub scope: QuotaScope,
    /// Bytes published a second, as in 10MiB
    #[arg(long, value_name = "SIZE|none")]
    pub publish_bytes_per_second: Option<String>,
    /// Records published a second
    #[arg(long, value_name = "N|none")]
    pub publish_records_per_second: Option<String>,
    /// Subscriptions open at a time
    #[arg(long, value_name = "N|none")]
    pub subscriptions: Option<String>,
    /// Connections open at a time
    #[arg(long, value_name = "N|none")]
    pub connections: Option<String>,
    /// Bytes in caches, as in 1GiB
    #[arg(long, value_name = "SIZE|none")]
    pub cache_bytes: Option<String>,
    /// Bytes that one stream keeps at most, as in 100GiB
    #[arg(long, value_name = "SIZE|none")]
    pub stream_retention_bytes: Option<String>,
}

/// Commands on quotas.
#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// List the limits that are set
    #[command(visible_alias = "list")]
    Ls,
    /// Set limits
    Set(QuotaSet),
    /// Lift every limit of a scope
    Rm {
        /// Whose.
        #[command(flatten)]
        scope: QuotaScope,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
}
