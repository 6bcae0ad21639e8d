//! Where the servers are: a URL with a secret in it, which is never shown.

use std::collections::BTreeSet;
use std::fmt;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;

use crate::config::Secret;
use crate::limits::{POSTGRES_HOSTS_MAX, POSTGRES_STATEMENT_MS};

/// Parameters of the URL that are understood. Others would be ignored, among them misspelt ones.
const PARAMETERS: &[&str] = &[
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// Why a URL is of no use. It does not repeat the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefused {
    /// It is no URL of PostgreSQL.
    #[error("the PostgreSQL URL must be like postgres://user:password@host:5432/database")]
    Malformed,
    /// A parameter that nobody knows.
    #[error("the PostgreSQL URL has a parameter `{0}`, which is not known")]
    Parameter(String),
    /// Too many hosts, or none.
    #[error("the PostgreSQL URL names {0} hosts; from 1 to {max} are possible", max = POSTGRES_HOSTS_MAX)]
    Hosts(usize),
}

/// One or more servers, of which one takes writes.
#[derive(Clone)]
pub struct Address {
    hosts: Vec<PgConnectOptions>,
}

impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(name).collect();
        out.debug_tuple("Address").field(&hosts).finish()
    }
}

impl Address {
    /// Reads `postgres://user:password@host:port,host:port/database?sslmode=verify-full&sslrootcert=FILE`. Of several
    /// hosts the first is used that takes writes.
    ///
    /// # Errors
    /// [`AddressRefused`].
    pub fn parse(url: &Secret) -> Result<Self, AddressRefused> {
        let text = url.0.trim();
        let (scheme, rest) = text.split_once("://").ok_or(AddressRefused::Malformed)?;
        if !matches!(scheme, "postgres" | "postgresql") {
            return Err(AddressRefused::Malformed);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        known_parameters(path)?;
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.len() > POSTGRES_HOSTS_MAX {
            return Err(AddressRefused::Hosts(hosts.len()));
        }
        let hosts = hosts
            .iter()
            .map(|host| {
                let options: PgConnectOptions = format!("postgres://{user}{host}{path}")
                    .parse()
                    .map_err(|_| AddressRefused::Malformed)?;
                Ok(settled(options))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { hosts })
    }

    pub(super) fn hosts(&self) -> &[PgConnectOptions] {
        &self.hosts
    }
}

/// The parameters that all connections have.
fn settled(options: PgConnectOptions) -> PgConnectOptions {
    let named = options.get_application_name().is_some();
    let options = options
        .options([
            ("statement_timeout", POSTGRES_STATEMENT_MS),
            ("idle_in_transaction_session_timeout", POSTGRES_STATEMENT_MS),
        ])
        // Values are records, and records hold private keys.
        .disable_statement_logging();
    match named {
        true => options,
        false => options.application_name("felix-controlplane"),
    }
}

/// A host as it may be shown.
pub(super) fn name(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

fn known_parameters(path: &str) -> Result<(), AddressRefused> {
    let known: BTreeSet<&str> = PARAMETERS.iter().copied().collect();
    let query = path.split_once('?').map_or("", |(_, query)| query);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let key = parameter.split_once('=').map_or(parameter, |(key, _)| key);
        let is_option = key.starts_with("options[") && key.ends_with(']');
        if !known.contains(key) && !is_option {
            let shown = key.chars().take(40).filter(char::is_ascii_graphic);
            return Err(AddressRefused::Parameter(shown.collect()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hosts_are_several_servers_with_one_user_and_database() {
        let address = parse("postgres://u:p%40ss@db1,db2:5433/felix?sslmode=require").unwrap();
        let hosts: Vec<String> = address.hosts.iter().map(name).collect();
        assert_eq!(hosts, ["db1:5432", "db2:5433"]);
        for host in address.hosts() {
            assert_eq!(host.get_username(), "u");
            assert_eq!(host.get_database(), Some("felix"));
        }
    }

    #[test]
    fn the_password_is_in_no_debug_text_and_no_refusal() {
        let address = parse("postgres://user:hush@db/felix").unwrap();
        assert_eq!(format!("{address:?}"), r#"Address(["db:5432"])"#);
        for url in [
            "mysql://user:hush@db/felix",
            "user:hush@db",
            "postgres://user:hush@db:port/felix",
            "postgres://user:hush@db/felix?sslmode=hush",
            "postgres://user@db/felix?hush=hush",
            "postgres://user:hush@db/felix?passwrod=hush2",
            "postgres://user:hush@a,b,c,d,e,f,g,h,i/felix",
        ] {
            let refused = parse(url).unwrap_err().to_string();
            let shown = refused.replace("`hush`", "");
            assert!(!shown.contains("hush"), "{refused}");
        }
    }

    fn parse(url: &str) -> Result<Address, AddressRefused> {
        Address::parse(&Secret(url.into()))
    }
}
