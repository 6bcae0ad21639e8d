//! The cookies: one for a login under way, one for a sign-in, one for a sign-out that goes on at the provider.
//!
//! All carry the `__Host-` prefix, so no other host and no path can set or receive them, and `Secure`: browsers treat
//! `http` on loopback as secure for this, and a gateway that is reached by plain http from elsewhere signs nobody in.

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::identity::Secret;

/// Names a sign-in.
pub(super) const SESSION: &str = "__Host-felix_session";
/// Binds logins under way to a browser.
pub(super) const LOGIN: &str = "__Host-felix_login";
/// Binds a sign-out under way to a browser.
pub(super) const LOGOUT: &str = "__Host-felix_logout";

/// Characters of 256 bits in base64url.
const TEXT_LENGTH: usize = 43;
/// Bytes of cookies that are looked at.
const COOKIES_BYTES_MAX: usize = 16 * 1024;

/// 256 random bits as a cookie carries them.
pub(super) fn random() -> Result<Secret, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(Secret::new(URL_SAFE_NO_PAD.encode(bytes)))
}

/// A cookie of ours, if the request has it and it is of the form we give out. A name that comes twice was not set by us
/// both times, so it counts for nothing.
pub(super) fn read(headers: &HeaderMap, name: &str) -> Option<Secret> {
    let mut left = COOKIES_BYTES_MAX;
    let mut found = None;
    for header in headers.get_all(COOKIE) {
        left = left.checked_sub(header.len())?;
        for pair in header.to_str().ok()?.split(';') {
            let Some((key, value)) = pair.trim().split_once('=') else {
                continue;
            };
            if key == name && found.replace(value.to_owned()).is_some() {
                return None;
            }
        }
    }
    found.filter(|value| is_well_formed(value)).map(Secret::new)
}

/// The `Set-Cookie` that stores a value for so many seconds.
pub(super) fn set(name: &str, value: &Secret, max_age_s: u64) -> String {
    let value = value.reveal();
    format!("{name}={value}; Path=/; Max-Age={max_age_s}; Secure; HttpOnly; SameSite=Lax")
}

/// The `Set-Cookie` that removes one.
pub(super) fn clear(name: &str) -> String {
    format!("{name}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax")
}

pub(super) fn is_well_formed(text: &str) -> bool {
    text.len() == TEXT_LENGTH
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(cookies: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(COOKIE, HeaderValue::from_str(cookie).unwrap());
        }
        headers
    }

    #[test]
    fn a_cookie_is_read_back_as_it_was_set() {
        let value = random().unwrap();
        let set = set(SESSION, &value, 60);
        for word in [
            "__Host-",
            "; Path=/",
            "; Secure",
            "; HttpOnly",
            "; SameSite=Lax",
        ] {
            assert!(set.contains(word), "{set}");
        }
        assert!(!set.contains("Domain"), "{set}");
        let pair = set.split(';').next().unwrap();
        let found = read(&headers(&[&format!("a=b; {pair}; c=d")]), SESSION).unwrap();
        assert_eq!(found.reveal(), value.reveal());
        assert_ne!(random().unwrap().reveal(), value.reveal());
    }

    #[test]
    fn what_was_not_given_out_here_is_no_cookie_of_ours() {
        let good = "A".repeat(TEXT_LENGTH);
        let cookie = |value: &str| format!("{SESSION}={value}");
        for bad in [
            cookie(""),
            cookie(&good[1..]),
            cookie(&format!("{}%", &good[1..])),
            format!("felix_session={good}"),
            // Set twice: one of them by somebody else.
            format!("{}; {}", cookie(&good), cookie(&good)),
        ] {
            assert!(read(&headers(&[&bad]), SESSION).is_none(), "{bad}");
        }
        let long = format!("x={}", "y".repeat(COOKIES_BYTES_MAX));
        assert!(read(&headers(&[&long, &cookie(&good)]), SESSION).is_none());
        assert!(read(&headers(&[&cookie(&good)]), SESSION).is_some());
    }
}
