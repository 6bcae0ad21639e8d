//! `token show | decode | mint`.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_auth::Audience;
use serde_json::{Value, json};

use super::App;
use crate::api::{Api, quote};
use crate::cli::{TokenCommand, TokenMint};
use crate::credentials::now_seconds;
use crate::exit::Failure;
use crate::output::{Field, Report};
use crate::parse::show_time;
use crate::trust::Tls;

/// How long a minted token lives, in seconds: a day, so that it outlives a working day and no
/// more.
const MINTED_SECONDS: u64 = 86_400;

pub(super) async fn run(app: &App, command: TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Show { controlplane } => {
            let audience = match controlplane {
                true => Audience::ControlPlane,
                false => Audience::Broker,
            };
            let token = app.tokens(&app.settings()?, audience)?.token().await?;
            Ok(app.output.text(&format!("{}\n", token.reveal()))?)
        }
        TokenCommand::Decode { jwt } => {
            let token = match jwt {
                Some(jwt) => jwt.into(),
                None => {
                    app.tokens(&app.settings()?, Audience::Broker)?
                        .token()
                        .await?
                }
            };
            show(app, &Claims::decode(token.reveal())?)
        }
        TokenCommand::Mint(mint) => mint_token(app, &mint).await,
    }
}

/// What a token says about itself. Nothing here was verified.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    header: Value,
    body: Value,
}

impl Claims {
    /// Reads the two parts of a token that are no secret.
    pub(super) fn decode(token: &str) -> Result<Self, Failure> {
        let mut parts = token.trim().split('.');
        let mut part = |name: &str| {
            let text = parts.next().unwrap_or_default();
            let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
            bytes
                .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok())
                .filter(Value::is_object)
                .ok_or_else(|| {
                    Failure::usage(format!("this is no token: its {name} is unreadable"))
                })
        };
        Ok(Self {
            header: part("header")?,
            body: part("body")?,
        })
    }

    /// The tenant the token acts in.
    pub(super) fn tenant(&self) -> &str {
        self.body
            .get("tid")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// A claim that is text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.body.get(name).and_then(Value::as_str)
    }

    /// A claim as it is.
    pub(super) fn claim(&self, name: &str) -> Value {
        self.body.get(name).cloned().unwrap_or(Value::Null)
    }

    /// What it allows, as it is written in the token.
    pub(super) fn permissions(&self) -> impl Iterator<Item = &str> {
        self.body
            .get("perms")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    }

    /// Whether its time is over at this moment, in Unix seconds.
    pub(super) fn expired(&self, now: u64) -> bool {
        self.body
            .get("exp")
            .and_then(Value::as_u64)
            .is_some_and(|expires| expires <= now)
    }
}

fn show(app: &App, claims: &Claims) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("subject"),
        Field::plain("tenant"),
        Field::plain("audience"),
        Field::plain("issued_at"),
        Field::plain("expires_at"),
        Field::plain("expired"),
        Field::plain("loopback_only"),
        Field::plain("actor"),
        Field::plain("key_id"),
        Field::plain("algorithm"),
        Field::plain("issuer"),
        Field::plain("permissions"),
    ];
    let body = |name: &str| claims.body.get(name).cloned().unwrap_or(Value::Null);
    let head = |name: &str| claims.header.get(name).cloned().unwrap_or(Value::Null);
    let time = |name: &str| {
        let seconds = claims.body.get(name).and_then(Value::as_i64);
        seconds.map(|seconds| show_time(seconds.saturating_mul(1_000)))
    };
    let decoded = json!({
        "subject": body("sub"),
        "tenant": body("tid"),
        "audience": body("aud"),
        "issued_at": time("iat"),
        "expires_at": time("exp"),
        "expired": claims.expired(now_seconds()),
        "loopback_only": body("loopback"),
        "actor": claims.body.pointer("/act/sub").cloned(),
        "key_id": head("kid"),
        "algorithm": head("alg"),
        "issuer": body("iss"),
        "permissions": claims.permissions().collect::<Vec<_>>(),
    });
    app.output
        .report(&Report::one("felixctl.token.decode/1", FIELDS, &decoded))?;
    Ok(app.output.say("the signature was not checked")?)
}

