//! Which network addresses an identity provider may have.
//!
//! Whoever may name an issuer makes the control plane send a request to it. Addresses inside the operator's network are
//! therefore refused, both as they are written and as names resolve.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an operator lets issuers have beyond public addresses with `https`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Addresses of the own network: private, shared, link-local, unique local.
    pub private: bool,
    /// Addresses of this machine, also with plain `http`.
    pub loopback: bool,
    /// Plain `http` to any address that is allowed.
    pub insecure_http: bool,
}

/// Where clouds keep the credentials of a machine. No provider of identities lives there, so no rule allows them.
const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
];

const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Public,
    Private,
    Loopback,
    /// Nobody's, everybody's, or where credentials are.
    Never,
}

/// Whether a connection to the address is allowed.
#[must_use]
pub fn is_allowed(address: IpAddr, rules: AddressRules) -> bool {
    match reach(address) {
        Reach::Public => true,
        Reach::Private => rules.private,
        Reach::Loopback => rules.loopback || rules.private,
        Reach::Never => false,
    }
}

fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    let [a, b, c, _] = address.octets();
    if METADATA_V4.contains(&address) {
        return Reach::Never;
    }
    match (a, b, c) {
        (127, ..) => Reach::Loopback,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) | (169, 254, _) | (100, 64..=127, _) => {
            Reach::Private
        }
        // This network, protocol assignments, documentation, benchmarks, multicast, reserved.
        (0, ..) | (192, 0, 0 | 2) | (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) => {
            Reach::Never
        }
        (224.., ..) => Reach::Never,
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    if address == METADATA_V6 || address.is_unspecified() {
        return Reach::Never;
    }
    if address.is_loopback() {
        return Reach::Loopback;
    }
    if let Some(inside) = embedded(address) {
        return reach_v4(inside);
    }
    let [head, second, ..] = address.segments();
    match head {
        // Unique local, link-local, and the site-local that came before.
        0xfc00..=0xfdff | 0xfe80..=0xfeff => Reach::Private,
        // Teredo hides an address in a way that is not worth reading, and documentation is nobody's.
        0x2001 if matches!(second, 0 | 0xdb8) => Reach::Never,
        0x2000..=0x3fff => Reach::Public,
        _ => Reach::Never,
    }
}

/// The IPv4 address that an IPv6 one stands for: mapped, compatible, translated (NAT64) or 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: &[&str] = &[
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.1.1",
        "100.64.0.1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "::ffff:10.0.0.1",
        "::10.0.0.1",
        "64:ff9b::192.168.0.1",
        "2002:0a00:0001::",
    ];

    const NEVER: &[&str] = &[
        "0.0.0.0",
        "::",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "fd00:ec2::254",
        "224.0.0.1",
        "255.255.255.255",
        "198.51.100.7",
        "ff02::1",
        "2001:db8::1",
        "2001::1",
    ];

    #[test]
    fn addresses_inside_the_network_need_the_rule_that_allows_them() {
        for text in INSIDE {
            assert!(!allowed(text, AddressRules::default()), "{text}");
            let private = AddressRules {
                private: true,
                ..AddressRules::default()
            };
            assert!(allowed(text, private), "{text}");
        }
    }

    #[test]
    fn addresses_where_credentials_are_kept_or_nobody_lives_are_never_allowed() {
        let everything = AddressRules {
            private: true,
            loopback: true,
            insecure_http: true,
        };
        for text in NEVER {
            assert!(!allowed(text, everything), "{text}");
        }
    }

    #[test]
    fn this_machine_needs_its_own_rule() {
        for text in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(!allowed(text, AddressRules::default()), "{text}");
            let loopback = AddressRules {
                loopback: true,
                ..AddressRules::default()
            };
            assert!(allowed(text, loopback), "{text}");
        }
    }

    #[test]
    fn public_addresses_are_allowed() {
        for text in ["8.8.8.8", "172.32.0.1", "2606:4700::1111", "100.128.0.1"] {
            assert!(allowed(text, AddressRules::default()), "{text}");
        }
    }

    fn allowed(text: &str, rules: AddressRules) -> bool {
        is_allowed(text.parse().unwrap(), rules)
    }
}
