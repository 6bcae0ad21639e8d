//! Which principals a client's certificate speaks for.
//!
//! Only the names are read here; whether somebody trusted signed the certificate is decided by whoever did the handshake.

use std::net::IpAddr;

/// What a URI in a certificate begins with when it names a principal.
pub const PRINCIPAL_URI: &str = "felix:principal:";

/// `2.5.29.17`, subject alternative name.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

const SEQUENCE: u8 = 0x30;
const OBJECT_ID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const EXTENSIONS: u8 = 0xa3;
const DNS: u8 = 0x82;
const URI: u8 = 0x86;
const IP: u8 = 0x87;

/// The alternative names of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    uris: Vec<Box<str>>,
    dns: Vec<Box<str>>,
    ips: Vec<IpAddr>,
}

impl CertificateNames {
    /// Reads the names of a certificate in DER. One that is not laid out as a certificate has none.
    #[must_use]
    pub fn read(certificate: &[u8]) -> Self {
        let mut names = Self::default();
        for (tag, value) in alternative_names(certificate).unwrap_or_default() {
            let text = || std::str::from_utf8(value).ok().map(Box::from);
            match tag {
                URI => names.uris.extend(text()),
                DNS => names.dns.extend(text()),
                IP => names.ips.extend(address(value)),
                _ => {}
            }
        }
        names
    }

    /// Whether it names a principal: by a URI `felix:principal:<id>`, or by a DNS name or an address that is the id. An
    /// id that is a hash is named by URI alone.
    #[must_use]
    pub fn speak_for(&self, principal: &str) -> bool {
        let by_uri = |uri: &str| uri.strip_prefix(PRINCIPAL_URI) == Some(principal);
        if self.uris.iter().any(|uri| by_uri(uri)) {
            return true;
        }
        let is_hash = principal.len() == 64 && principal.bytes().all(|b| b.is_ascii_hexdigit());
        !is_hash
            && (self
                .dns
                .iter()
                .any(|name| name.eq_ignore_ascii_case(principal))
                || principal
                    .parse()
                    .is_ok_and(|address: IpAddr| self.ips.contains(&address)))
    }
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(value).map(IpAddr::from).ok())
}

/// The general names of the extension, each with its tag.
fn alternative_names(certificate: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut rest = certificate;
    let mut certificate = expect(&mut rest, SEQUENCE)?;
    let mut signed = expect(&mut certificate, SEQUENCE)?;
    loop {
        let (tag, mut value) = element(&mut signed)?;
        if tag != EXTENSIONS {
            continue;
        }
        let mut extensions = expect(&mut value, SEQUENCE)?;
        while !extensions.is_empty() {
            let mut extension = expect(&mut extensions, SEQUENCE)?;
            if expect(&mut extension, OBJECT_ID)? != SUBJECT_ALT_NAME {
                continue;
            }
            // Perhaps a flag that it is critical stands between.
            let mut octets = loop {
                match element(&mut extension)? {
                    (OCTETS, value) => break value,
                    _ => continue,
                }
            };
            let mut names = expect(&mut octets, SEQUENCE)?;
            let mut found = Vec::new();
            while !names.is_empty() {
                found.push(element(&mut names)?);
            }
            return Some(found);
        }
        return None;
    }
}

fn expect<'a>(from: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (found, value) = element(from)?;
    (found == tag).then_some(value)
}

/// Takes one element off: its tag, which is one byte, and what it holds.
fn element<'a>(from: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = from.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = if first < 0x80 {
        usize::from(first)
    } else {
        let (digits, behind) = rest.split_at_checked(usize::from(first & 0x7f))?;
        rest = behind;
        // No certificate is longer than three bytes can say.
        if digits.is_empty() || digits.len() > 3 {
            return None;
        }
        digits
            .iter()
            .fold(0, |length, digit| length << 8 | usize::from(*digit))
    };
    let (value, behind) = rest.split_at_checked(length)?;
    *from = behind;
    Some((tag, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element around its content.
    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        match u8::try_from(content.len()) {
            Ok(short) if short < 0x80 => out.push(short),
            _ => {
                let length = u16::try_from(content.len()).unwrap();
                out.push(0x82);
                out.extend(length.to_be_bytes());
            }
        }
        out.extend(content);
        out
    }

    fn certificate(names: &[(u8, &[u8])]) -> Vec<u8> {
        let names: Vec<u8> = names
            .iter()
            .flat_map(|(tag, name)| der(*tag, name))
            .collect();
        let octets = der(OCTETS, &der(SEQUENCE, &names));
        let critical = der(0x01, &[0xff]);
        let extension = [der(OBJECT_ID, SUBJECT_ALT_NAME), critical, octets].concat();
        let other = [der(OBJECT_ID, &[0x55, 0x1d, 0x0f]), der(OCTETS, &[0])].concat();
        let extensions = [der(SEQUENCE, &other), der(SEQUENCE, &extension)].concat();
        let signed = [
            der(0xa0, &[2, 1, 2]),
            der(0x02, &[1; 200]),
            der(EXTENSIONS, &der(SEQUENCE, &extensions)),
        ]
        .concat();
        der(
            SEQUENCE,
            &[der(SEQUENCE, &signed), der(0x03, &[0])].concat(),
        )
    }

    #[test]
    fn a_principal_is_named_by_uri_by_name_or_by_address() {
        let names = CertificateNames::read(&certificate(&[
            (URI, b"felix:principal:p:gateway"),
            (URI, b"https://p:other"),
            (DNS, b"Worker-1.example"),
            (IP, &[10, 0, 0, 7]),
        ]));
        for named in ["p:gateway", "worker-1.example", "10.0.0.7"] {
            assert!(names.speak_for(named), "{named}");
        }
        for other in [
            "p:other",
            "gateway",
            "p:gateway2",
            "10.0.0.8",
            "worker-1",
            "",
        ] {
            assert!(!names.speak_for(other), "{other}");
        }
    }

    #[test]
    fn a_hashed_principal_is_named_by_uri_alone() {
        let hash = "ab".repeat(32);
        let by_name = CertificateNames::read(&certificate(&[(DNS, hash.as_bytes())]));
        assert!(!by_name.speak_for(&hash));
        let uri = format!("{PRINCIPAL_URI}{hash}");
        let by_uri = CertificateNames::read(&certificate(&[(URI, uri.as_bytes())]));
        assert!(by_uri.speak_for(&hash));
    }

    #[test]
    fn what_is_cut_or_changed_anywhere_names_nobody_else_and_is_read_without_panic() {
        let whole = certificate(&[(URI, b"felix:principal:p:a")]);
        for end in 0..whole.len() {
            assert!(!CertificateNames::read(&whole[..end]).speak_for("p:b"));
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                drop(CertificateNames::read(&changed));
            }
        }
    }
}
