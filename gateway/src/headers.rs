//! Headers of every answer that a browser shows or runs.

use axum::extract::Request;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use crate::config::Config;

const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const PERMISSIONS: HeaderName = HeaderName::from_static("permissions-policy");

/// What pages may do: run and load what comes from here, talk to the gateway and to the provider, be framed by nobody.
pub(crate) fn policy(config: &Config) -> Option<HeaderValue> {
    let mut connect = "'self'".to_owned();
    let origins = [
        Some(config.oidc_issuer.as_str()),
        config.public_url.as_deref(),
    ];
    for origin in origins.into_iter().flatten().filter_map(origin_of) {
        connect.push(' ');
        connect.push_str(&origin);
        // Not every browser takes 'self' to mean the WebSocket of the same origin.
        if config.public_url.as_deref().and_then(origin_of).as_ref() == Some(&origin) {
            connect.push_str(&format!(" {}", origin.replacen("http", "ws", 1)));
        }
    }
    let text = format!(
        "default-src 'self'; connect-src {connect}; img-src 'self' data: blob:; frame-ancestors 'none'; \
         base-uri 'none'; object-src 'none'; form-action 'self'; require-trusted-types-for 'script'"
    );
    HeaderValue::from_str(&text).ok()
}

/// `scheme://host[:port]` of a URL; `None` when it has none that could stand in a policy.
fn origin_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    let fits = matches!(scheme, "http" | "https") && !host.is_empty() && host.bytes().all(plain);
    fits.then(|| format!("{scheme}://{host}"))
}

/// Puts them on an answer, unless it brought its own.
pub(crate) async fn protect(policy: Option<HeaderValue>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    if let Some(policy) = policy {
        headers
            .entry(header::CONTENT_SECURITY_POLICY)
            .or_insert(policy);
    }
    let fixed = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (OPENER, "same-origin"),
        (RESOURCE, "same-origin"),
        (PERMISSIONS, "camera=(), microphone=(), geolocation=()"),
    ];
    for (name, value) in fixed {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_may_talk_to_the_gateway_and_the_provider_and_to_nobody_else() {
        let config = Config {
            oidc_issuer: "https://login.example/realms/a".into(),
            public_url: Some("https://app.example".into()),
            ..Config::default()
        };
        let policy = policy(&config).unwrap();
        let policy = policy.to_str().unwrap();
        let connect =
            "connect-src 'self' https://login.example https://app.example wss://app.example;";
        assert!(policy.contains(connect), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"));
    }

    #[test]
    fn what_is_no_origin_never_gets_into_the_policy() {
        assert_eq!(origin_of("https://a; script-src *"), None);
        assert_eq!(origin_of("javascript:alert(1)"), None);
        assert_eq!(origin_of("http://[::1]:9/x").unwrap(), "http://[::1]:9");
    }
}
