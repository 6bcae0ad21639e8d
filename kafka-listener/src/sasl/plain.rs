//! SASL/PLAIN (RFC 4616): the tenant as user name, a token or a service account's secret as password.

use super::{Credential, LoginRefused};

/// Reads `[authzid] NUL authcid NUL password`.
///
/// # Errors
/// [`LoginRefused`] when it is something else, or asks to act for somebody else.
pub(super) fn read(bytes: &[u8]) -> Result<Credential, LoginRefused> {
    let bad = |why: &str| LoginRefused(format!("PLAIN: {why}"));
    let message = std::str::from_utf8(bytes).map_err(|_| bad("the message is not UTF-8"))?;
    let mut parts = message.split('\0');
    let (Some(acts_for), Some(tenant), Some(secret), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(bad("the message is not [authzid] NUL authcid NUL password"));
    };
    if tenant.is_empty() || secret.is_empty() {
        return Err(bad(
            "the user name is the tenant and the password a token; one is empty",
        ));
    }
    if !acts_for.is_empty() && acts_for != tenant {
        return Err(bad("acting for another user is not possible"));
    }
    Ok(Credential {
        tenant: Some(tenant.to_owned()),
        secret: secret.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_and_token_are_read() {
        for message in ["\0acme\0token", "acme\0acme\0token"] {
            let credential = read(message.as_bytes()).unwrap();
            assert_eq!(credential.tenant.as_deref(), Some("acme"));
            assert_eq!(credential.secret, "token");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for message in [
            "",
            "acme\0token",
            "\0\0token",
            "\0acme\0",
            "x\0acme\0t",
            "\0a\0b\0c",
        ] {
            assert!(read(message.as_bytes()).is_err(), "{message:?}");
        }
        assert!(read(b"\0acme\0\xff").is_err());
    }

    #[test]
    fn the_secret_is_not_shown() {
        let shown = format!("{:?}", read(b"\0acme\0hidden").unwrap());
        assert!(!shown.contains("hidden"), "{shown}");
    }
}
