//! Whose pages may speak to this gateway from a browser.
//!
//! A browser says on every WebSocket and every request that changes something which origin the page is of, and a page
//! cannot change that. Origins are compared whole and exactly: nothing is allowed for being longer, shorter or alike.

use axum::http::HeaderMap;
use axum::http::header::ORIGIN;
use openidconnect::url::Url;

use crate::address::Seen;

/// Why an entry of the configuration is no origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an origin; write scheme, host and, if it is not the scheme's own, port: `https://app.example`"
)]
pub struct BadOrigin(String);

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OriginRefused {
    /// It comes from a page of another site.
    #[error("pages of this origin may not connect here")]
    Foreign,
    /// It does not say where it comes from, and must.
    #[error("the request does not say which origin it comes from")]
    Absent,
}

/// What a request says of its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// It is one that may.
    Allowed,
    /// There is none: this is no browser, or it asks for something that no other site can read.
    Unsaid,
}

/// The origins that may.
#[derive(Clone, Debug)]
pub(crate) struct Origins {
    /// The gateway's own, where it is configured; otherwise it is what the request was sent to.
    own: Option<String>,
    others: Vec<String>,
}

impl Origins {
    /// Reads the configuration.
    ///
    /// # Errors
    /// [`BadOrigin`] names the entry.
    pub(crate) fn new(public_url: Option<&str>, others: &[String]) -> Result<Self, BadOrigin> {
        Ok(Self {
            own: public_url.map(parse).transpose()?,
            others: others
                .iter()
                .map(|one| parse(one))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The gateway's own origin as this request's browser sees it.
    pub(crate) fn own(&self, seen: &Seen) -> Option<String> {
        self.own.clone().or_else(|| seen.origin())
    }

    /// Whether the gateway's own origin is configured, and not only what a request says.
    pub(crate) const fn is_configured(&self) -> bool {
        self.own.is_some()
    }

    /// Refuses other sites' pages.
    ///
    /// # Errors
    /// [`OriginRefused::Foreign`].
    pub(crate) fn check(&self, headers: &HeaderMap, seen: &Seen) -> Result<Page, OriginRefused> {
        let mut said = headers.get_all(ORIGIN).iter();
        let origin = match (said.next(), said.next()) {
            (None, _) => return Ok(Page::Unsaid),
            (Some(origin), None) => origin.as_bytes(),
            (Some(_), Some(_)) => return Err(OriginRefused::Foreign),
        };
        let own = self.own(seen);
        let mut allowed = own.iter().chain(&self.others);
        match allowed.any(|one| one.as_bytes() == origin) {
            true => Ok(Page::Allowed),
            false => Err(OriginRefused::Foreign),
        }
    }

    /// As [`Origins::check`], for what acts by a cookie: it must say which page it comes from.
    ///
    /// # Errors
    /// [`OriginRefused`].
    pub(crate) fn must(&self, headers: &HeaderMap, seen: &Seen) -> Result<(), OriginRefused> {
        match self.check(headers, seen)? {
            Page::Allowed => Ok(()),
            Page::Unsaid => Err(OriginRefused::Absent),
        }
    }
}

/// An origin as browsers write it. A slash at the end is forgiven in the configuration.
fn parse(text: &str) -> Result<String, BadOrigin> {
    let bad = || BadOrigin(text.to_owned());
    let url = Url::parse(text).map_err(|_| bad())?;
    let origin = url.origin();
    let is_web = matches!(url.scheme(), "http" | "https") && !text.contains('*');
    let written = origin.ascii_serialization();
    let alike = text.strip_suffix('/').unwrap_or(text);
    match is_web && origin.is_tuple() && written.eq_ignore_ascii_case(alike) {
        true => Ok(written),
        false => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn request(host: &str, origins: &[&str]) -> (HeaderMap, Seen) {
        let mut headers = HeaderMap::new();
        headers.append("host", HeaderValue::from_str(host).unwrap());
        for origin in origins {
            headers.append(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        let seen = Seen::read(&headers, "127.0.0.1".parse().unwrap(), 0);
        (headers, seen)
    }

    #[test]
    fn suffix_prefix_null_port_and_scheme_mismatches_are_refused() {
        let others = ["https://partner.example".to_owned()];
        let origins = Origins::new(Some("https://app.example"), &others).unwrap();
        for (origin, allowed) in [
            ("https://app.example", true),
            ("https://partner.example", true),
            ("null", false),
            ("http://app.example", false),
            ("https://app.example:8443", false),
            ("https://app.example:443", false),
            ("https://app.example.evil.example", false),
            ("https://evilapp.example", false),
            ("https://sub.app.example", false),
            ("https://app.exampl", false),
            ("https://app.example/", false),
            ("HTTPS://app.example", false),
            ("https://user@app.example", false),
            ("", false),
        ] {
            let (headers, seen) = request("app.example", &[origin]);
            let checked = origins.check(&headers, &seen);
            assert_eq!(checked.is_ok(), allowed, "{origin}: {checked:?}");
        }
        let (headers, seen) = request(
            "app.example",
            &["https://app.example", "https://app.example"],
        );
        assert_eq!(origins.check(&headers, &seen), Err(OriginRefused::Foreign));
    }

    #[test]
    fn without_a_configured_origin_it_is_the_one_the_request_was_sent_to() {
        let origins = Origins::new(None, &[]).unwrap();
        for (host, origin, allowed) in [
            ("127.0.0.1:8787", "http://127.0.0.1:8787", true),
            ("localhost:8787", "http://127.0.0.1:8787", false),
            ("127.0.0.1:8787", "http://127.0.0.1:8788", false),
            ("127.0.0.1:8787", "https://127.0.0.1:8787", false),
        ] {
            let (headers, seen) = request(host, &[origin]);
            assert_eq!(
                origins.check(&headers, &seen).is_ok(),
                allowed,
                "{host} {origin}"
            );
        }
    }

    #[test]
    fn absence_is_denied_where_a_cookie_acts_and_only_there() {
        let origins = Origins::new(None, &[]).unwrap();
        let (headers, seen) = request("localhost:1", &[]);
        assert_eq!(origins.check(&headers, &seen), Ok(Page::Unsaid));
        assert_eq!(origins.must(&headers, &seen), Err(OriginRefused::Absent));
    }

    #[test]
    fn an_entry_that_is_no_origin_is_refused_by_name() {
        for bad in [
            "https://app.example/path",
            "app.example",
            "*",
            "https://*.example",
            "https://user@app.example",
            "https://app.example?x",
            "null",
            "file:///x",
        ] {
            let refused = Origins::new(Some(bad), &[]).unwrap_err();
            assert!(refused.to_string().contains(bad), "{refused}");
        }
        let written = Origins::new(Some("https://app.example/"), &[]).unwrap();
        assert_eq!(written.own.as_deref(), Some("https://app.example"));
    }
}
