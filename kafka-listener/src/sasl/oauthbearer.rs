//! SASL/OAUTHBEARER (RFC 7628): a bearer token, and the tenant as an extension where the token does not say it.

use bytes::Bytes;

use super::{Credential, LoginRefused};

/// Extensions that name the tenant; the second is what Kafka's cloud services call it.
const TENANT_EXTENSIONS: [&str; 2] = ["tenant", "logicalCluster"];

/// Reads `n,[a=authzid],\x01auth=Bearer token\x01[key=value\x01]*\x01`.
///
/// # Errors
/// [`LoginRefused`] when it is something else.
pub(super) fn read(bytes: &[u8]) -> Result<Credential, LoginRefused> {
    let bad = |why: &str| LoginRefused(format!("OAUTHBEARER: {why}"));
    let message = std::str::from_utf8(bytes).map_err(|_| bad("the message is not UTF-8"))?;
    let (binding, pairs) = message
        .split_once('\u{1}')
        .ok_or_else(|| bad("the message has no parts"))?;
    if !binding.starts_with("n,") {
        return Err(bad("channel binding is not possible"));
    }
    let (mut token, mut tenant) = (None, None);
    for pair in pairs.split('\u{1}').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| bad("a part is not key=value"))?;
        match key {
            "auth" if token.is_some() => return Err(bad("there are two tokens")),
            "auth" => token = bearer(value),
            _ if TENANT_EXTENSIONS.contains(&key) => tenant = Some(value.to_owned()),
            _ => {}
        }
    }
    let secret = token.ok_or_else(|| bad("there is no bearer token"))?;
    Ok(Credential {
        tenant,
        secret: secret.to_owned(),
    })
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// What the mechanism says to a client whose token is refused. A login that succeeds is answered with nothing at all.
pub(super) fn refusal(refused: &LoginRefused) -> Bytes {
    let text = serde_json::json!({
        "status": "invalid_token",
        "error_description": refused.0,
    });
    Bytes::from(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_and_the_tenant_are_read() {
        let plain = read(b"n,,\x01auth=Bearer abc\x01\x01").unwrap();
        assert_eq!((plain.tenant, &*plain.secret), (None, "abc"));
        let with = read(b"n,a=me,\x01auth=bearer abc\x01tenant=acme\x01x=y\x01\x01").unwrap();
        assert_eq!(with.tenant.as_deref(), Some("acme"));
        let cloud = read(b"n,,\x01logicalCluster=acme\x01auth=Bearer abc\x01\x01").unwrap();
        assert_eq!(cloud.tenant.as_deref(), Some("acme"));
    }

    #[test]
    fn anything_else_is_refused() {
        for message in [
            "",
            "n,,",
            "p=x,,\u{1}auth=Bearer abc\u{1}\u{1}",
            "n,,\u{1}auth=Basic abc\u{1}\u{1}",
            "n,,\u{1}auth=Bearer \u{1}\u{1}",
            "n,,\u{1}auth=Bearer a\u{1}auth=Bearer b\u{1}\u{1}",
            "n,,\u{1}tenant\u{1}auth=Bearer a\u{1}",
        ] {
            assert!(read(message.as_bytes()).is_err(), "{message:?}");
        }
    }

    #[test]
    fn a_refusal_is_in_the_words_of_the_mechanism() {
        let text = refusal(&LoginRefused("it \"ran\" out".into()));
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(json["status"], "invalid_token");
    }
}
