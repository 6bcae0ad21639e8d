//! Where a request comes from and what address the browser thinks it speaks to, behind so many proxies.
//!
//! What a client writes into headers is believed only as far as proxies that are counted on have written it: each of
//! them appends the address that connected to it to `X-Forwarded-For`, so with n of them the n-th entry from the right
//! is the client's, and everything left of it is hearsay.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderName};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// What proxies add to a request of somebody else.
const RELAYED: [HeaderName; 4] = [
    FORWARDED_FOR,
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("forwarded"),
    HeaderName::from_static("via"),
];
/// Bytes of a forwarding header that are looked at.
const HEADER_BYTES_MAX: usize = 8 * 1024;

/// A request's surroundings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The client, as limits count it ([`counted`]).
    pub(crate) ip: IpAddr,
    /// Whether the browser speaks TLS to whoever is in front.
    pub(crate) secure: bool,
    /// The `Host` the browser named, in lower case and without its scheme's own port.
    pub(crate) host: Option<String>,
    /// Whether the client is on this machine, as far as that is certain: a proxy that nobody counts on connects from here
    /// as well, and says so by what it adds.
    pub(crate) is_from_here: bool,
}

impl Seen {
    /// Reads a request. `peer` is who connected; `trusted_proxies` is how many proxies are counted on.
    pub(crate) fn read(headers: &HeaderMap, peer: IpAddr, trusted_proxies: usize) -> Self {
        let secure = is_secure(headers, trusted_proxies);
        let named = named_ip(headers, trusted_proxies);
        let relayed = RELAYED.iter().any(|name| headers.contains_key(name));
        let ip = named.unwrap_or(peer).to_canonical();
        Self {
            ip: counted(ip),
            secure,
            host: host(headers, secure),
            is_from_here: ip.is_loopback() && (named.is_some() || !relayed),
        }
    }

    /// The origin under which the browser sees this gateway.
    pub(crate) fn origin(&self) -> Option<String> {
        let scheme = if self.secure { "https" } else { "http" };
        self.host.as_ref().map(|host| format!("{scheme}://{host}"))
    }

    /// Whether the browser named this machine itself.
    pub(crate) fn is_loopback(&self) -> bool {
        let Some(host) = &self.host else { return false };
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

/// What stands for an address where limits count addresses: whoever has one of IPv6 has a whole network of them.
pub(crate) fn counted(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            IpAddr::V6((v6.to_bits() & (u128::MAX << 64)).into())
        }
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    }
}

/// The client's address as proxies name it. A header with fewer entries than proxies was not written by them and counts
/// for nothing.
fn named_ip(headers: &HeaderMap, trusted_proxies: usize) -> Option<IpAddr> {
    let entry = from_the_right(headers, &FORWARDED_FOR, trusted_proxies)?;
    let ip = entry.parse::<IpAddr>();
    ip.or_else(|_| entry.parse::<SocketAddr>().map(|address| address.ip()))
        .ok()
}

/// Proxies write the scheme once, or each its own.
fn is_secure(headers: &HeaderMap, trusted_proxies: usize) -> bool {
    let said = (1..=trusted_proxies)
        .rev()
        .find_map(|place| from_the_right(headers, &FORWARDED_PROTO, place));
    said.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
}

/// The n-th entry of a list from the right, over all headers of that name; none for n = 0.
fn from_the_right<'h>(headers: &'h HeaderMap, name: &HeaderName, place: usize) -> Option<&'h str> {
    let mut left = HEADER_BYTES_MAX;
    let mut entries = Vec::new();
    for header in headers.get_all(name) {
        left = left.checked_sub(header.len())?;
        entries.extend(header.to_str().ok()?.split(',').map(str::trim));
    }
    let at = entries.len().checked_sub(place)?;
    entries.get(at).copied()
}