async fn mint_token(app: &App, mint: &TokenMint) -> Result<(), Failure> {
    let settings = app.settings()?;
    let node = DevNode::find(app, mint)?;
    let secret = fs::read_to_string(&node.secret_file).map_err(|error| {
        Failure::usage(format!(
            "the bootstrap secret {} cannot be read: {error}",
            node.secret_file.display()
        ))
        .with_hint("tokens are minted beside a node that `felixctl dev` started")
    })?;
    let api = Api::new(
        &node.url,
        None,
        &Tls::default(),
        app.timeout(),
        "the bootstrap listener",
    )?
    .with_header("x-felix-bootstrap-token", secret.trim())?;
    let mut body = json!({
        "principal": mint.principal,
        "audience": mint.audience,
        "ttl_seconds": MINTED_SECONDS,
    });
    if let (Some(body), false) = (body.as_object_mut(), mint.permissions.is_empty()) {
        body.insert("permissions".into(), mint.permissions.clone().into());
    }
    let path = format!(
        "/internal/bootstrap/tenants/{}/dev-token",
        quote(settings.tenant()?)
    );
    let answer = api.post(&path, Some(&body)).await?;
    let token = answer
        .get("felix_token")
        .and_then(Value::as_str)
        .unwrap_or_default();
    const FIELDS: &[Field] = &[Field::plain("token"), Field::plain("expires_in_seconds")];
    if app.output.is_json() {
        let minted = json!({ "token": token, "expires_in_seconds": answer.get("expires_in") });
        return Ok(app
            .output
            .report(&Report::one("felixctl.token.mint/1", FIELDS, &minted))?);
    }
    Ok(app.output.text(&format!("{token}\n"))?)
}

/// Where the bootstrap listener of a development node is and where its secret is kept.
struct DevNode {
    url: String,
    secret_file: PathBuf,
}

impl DevNode {
    fn find(app: &App, mint: &TokenMint) -> Result<Self, Failure> {
        if let (Some(url), Some(file)) = (&mint.bootstrap_url, &mint.bootstrap_token_file) {
            return Ok(Self {
                url: url.clone(),
                secret_file: file.clone(),
            });
        }
        let directory = match &mint.data_dir {
            Some(directory) => directory.clone(),
            None => app.surroundings.dev_dir()?,
        };
        let file = directory.join(crate::dev::BOOTSTRAP_URL_FILE);
        let url = match &mint.bootstrap_url {
            Some(url) => url.clone(),
            None => fs::read_to_string(&file)
                .map_err(|error| {
                    Failure::usage(format!("{} cannot be read: {error}", file.display()))
                        .with_hint("is `felixctl dev` running? name its directory with --data-dir")
                })?
                .trim()
                .to_owned(),
        };
        let secret_file = mint
            .bootstrap_token_file
            .clone()
            .unwrap_or_else(|| directory.join(crate::dev::BOOTSTRAP_SECRET_FILE));
        Ok(Self { url, secret_file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    /// Header `{"alg":"EdDSA","kid":"k1"}` and a body with two permissions, signature left out.
    fn token() -> String {
        let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
        format!(
            "{}.{}.c2ln",
            part(json!({"alg": "EdDSA", "kid": "k1"})),
            part(json!({
                "tid": "dev", "sub": "p:dev", "exp": 100,
                "perms": ["stream.publish:stream:dev/default/*", "node.view:cluster:*"],
            }))
        )
    }

    #[test]
    fn a_token_is_decoded_without_its_signature() {
        let claims = Claims::decode(&token()).expect("decoded");
        assert_eq!(claims.tenant(), "dev");
        assert_eq!(claims.permissions().count(), 2);
        assert!(claims.expired(100) && !claims.expired(99));
    }

    #[test]
    fn what_is_no_token_is_refused_by_its_part() {
        for text in ["", "x", "e30", "e30.", "e30.bm8", "W10.e30", "!!.e30"] {
            assert_eq!(Claims::decode(text).expect_err(text).exit, Exit::Usage);
        }
    }
}
