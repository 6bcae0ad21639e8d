//! The provider, as the gateway speaks to it when it signs people in itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use felix_model::TimeMs;
use openidconnect::core::{
    CoreAuthDisplay, CoreAuthenticationFlow, CoreClaimName, CoreClaimType, CoreClient,
    CoreClientAuthMethod, CoreGrantType, CoreIdToken, CoreIdTokenClaims, CoreJsonWebKey,
    CoreJweContentEncryptionAlgorithm, CoreJweKeyManagementAlgorithm, CoreResponseMode,
    CoreResponseType, CoreSubjectIdentifierType, CoreTokenResponse,
};
use openidconnect::url::Url;
use openidconnect::{
    AdditionalProviderMetadata, AuthorizationCode, ClientId, ClientSecret, CsrfToken,
    DiscoveryError, EndpointMaybeSet, EndpointNotSet, EndpointSet, IssuerUrl, Nonce,
    OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier, ProviderMetadata, RedirectUrl,
    RefreshToken, RequestTokenError, Scope, TokenResponse,
};
use serde::{Deserialize, Serialize};

use super::http::{Http, HttpFailed};
use crate::identity::{Secret, expiry};

/// What the provider says of itself is asked again after this long, so that its keys may change.
const FRESH: Duration = Duration::from_secs(600);
/// And not more often than this, whatever keys tokens name.
const AGAIN: Duration = Duration::from_secs(30);
/// Pause after a provider could not be asked, in which everybody is told so at once.
const PAUSE: Duration = Duration::from_secs(3);

/// What discovery adds to the standard (RFC 9207, and RP-Initiated Logout).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Extra {
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    end_session_endpoint: Option<String>,
}

impl AdditionalProviderMetadata for Extra {}

type Metadata = ProviderMetadata<
    Extra,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

type Client = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// Why the provider gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProviderFailed {
    /// It cannot be reached.
    #[error("the provider cannot be reached at the moment")]
    Away,
    /// It refused; its own word for it.
    #[error("the provider refused: {0}")]
    Refused(String),
    /// What it answered is not believed.
    #[error("the provider's answer is not accepted: {0}")]
    Unbelieved(String),
}

/// Where to send the browser, and what its return is held against.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) url: String,
    pub(super) state: Secret,
    pub(super) words: Words,
}

/// What only this gateway knows of a login under way.
#[derive(Clone, Debug)]
pub(super) struct Words {
    pub(super) nonce: Secret,
    pub(super) verifier: Secret,
    pub(super) redirect_uri: String,
}

/// Somebody who signed in.
#[derive(Clone, Debug)]
pub(super) struct SignedIn {
    pub(super) id_token: Secret,
    pub(super) refresh_token: Option<Secret>,
    pub(super) subject: String,
    pub(super) name: Option<String>,
}

/// The next tokens of somebody; what is absent stays as it was.
#[derive(Clone, Debug)]
pub(super) struct Renewed {
    pub(super) id_token: Option<Secret>,
    pub(super) refresh_token: Option<Secret>,
}

/// The provider that this gateway was told of.
#[derive(Debug)]
pub(super) struct Provider {
    issuer: String,
    client_id: String,
    client_secret: Option<Secret>,
    scopes: Vec<String>,
    http: Http,
    known: Mutex<Option<(Instant, Arc<Known>)>>,
    /// Held while one login asks for all; when it last could not be asked, so that nobody waits for that again.
    asking: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Known {
    metadata: Metadata,
}

impl Provider {
    pub(super) fn new(
        issuer: &str,
        client_id: &str,
        client_secret: Option<Secret>,
        scopes: &str,
        http: Http,
    ) -> Self {
        // The library asks for `openid` by itself.
        let scopes = scopes.split_whitespace().filter(|scope| *scope != "openid");
        Self {
            issuer: issuer.to_owned(),
            client_id: client_id.to_owned(),
            client_secret,
            scopes: scopes.map(str::to_owned).collect(),
            http,
            known: Mutex::new(None),
            asking: tokio::sync::Mutex::new(None),
        }
    }

    /// Begins a login: always a code, always bound with PKCE S256, a state and a nonce. `prompt` is for people who want
    /// to come in as somebody else.
    pub(super) async fn ask(
        &self,
        redirect_uri: &str,
        prompt: Option<&'static str>,
    ) -> Result<Asked, ProviderFailed> {
        let known = self.known(FRESH).await?;
        let client = self.client(&known, redirect_uri)?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let mut request = client
            .authorize_url(
                CoreAuthenticationFlow::AuthorizationCode,
                || CsrfToken::new_random_len(32),
                || Nonce::new_random_len(32),
            )
            .set_pkce_challenge(challenge)
            .add_scopes(self.scopes.iter().cloned().map(Scope::new));
        if let Some(prompt) = prompt {
            request = request.add_extra_param("prompt", prompt);
        }
        let (url, state, nonce) = request.url();
        Ok(Asked {
            url: url.into(),
            state: Secret::new(state.into_secret()),
            words: Words {
                nonce: Secret::new(nonce.secret().as_str()),
                verifier: Secret::new(verifier.into_secret()),
                redirect_uri: redirect_uri.to_owned(),
            },
        })
    }