fn host(headers: &HeaderMap, secure: bool) -> Option<String> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return None;
    };
    let host = host.to_str().ok()?.to_ascii_lowercase();
    let own_port = if secure { ":443" } else { ":80" };
    let host = host.strip_suffix(own_port).unwrap_or(&host);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
    (!host.is_empty() && host.bytes().all(fits)).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn the_client_is_the_nth_entry_from_the_right_and_hearsay_left_of_it_counts_for_nothing() {
        let peer: IpAddr = "10.0.0.9".parse().unwrap();
        for (forwarded, proxies, expected) in [
            (&["1.1.1.1"][..], 0, "10.0.0.9"),
            (&["1.1.1.1"], 1, "1.1.1.1"),
            (&["6.6.6.6, 1.1.1.1"], 1, "1.1.1.1"),
            (&["6.6.6.6, 1.1.1.1, 2.2.2.2"], 2, "1.1.1.1"),
            (&["6.6.6.6", "1.1.1.1, 2.2.2.2"], 2, "1.1.1.1"),
            // Fewer entries than proxies: nobody trusted wrote this.
            (&["1.1.1.1"], 2, "10.0.0.9"),
            (&[], 1, "10.0.0.9"),
            (&["6.6.6.6, unknown"], 1, "10.0.0.9"),
            (&["1.1.1.1:443"], 1, "1.1.1.1"),
            (&["[2001:db8::1]:443"], 1, "2001:db8::"),
            (&["::ffff:1.2.3.4"], 1, "1.2.3.4"),
        ] {
            let pairs: Vec<_> = forwarded
                .iter()
                .map(|one| ("x-forwarded-for", *one))
                .collect();
            let found = Seen::read(&headers(&pairs), peer, proxies);
            assert_eq!(
                found.ip.to_string(),
                expected,
                "{forwarded:?} behind {proxies}"
            );
        }
        let long = "1.1.1.1, ".repeat(2_000);
        let found = Seen::read(&headers(&[("x-forwarded-for", &long)]), peer, 1);
        assert_eq!(found.ip, peer);
    }

    #[test]
    fn a_client_behind_a_proxy_of_this_machine_is_not_on_this_machine() {
        for (peer, pairs, proxies, expected) in [
            ("127.0.0.1", &[][..], 0, true),
            ("::1", &[], 0, true),
            ("10.0.0.9", &[], 0, false),
            ("127.0.0.1", &[("x-forwarded-for", "1.1.1.1")], 0, false),
            ("127.0.0.1", &[("x-forwarded-for", "127.0.0.1")], 0, false),
            ("127.0.0.1", &[("forwarded", "for=1.1.1.1")], 0, false),
            ("127.0.0.1", &[("x-real-ip", "1.1.1.1")], 1, false),
            ("127.0.0.1", &[("x-forwarded-for", "1.1.1.1")], 1, false),
            ("127.0.0.1", &[("x-forwarded-for", "127.0.0.1")], 1, true),
            // Written by fewer proxies than are counted on.
            ("127.0.0.1", &[("x-forwarded-for", "127.0.0.1")], 2, false),
            // Whoever writes it from afar stays afar.
            ("10.0.0.9", &[("x-forwarded-for", "127.0.0.1")], 0, false),
        ] {
            let seen = Seen::read(&headers(pairs), peer.parse().unwrap(), proxies);
            assert_eq!(seen.is_from_here, expected, "{peer} {pairs:?} {proxies}");
        }
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let counted = |text: &str| counted(text.parse().unwrap()).to_string();
        assert_eq!(counted("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(counted("2001:db8:1:2:ffff::"), counted("2001:db8:1:2::1"));
        assert_ne!(counted("2001:db8:1:3::1"), counted("2001:db8:1:2::1"));
        assert_eq!(counted("::1"), "::1");
        assert_eq!(counted("::ffff:1.2.3.4"), "1.2.3.4");
        assert_eq!(counted("1.2.3.4"), "1.2.3.4");
    }

    #[test]
    fn the_scheme_is_taken_from_a_proxy_only_where_one_is_counted_on() {
        let seen = |pairs: &[(&'static str, &str)], proxies| {
            Seen::read(&headers(pairs), "127.0.0.1".parse().unwrap(), proxies).origin()
        };
        let both = [("host", "App.Example"), ("x-forwarded-proto", "https")];
        assert_eq!(seen(&both, 0).as_deref(), Some("http://app.example"));
        assert_eq!(seen(&both, 1).as_deref(), Some("https://app.example"));
        assert_eq!(seen(&both, 2).as_deref(), Some("https://app.example"));
        let appended = [("host", "a"), ("x-forwarded-proto", "https, http")];
        assert_eq!(seen(&appended, 1).as_deref(), Some("http://a"));
        assert_eq!(seen(&appended, 2).as_deref(), Some("https://a"));
        assert_eq!(seen(&[("host", "a:80")], 0).as_deref(), Some("http://a"));
        assert_eq!(
            seen(&[("host", "a:8787")], 0).as_deref(),
            Some("http://a:8787")
        );
        assert_eq!(seen(&[("host", "a/b")], 0), None);
        assert_eq!(seen(&[("host", "a"), ("host", "b")], 0), None);
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        let seen = |host: &str| {
            let headers = headers(&[("host", host)]);
            Seen::read(&headers, "127.0.0.1".parse().unwrap(), 0).is_loopback()
        };
        for host in ["localhost:8787", "127.0.0.1:1", "127.5.5.5", "[::1]:8787"] {
            assert!(seen(host), "{host}");
        }
        for host in [
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "app",
        ] {
            assert!(!seen(host), "{host}");
        }
    }
}
