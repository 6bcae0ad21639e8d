//! Where a broker is, and under which name it proves to be one.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Name checked for brokers addressed by number when none was configured; development certificates carry it.
const DEFAULT_SERVER_NAME: &str = "localhost";

/// `host:port`, as it was configured or learned. IPv6 numbers stand in brackets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    host: Host,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Host {
    Number(IpAddr),
    Name(Box<str>),
}

/// The text is not `host:port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAnAddress;

impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        if let Ok(number) = text.parse::<SocketAddr>() {
            return Ok(Self {
                host: Host::Number(number.ip()),
                port: number.port(),
            });
        }
        let (name, port) = text.rsplit_once(':').ok_or(NotAnAddress)?;
        let port = port.parse().map_err(|_| NotAnAddress)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if name.is_empty() || !name.bytes().all(fits) {
            return Err(NotAnAddress);
        }
        Ok(Self {
            host: Host::Name(name.into()),
            port,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Number(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl Address {
    /// The name the broker's certificate must carry. A configured one is for the brokers that were configured
    /// and for those known by number only; a broker learned by its own name is held to that name.
    pub(crate) fn server_name<'a>(&'a self, configured: Option<&'a str>, learned: bool) -> &'a str {
        match (&self.host, configured) {
            (Host::Name(name), _) if learned => name,
            (_, Some(configured)) => configured,
            (Host::Name(name), None) => name,
            (Host::Number(_), None) => DEFAULT_SERVER_NAME,
        }
    }

    /// Looks the name up; IPv4 first, which is what brokers listen on.
    pub(crate) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let mut found = match &self.host {
            Host::Number(ip) => vec![SocketAddr::new(*ip, self.port)],
            Host::Name(name) => tokio::net::lookup_host((&**name, self.port))
                .await?
                .collect(),
        };
        found.sort_by_key(SocketAddr::is_ipv6);
        found.dedup();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["127.0.0.1:5000", "[::1]:5000", "broker-1.example.org:5000"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "host",
            ":5000",
            "host:",
            "host:99999",
            "a b:1",
            "::1:5000",
            "http://h:1",
        ] {
            assert_eq!(text.parse::<Address>(), Err(NotAnAddress), "{text}");
        }
    }

    #[test]
    fn a_learned_name_is_held_to_itself_and_a_number_to_the_configured_name() {
        let name: Address = "b.example:1".parse().unwrap();
        let number: Address = "10.0.0.1:1".parse().unwrap();
        assert_eq!(name.server_name(Some("felix"), true), "b.example");
        assert_eq!(name.server_name(Some("felix"), false), "felix");
        assert_eq!(name.server_name(None, false), "b.example");
        assert_eq!(number.server_name(Some("felix"), true), "felix");
        assert_eq!(number.server_name(None, true), "localhost");
    }

    #[tokio::test]
    async fn a_number_needs_no_look_up() {
        let number: Address = "10.0.0.1:7".parse().unwrap();
        assert_eq!(
            number.resolve().await.unwrap(),
            ["10.0.0.1:7".parse().unwrap()]
        );
    }
}