    /// Whether an answer comes from this provider (RFC 9207): a code of another one is not shown to this one.
    pub(super) async fn vouches(&self, issuer: Option<&str>) -> Result<(), ProviderFailed> {
        let unbelieved = |why: &str| Err(ProviderFailed::Unbelieved(why.to_owned()));
        match issuer {
            Some(issuer) if issuer != self.issuer => unbelieved("it names another issuer"),
            Some(_) => Ok(()),
            None => {
                let known = self.known(FRESH).await?;
                let extra = known.metadata.additional_metadata();
                match extra.authorization_response_iss_parameter_supported {
                    true => unbelieved("it does not say which issuer it comes from"),
                    false => Ok(()),
                }
            }
        }
    }

    /// Redeems a code.
    pub(super) async fn redeem(
        &self,
        code: &Secret,
        words: &Words,
    ) -> Result<SignedIn, ProviderFailed> {
        let known = self.known(FRESH).await?;
        let client = self.client(&known, &words.redirect_uri)?;
        let request = client
            .exchange_code(AuthorizationCode::new(code.reveal().to_owned()))
            .map_err(|error| ProviderFailed::Unbelieved(error.to_string()))?
            .set_pkce_verifier(PkceCodeVerifier::new(words.verifier.reveal().to_owned()));
        let answer = request.request_async(&self.http).await.map_err(of_token)?;
        let id_token = answer
            .id_token()
            .ok_or_else(|| ProviderFailed::Unbelieved("it holds no ID token".into()))?;
        let nonce = Nonce::new(words.nonce.reveal().to_owned());
        let claims = self.believe(id_token, Some(&nonce)).await?;
        let name = claims.preferred_username().map(|name| name.to_string());
        let name = name.or_else(|| {
            let name = claims.name().and_then(|name| name.get(None));
            name.map(|name| name.to_string())
        });
        Ok(SignedIn {
            id_token: Secret::new(id_token.to_string()),
            refresh_token: refresh_token(&answer),
            subject: claims.subject().to_string(),
            name,
        })
    }

    /// Asks for the next tokens of a person; whoever else they are for is not believed.
    pub(super) async fn renew(
        &self,
        refresh: &Secret,
        subject: &str,
    ) -> Result<Renewed, ProviderFailed> {
        let known = self.known(FRESH).await?;
        let client = self.client(&known, &self.issuer)?;
        let refresh = RefreshToken::new(refresh.reveal().to_owned());
        let request = client
            .exchange_refresh_token(&refresh)
            .map_err(|error| ProviderFailed::Unbelieved(error.to_string()))?;
        let answer = request.request_async(&self.http).await.map_err(of_token)?;
        let id_token = match answer.id_token() {
            None => None,
            Some(id_token) => {
                let claims = self.believe(id_token, None).await?;
                if claims.subject().as_str() != subject {
                    let why = "it is about another person";
                    return Err(ProviderFailed::Unbelieved(why.into()));
                }
                Some(Secret::new(id_token.to_string()))
            }
        };
        Ok(Renewed {
            id_token,
            refresh_token: refresh_token(&answer),
        })
    }

    /// Whether people can be signed out there as well, as far as is known without asking.
    pub(super) fn signs_out(&self) -> bool {
        self.end_session().is_some()
    }

    /// Where a browser is sent to sign out there too. The ID token says who; nobody but the provider that made it is
    /// shown it.
    pub(super) fn sign_out_url(
        &self,
        hint: &Secret,
        redirect_uri: &str,
        state: &Secret,
    ) -> Option<String> {
        let mut url = self.end_session()?;
        url.query_pairs_mut()
            .append_pair("id_token_hint", hint.reveal())
            .append_pair("client_id", &self.client_id)
            .append_pair("post_logout_redirect_uri", redirect_uri)
            .append_pair("state", state.reveal());
        Some(url.into())
    }

    /// The provider's own address for it. Plain http only where the provider itself is reached by it.
    fn end_session(&self) -> Option<Url> {
        let known = self.known_before()?;
        let extra = known.metadata.additional_metadata();
        let url = Url::parse(extra.end_session_endpoint.as_deref()?).ok()?;
        let plain = url.scheme() == "http" && self.issuer.starts_with("http://");
        (plain || url.scheme() == "https").then_some(url)
    }

    /// Verifies an ID token; once more with newer keys, should it be signed with one that is not known.
    async fn believe(
        &self,
        token: &CoreIdToken,
        nonce: Option<&Nonce>,
    ) -> Result<CoreIdTokenClaims, ProviderFailed> {
        let known = self.known(FRESH).await?;
        let first = self.verify(token, nonce, &known);
        match first {
            Ok(claims) => Ok(claims),
            Err(_) => {
                let known = self.known(AGAIN).await?;
                self.verify(token, nonce, &known)
            }
        }
    }

