//! A provider, the routes in front of it, and a browser as far as cookies go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use openidconnect::url::Url;
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Method, Response};
use serde_json::Value;

use crate::origin::Origins;
use crate::sign_in::{Session, Settings, SignIn, routes, session_of};
use crate::stub::Served;
use crate::stub::provider::{self, CLIENT, Manners, Provider};

/// What has not happened after this long does not happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Bench {
    pub(super) provider: provider::Running,
    pub(super) sign_in: Arc<SignIn>,
    pub(super) served: Served,
}

/// A browser, as far as cookies go.
#[derive(Default)]
pub(super) struct Browser {
    pub(super) cookies: BTreeMap<String, String>,
}

impl Bench {
    pub(super) async fn new(manners: Manners) -> Self {
        let provider = Provider::start(manners).await;
        let settings = Settings {
            issuer: provider.served.url(),
            client_id: CLIENT.into(),
            client_secret: None,
            scopes: "openid profile".into(),
            provider_roots: Vec::new(),
            origins: Origins::new(None, &[]).unwrap(),
            trusted_proxies: 0,
        };
        let sign_in = Arc::new(SignIn::new(settings).unwrap());
        let router = routes::<Arc<SignIn>>().with_state(Arc::clone(&sign_in));
        Self {
            provider,
            sign_in,
            served: Served::start(router).await,
        }
    }

    /// Sends a browser to sign in; what the provider is asked.
    pub(super) async fn begin(
        &self,
        browser: &mut Browser,
        query: &str,
    ) -> BTreeMap<String, String> {
        let answer = browser.get(self, &format!("/auth/login{query}")).await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER, "{answer:?}");
        let url = Url::parse(location(&answer)).unwrap();
        assert!(url.as_str().starts_with(&self.provider.served.url()));
        url.query_pairs().into_owned().collect()
    }

    /// The way back from the provider, as it should be.
    pub(super) fn back(&self, asked: &BTreeMap<String, String>) -> String {
        let code = self.provider.provider.agree(asked);
        format!("/auth/callback?code={code}&state={}", asked["state"])
    }

    /// Signs in, and what the browser is answered in the end.
    pub(super) async fn signs_in(&self, browser: &mut Browser) -> Response {
        let asked = self.begin(browser, "?return_to=/board/7").await;
        browser.get(self, &self.back(&asked)).await
    }

    pub(super) fn found(&self, browser: &Browser) -> Option<Arc<Session>> {
        let mut headers = HeaderMap::new();
        headers.insert("cookie", browser.cookie().parse().unwrap());
        self.sign_in.sessions().find(&session_of(&headers)?)
    }
}

impl Browser {
    pub(super) async fn get(&mut self, bench: &Bench, path: &str) -> Response {
        self.send(bench, Method::GET, path, &[]).await
    }

    pub(super) async fn send(
        &mut self,
        bench: &Bench,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Response {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        let mut request = client.request(method, format!("{}{path}", bench.served.url()));
        if !self.cookies.is_empty() {
            request = request.header(COOKIE, self.cookie());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        for cookie in answer.headers().get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            match cookie.contains("Max-Age=0") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        answer
    }

    pub(super) fn cookie(&self) -> String {
        let pairs = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("; ")
    }

    pub(super) async fn signs_out(
        &mut self,
        bench: &Bench,
        headers: &[(&str, &str)],
    ) -> StatusCode {
        let answer = self
            .send(bench, Method::POST, "/auth/logout", headers)
            .await;
        answer.status()
    }

    pub(super) async fn session(&mut self, bench: &Bench) -> Value {
        let answer = self.get(bench, "/auth/session").await;
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    }
}

pub(super) fn location(answer: &Response) -> &str {
    answer.headers()[LOCATION].to_str().unwrap()
}

pub(super) async fn refused(answer: Response, status: StatusCode, says: &str) {
    assert_eq!(answer.status(), status);
    assert!(answer.headers().get(SET_COOKIE).is_none());
    let text = answer.text().await.unwrap();
    assert!(text.contains(says), "{text}");
}
