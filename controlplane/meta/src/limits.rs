//! Bounds of the catalogue, each with its reason.

/// Streams and caches that one batch may create. One event must stay far below the largest ledger record.
pub const BATCH_ITEMS_MAX: usize = 256;

/// Shards of one stream or cache. Each is a log of its own; a broker is built for 10,000 of them in all.
pub const SHARDS_MAX: u32 = 1024;

/// Copies of one shard. Brokers of this version do not replicate, and a stream must not promise copies it has not.
pub const REPLICATION_FACTOR_MAX: u32 = 1;

/// Bytes of a display name. It is shown in a column of a listing.
pub const DISPLAY_NAME_BYTES_MAX: usize = 256;

/// Bytes of a region, and of each part of a rule. Group names of identity providers carry a URL.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Rules, and gifts of roles, in one tenant. All of them are walked when a token is minted.
pub const RULES_PER_TENANT_MAX: usize = 10_000;

/// Keys that verify in one tenant. Rotation needs two, an emergency during a rotation three.
pub const KEYS_PER_TENANT_MAX: usize = 8;

/// Names looked at for "did you mean". A miss must not cost a walk over a huge namespace.
pub const CLOSE_MATCH_CANDIDATES_MAX: usize = 4096;

/// Names offered as close matches.
pub const CLOSE_MATCHES_MAX: usize = 3;

/// Identity providers of one tenant. Each may be asked for its keys.
pub const ISSUERS_PER_TENANT_MAX: usize = 64;

/// `aud` values of one provider.
pub const AUDIENCES_PER_ISSUER_MAX: usize = 16;

/// Principals remembered for display in one tenant. Past it new ones sign in and are not remembered.
pub const PRINCIPALS_PER_TENANT_MAX: usize = 1_000_000;

/// Service accounts of one tenant.
pub const SERVICE_ACCOUNTS_PER_TENANT_MAX: usize = 10_000;

/// Bytes of the name of a service account.
pub const SERVICE_ACCOUNT_NAME_BYTES_MAX: usize = 128;

/// Keys of one service account. Rotation needs two; programs that share an account may each have one.
pub const KEYS_PER_SERVICE_ACCOUNT_MAX: usize = 8;

/// Sessions of all tenants together. One takes about a kilobyte of memory. When there are as many, a tenant that has more
/// than its sure share gets no more room than it has.
pub const SESSIONS_MAX: usize = 1_000_000;

/// Sessions of one tenant. One more ends those that were not refreshed for longest: nobody is turned away because others
/// of his tenant signed in, and no tenant takes the room of others.
pub const SESSIONS_PER_TENANT_MAX: usize = 100_000;

/// Sessions that a tenant may have however many others have.
pub const SESSIONS_PER_TENANT_SURE: usize = 1_000;

/// Of the sessions of a full tenant, one in so many ends at a time: looking for the oldest walks through all of them.
pub const SESSIONS_ENDED_SHARE: usize = 100;

/// Sessions of one principal. One more ends the oldest.
pub const SESSIONS_PER_PRINCIPAL_MAX: usize = 256;

/// Bytes of the id of a session, a service key or a token.
pub const ID_BYTES_MAX: usize = 128;

/// Texts in each list of a session: its groups, and what was asked for.
pub const SESSION_ITEMS_MAX: usize = 1024;

/// Bytes of all texts of a session. A provider's token has at most 16 KiB, and its body may ask for as much again.
pub const SESSION_BYTES_MAX: usize = 64 * 1024;

/// Revocations kept in one tenant. One more takes back every token of the tenant, which then all sign in again by
/// their refresh tokens: refusing to revoke is no choice.
pub const REVOCATIONS_PER_TENANT_MAX: usize = 100_000;

/// Longest life of a token of any kind, leeway included; felix-auth refuses longer ones.
pub const TOKEN_LIFE_MS_MAX: u64 = (30 * 24 + 2) * 3600 * 1000;

/// Longest life of a token that was minted for a session. The exchange refuses to be configured with more.
pub const SESSION_TOKEN_LIFE_MS_MAX: u64 = 24 * 3600 * 1000;

/// How long a revocation may stay after it can concern no token, so that they are looked through seldom.
pub const REVOCATION_PRUNE_SLACK_MS: u64 = 6 * 3600 * 1000;

/// How far past its own moment a revocation reaches. It covers tokens that were minted meanwhile by who had not heard of
/// it, here or at an instance whose clock is a little ahead; tokens that follow it are dated after it, which verifiers
/// bear up to five seconds.
pub const REVOCATION_REACH_MS: u64 = 1_000;

/// How far it reaches at most so as to come after the one before it.
pub const REVOCATION_REACH_MS_MAX: u64 = 4_000;

/// How far in the future a revocation may reach. More would shut out tokens that are yet to be minted.
pub const REVOCATION_AHEAD_MS_MAX: u64 = 60_000;

/// Bytes of a reason that somebody gives.
pub const REASON_BYTES_MAX: usize = 256;

/// Quotas in one tenant.
pub const QUOTAS_PER_TENANT_MAX: usize = 100_000;

/// Records in one audit event that is not about a change.
pub const AUDITED_RECORDS_MAX: usize = 256;

/// Templates of one namespace. A join looks one up by name; an application has one.
pub const TEMPLATES_PER_NAMESPACE_MAX: usize = 64;

/// Streams and caches of one room. One event makes them all, and each is a log.
pub const ROOM_ITEMS_MAX: usize = 32;

/// Bytes of the scope of a room, as the gateway's protocol has it.
pub const ROOM_SCOPE_BYTES_MAX: usize = 64;

/// Rooms of a template that says nothing else.
pub const ROOMS_PER_TEMPLATE_DEFAULT: u32 = 1000;

/// Rooms that a template may allow at most.
pub const ROOMS_PER_TEMPLATE_MAX: u32 = 10_000;

/// Rooms of one tenant, of all its templates together. People open them without asking an administrator, and a broker
/// is built for 10,000 shards in all.
pub const ROOMS_PER_TENANT_MAX: usize = 10_000;
