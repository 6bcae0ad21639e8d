//! Which URLs an issuer may have, as far as their text tells.

use std::net::IpAddr;

use reqwest::Url;

use super::address::{AddressRules, is_allowed};

/// Longest URL that is looked at.
const URL_BYTES_MAX: usize = 1024;

/// Why a URL is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// It is no URL, or a very long one.
    #[error("not a URL of at most {URL_BYTES_MAX} bytes")]
    Malformed,
    /// It is neither `https`, nor `http` where that is allowed.
    #[error("the URL must begin with `https://`")]
    NotHttps,
    /// It holds a name or a password, which would end up in logs.
    #[error("the URL holds credentials")]
    Credentials,
    /// It has a fragment, which no request carries.
    #[error("the URL has a fragment (`#`)")]
    Fragment,
    /// It has a query, which an issuer has not.
    #[error("an issuer has no query (`?`)")]
    Query,
    /// It names an address that is not allowed.
    #[error("the URL names an address inside the network, which is not allowed")]
    Address,
}

/// Checks a URL from which a document is to be fetched.
///
/// # Errors
/// [`BadUrl`] with the first thing that is wrong.
pub fn check_url(text: &str, rules: AddressRules) -> Result<Url, BadUrl> {
    if text.len() > URL_BYTES_MAX || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(BadUrl::Malformed);
    }
    let url = Url::parse(text).map_err(|_| BadUrl::Malformed)?;
    let address = literal(&url)?;
    let is_here = address.is_some_and(|address| address.to_canonical().is_loopback())
        || url.host_str() == Some("localhost");
    let may_be_plain = rules.insecure_http || (is_here && (rules.loopback || rules.private));
    match url.scheme() {
        "https" => {}
        "http" if may_be_plain => {}
        _ => return Err(BadUrl::NotHttps),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(BadUrl::Credentials);
    }
    if text.contains('#') {
        return Err(BadUrl::Fragment);
    }
    if address.is_some_and(|address| !is_allowed(address, rules)) {
        return Err(BadUrl::Address);
    }
    if url.host_str() == Some("localhost") && !(rules.loopback || rules.private) {
        return Err(BadUrl::Address);
    }
    Ok(url)
}

/// Checks the name of an issuer, which is a URL that is also compared as text.
///
/// # Errors
/// [`BadUrl`] with the first thing that is wrong.
pub fn check_issuer(text: &str, rules: AddressRules) -> Result<(), BadUrl> {
    check_url(text, rules)?;
    if text.contains('?') {
        return Err(BadUrl::Query);
    }
    Ok(())
}

/// The address in the URL, when it names one instead of a host.
fn literal(url: &Url) -> Result<Option<IpAddr>, BadUrl> {
    let host = url.host_str().ok_or(BadUrl::Malformed)?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    Ok(bare.unwrap_or(host).parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_without_credentials_or_fragment_is_taken() {
        for (text, expected) in [
            ("https://login.example.com", Ok(())),
            ("https://login.example.com:8443/realm?x=1", Ok(())),
            ("http://login.example.com", Err(BadUrl::NotHttps)),
            ("http://127.0.0.1:8080", Err(BadUrl::NotHttps)),
            ("file:///etc/passwd", Err(BadUrl::Malformed)),
            ("ftp://login.example.com", Err(BadUrl::NotHttps)),
            ("gopher://login.example.com", Err(BadUrl::NotHttps)),
            ("https://u@login.example.com", Err(BadUrl::Credentials)),
            ("https://u:p@login.example.com", Err(BadUrl::Credentials)),
            ("https://login.example.com/#x", Err(BadUrl::Fragment)),
            ("https://login.example.com#", Err(BadUrl::Fragment)),
            ("login.example.com", Err(BadUrl::Malformed)),
            ("https://", Err(BadUrl::Malformed)),
            ("https://login.example.com/a b", Err(BadUrl::Malformed)),
            ("https://login.example.com/a\n", Err(BadUrl::Malformed)),
        ] {
            let found = check_url(text, AddressRules::default()).map(|_| ());
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn addresses_are_seen_however_they_are_written() {
        for text in [
            "https://10.0.0.1",
            "https://127.0.0.1",
            "https://2130706433",
            "https://0x7f.1",
            "https://0177.0.0.1",
            "https://[::1]",
            "https://[::ffff:10.0.0.1]",
            "https://169.254.169.254/latest/meta-data",
            "https://[fd00:ec2::254]",
            "https://0",
            "https://localhost",
            "https://LOCALHOST:1",
        ] {
            let found = check_url(text, AddressRules::default()).map(|_| ());
            assert_eq!(found, Err(BadUrl::Address), "{text}");
        }
    }

    #[test]
    fn plain_http_is_for_this_machine_where_that_is_allowed() {
        let here = AddressRules {
            loopback: true,
            ..AddressRules::default()
        };
        assert!(check_url("http://127.0.0.1:8080", here).is_ok());
        assert!(check_url("http://localhost:8080", here).is_ok());
        assert!(check_url("http://[::1]:8080", here).is_ok());
        assert!(check_url("http://login.example.com", here).is_err());
        assert!(check_url("http://10.0.0.1", here).is_err());
        let insecure = AddressRules {
            insecure_http: true,
            ..AddressRules::default()
        };
        assert!(check_url("http://login.example.com", insecure).is_ok());
        assert_eq!(
            check_url("http://10.0.0.1", insecure).map(|_| ()),
            Err(BadUrl::Address)
        );
    }

    #[test]
    fn an_issuer_has_no_query() {
        let rules = AddressRules::default();
        assert_eq!(
            check_issuer("https://login.example.com/?tenant=1", rules),
            Err(BadUrl::Query)
        );
        assert_eq!(
            check_issuer("https://login.example.com/t/1/", rules),
            Ok(())
        );
    }
}