    fn verify(
        &self,
        token: &CoreIdToken,
        nonce: Option<&Nonce>,
        known: &Known,
    ) -> Result<CoreIdTokenClaims, ProviderFailed> {
        let client = self.client(known, &self.issuer)?;
        // Some providers name the client's project beside the client, and then say who asked.
        let verifier = client
            .id_token_verifier()
            .set_other_audience_verifier_fn(|_| true);
        let claims = match nonce {
            Some(nonce) => token.claims(&verifier, nonce),
            None => token.claims(&verifier, |_: Option<&Nonce>| Ok(())),
        };
        let claims = claims.map_err(|error| ProviderFailed::Unbelieved(error.to_string()))?;
        let asked_by = claims.authorized_party().map(|party| party.as_str());
        let alone = claims.audiences().len() == 1;
        match asked_by {
            Some(party) if party == self.client_id => {}
            None if alone => {}
            _ => {
                let why = "the token was made for another client";
                return Err(ProviderFailed::Unbelieved(why.into()));
            }
        }
        Ok(claims.clone())
    }

    fn client(&self, known: &Known, redirect_uri: &str) -> Result<Client, ProviderFailed> {
        let secret = self.client_secret.as_ref();
        let redirect = RedirectUrl::new(redirect_uri.to_owned())
            .map_err(|error| ProviderFailed::Unbelieved(error.to_string()))?;
        let client = CoreClient::from_provider_metadata(
            known.metadata.clone(),
            ClientId::new(self.client_id.clone()),
            secret.map(|secret| ClientSecret::new(secret.reveal().to_owned())),
        );
        Ok(client.set_redirect_uri(redirect))
    }

    /// What the provider says of itself, not older than this. When it cannot be asked, what it said before still holds.
    async fn known(&self, age_max: Duration) -> Result<Arc<Known>, ProviderFailed> {
        if let Some(known) = self.known_since(age_max) {
            return Ok(known);
        }
        let mut failed_at = self.asking.lock().await;
        if let Some(known) = self.known_since(age_max) {
            return Ok(known);
        }
        if failed_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return self.known_before().ok_or(ProviderFailed::Away);
        }
        let issuer = IssuerUrl::new(self.issuer.clone())
            .map_err(|error| ProviderFailed::Unbelieved(error.to_string()))?;
        let asked = Metadata::discover_async(issuer, &self.http).await;
        match asked {
            Ok(metadata) => {
                let known = Arc::new(Known { metadata });
                *self.lock() = Some((Instant::now(), Arc::clone(&known)));
                Ok(known)
            }
            Err(failed) => {
                tracing::warn!(issuer = self.issuer, %failed, "the provider's metadata cannot be had");
                *failed_at = Some(Instant::now());
                self.known_before().ok_or_else(|| of_discovery(&failed))
            }
        }
    }

    fn known_before(&self) -> Option<Arc<Known>> {
        self.lock().as_ref().map(|(_, known)| Arc::clone(known))
    }

    fn known_since(&self, age_max: Duration) -> Option<Arc<Known>> {
        let known = self.lock();
        let fresh = known.as_ref().filter(|(at, _)| at.elapsed() < age_max);
        fresh.map(|(_, known)| Arc::clone(known))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Arc<Known>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SignedIn {
    /// When the ID token runs out.
    pub(super) fn until(&self) -> TimeMs {
        expiry(&self.id_token)
    }
}

fn refresh_token(answer: &CoreTokenResponse) -> Option<Secret> {
    let token = answer.refresh_token();
    token.map(|token| Secret::new(token.secret().as_str()))
}

/// The provider's own word goes into answers and logs only as far as the standard lets it be one.
fn of_token<T>(failed: RequestTokenError<HttpFailed, T>) -> ProviderFailed
where
    T: openidconnect::ErrorResponse + 'static,
{
    match failed {
        RequestTokenError::ServerResponse(said) => {
            ProviderFailed::Refused(super::words(&said.to_string()))
        }
        RequestTokenError::Request(HttpFailed::TooLarge { .. }) => {
            ProviderFailed::Unbelieved("it is too large".into())
        }
        RequestTokenError::Request(_) => ProviderFailed::Away,
        RequestTokenError::Parse(..) => {
            ProviderFailed::Unbelieved("it is not of the expected form".into())
        }
        RequestTokenError::Other(_) => {
            ProviderFailed::Unbelieved("it is not one of a token endpoint".into())
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library may add more, and they come to the same"
)]
fn of_discovery(failed: &DiscoveryError<HttpFailed>) -> ProviderFailed {
    match failed {
        DiscoveryError::Request(HttpFailed::TooLarge { .. }) => {
            ProviderFailed::Unbelieved("its metadata is too large".into())
        }
        DiscoveryError::Request(_) | DiscoveryError::Response(..) => ProviderFailed::Away,
        _ => ProviderFailed::Unbelieved("its metadata is not accepted".into()),
    }
}
