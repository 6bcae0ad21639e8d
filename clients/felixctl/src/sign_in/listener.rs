//! The listener on this machine that the browser comes back to.
//!
//! It answers one address, exactly: another path, another method, another host or a wrong `state`
//! is refused and changes nothing, because any page in the person's browser can send a request
//! here. A browser that brings the answer is sent on at once to an address without the code, so
//! that neither its history nor a `Referer` keeps it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::provider::is_loopback;
use crate::exit::Failure;
use crate::secret::Secret;

/// Where the browser comes back to when nobody says otherwise; the port is any free one.
const REDIRECT: &str = "http://127.0.0.1/callback";
/// Largest head of a request that is read. A code is far shorter.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Connections that are read at the same time. Browsers open some in advance and send nothing on
/// them, so one after the other would be too slow.
const CONNECTIONS_MAX: usize = 16;
/// How long one request may take to arrive.
const HEAD_WAIT: Duration = Duration::from_secs(5);
/// How long the browser may take to ask for the last page.
const LAST_PAGE_WAIT: Duration = Duration::from_secs(2);
/// Path of the last page, below that of the redirect.
const DONE: &str = "/done";

/// The address that the provider is told to send the browser back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    host: String,
    /// `0` for any free one.
    port: u16,
    path: String,
}

impl Redirect {
    /// Reads an address; `None` is the usual one.
    ///
    /// # Errors
    /// When it is not http on this machine, or has a query, a fragment or a password in it.
    pub fn parse(text: Option<&str>) -> Result<Self, Failure> {
        let text = text.unwrap_or(REDIRECT);
        let refused = || {
            Failure::usage(format!("{text:?} is no redirect address of this machine"))
                .with_hint("for example http://127.0.0.1/callback or http://localhost:8250/")
        };
        let url: Url = text.parse().map_err(|_| refused())?;
        let host = url.host_str().unwrap_or_default();
        let plain = url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if url.scheme() != "http" || !is_loopback(host) || !plain {
            return Err(refused());
        }
        Ok(Self {
            host: host.to_owned(),
            port: url.port().unwrap_or(0),
            path: url.path().to_owned(),
        })
    }
}

/// What the browser brought.
#[derive(Clone, Debug)]
pub(super) struct Returned {
    /// The issuer that sent it, when it says so.
    pub issuer: Option<String>,
    /// The code, or the provider's error and its description.
    pub outcome: Result<Secret, (String, String)>,
}

/// A listener that waits for the browser.
#[derive(Debug)]
pub(super) struct Listener {
    socket: TcpListener,
    redirect: Redirect,
    arriving: JoinSet<(TcpStream, Option<String>)>,
}

impl Listener {
    pub(super) async fn bind(mut redirect: Redirect) -> Result<Self, Failure> {
        let bare = redirect.host.trim_start_matches('[').trim_end_matches(']');
        // `localhost` is listened for where every browser tries in the end.
        let address = bare.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let cannot = |error: std::io::Error| {
            Failure::failed(format!("nothing can listen for the browser: {error}"))
        };
        let socket = TcpListener::bind(SocketAddr::new(address, redirect.port))
            .await
            .map_err(cannot)?;
        redirect.port = socket.local_addr().map_err(cannot)?.port();
        Ok(Self {
            socket,
            redirect,
            arriving: JoinSet::new(),
        })
    }

    pub(super) fn redirect_uri(&self) -> String {
        let Redirect { host, port, path } = &self.redirect;
        format!("http://{host}:{port}{path}")
    }

    /// Waits for the answer to the request with this `state`.
    pub(super) async fn returned(&mut self, state: &Secret) -> Result<Returned, Failure> {
        loop {
            let Some((mut browser, target)) = self.request().await? else {
                continue;
            };
            match self.understand(&target, state) {
                Ok(returned) => {
                    let to = format!("{}{DONE}", self.redirect.path.trim_end_matches('/'));
                    respond(&mut browser, "303 See Other", Some(&to), "Go on.").await;
                    return Ok(returned);
                }
                Err(why) => {
                    tracing::warn!(
                        why,
                        "a request that is no answer to this sign-in is refused"
                    );
                    respond(&mut browser, "400 Bad Request", None, why).await;
                }
            }
        }
    }

    /// Shows the person in the browser how it went. Whoever has closed the window sees it in the
    /// terminal.
    pub(super) async fn finish<T>(&mut self, outcome: &Result<T, Failure>) {
        let text = match outcome {
            Ok(_) => "You are signed in. You can close this window and go back to the terminal.",
            Err(_) => "You are not signed in. The terminal says why.",
        };
        let last_page = async {
            while let Ok(request) = self.request().await {
                let Some((mut browser, target)) = request else {
                    continue;
                };
                if target.ends_with(DONE) {
                    respond(&mut browser, "200 OK", None, text).await;
                    return;
                }
                respond(&mut browser, "404 Not Found", None, "Nothing is here.").await;
            }
        };
        // Nobody waits longer for a browser that was closed.
        let _ = tokio::time::timeout(LAST_PAGE_WAIT, last_page).await;
    }

    /// The next request's target, or `None` for something that is none.
    async fn request(&mut self) -> Result<Option<(TcpStream, String)>, Failure> {
        let (mut browser, head) = loop {
            tokio::select! {
                accepted = self.socket.accept(), if self.arriving.len() < CONNECTIONS_MAX => {
                    let (browser, _) = accepted?;
                    self.arriving.spawn(read_head(browser));
                }
                Some(Ok(arrived)) = self.arriving.join_next() => break arrived,
            }
        };
        let target = head.and_then(|head| self.target(&head));
        if target.is_none() {
            respond(&mut browser, "400 Bad Request", None, "Not understood.").await;
        }
        Ok(target.map(|target| (browser, target)))
    }

    /// The target of a GET that was meant for this host. Another `Host` is a name that somebody
    /// pointed at this machine.
    fn target(&self, head: &str) -> Option<String> {
        let mut lines = head.split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, target, version) = (first.next()?, first.next()?, first.next()?);
        let host = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("host").then(|| value.trim())
        })?;
        let own = format!("{}:{}", self.redirect.host, self.redirect.port);
        let good = method == "GET" && version.starts_with("HTTP/1.") && host == own;
        good.then(|| target.to_owned())
    }

    fn understand(&self, target: &str, state: &Secret) -> Result<Returned, &'static str> {
        let url: Url = format!("http://localhost{target}")
            .parse()
            .map_err(|_| "This is no address.")?;
        if url.path() != self.redirect.path {
            return Err("Nothing is here.");
        }
        let mut code = None;
        let mut error = None;
        let (mut description, mut issuer, mut answered) = (None, None, None);
        for (name, value) in url.query_pairs() {
            let field = match name.as_ref() {
                "code" => &mut code,
                "error" => &mut error,
                "error_description" => &mut description,
                "iss" => &mut issuer,
                "state" => &mut answered,
                _ => continue,
            };
            if field.replace(value.into_owned()).is_some() {
                return Err("A parameter is given twice.");
            }
        }
        if !answered.is_some_and(|answered| same(&answered, state.reveal())) {
            return Err("This is no answer to the sign-in that is under way.");
        }
        let outcome = match (code, error) {
            (Some(code), None) => Ok(code.into()),
            (None, Some(error)) => Err((error, description.unwrap_or_default())),
            _ => return Err("There must be a code or an error."),
        };
        Ok(Returned { issuer, outcome })
    }
}

/// Compares without telling by the time it takes how much was right.
fn same(one: &str, other: &str) -> bool {
    let differs = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && differs == 0
}

/// Reads up to the empty line that ends a head, if it comes in time and is not too long.
async fn read_head(mut browser: TcpStream) -> (TcpStream, Option<String>) {
    let reading = async {
        let mut head = Vec::new();
        let mut chunk = [0; 1024];
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let count = browser.read(&mut chunk).await.ok()?;
            if count == 0 || head.len() + count > HEAD_BYTES_MAX {
                return None;
            }
            head.extend_from_slice(chunk.get(..count)?);
        }
        String::from_utf8(head).ok()
    };
    let head = tokio::time::timeout(HEAD_WAIT, reading).await;
    (browser, head.ok().flatten())
}

/// Answers and closes. A browser that went away is no failure of the sign-in.
async fn respond(browser: &mut TcpStream, status: &str, to: Option<&str>, text: &str) {
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Felix</title><body><p id=\"said\">{text}</p>"
    );
    let location = to.map_or_else(String::new, |to| format!("location: {to}\r\n"));
    let answer = format!(
        "HTTP/1.1 {status}\r\n{location}content-type: text/html; charset=utf-8\r\n\
         content-length: {}\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n\
         content-security-policy: default-src 'none'; frame-ancestors 'none'\r\n\
         x-content-type-options: nosniff\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    let _ = browser.write_all(answer.as_bytes()).await;
    let _ = browser.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn listener() -> (Listener, SocketAddr) {
        let redirect = Redirect::parse(None).expect("an address");
        let listener = Listener::bind(redirect).await.expect("a listener");
        let address = listener.socket.local_addr().expect("an address");
        (listener, address)
    }

    async fn ask(address: SocketAddr, target: &str, host: Option<&str>) -> String {
        let own = format!("127.0.0.1:{}", address.port());
        let mut browser = TcpStream::connect(address).await.expect("connected");
        let host = host.unwrap_or(&own);
        let head = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        browser.write_all(head.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        browser.read_to_string(&mut answer).await.expect("answered");
        answer
    }

    #[test]
    fn only_an_address_of_this_machine_is_a_redirect() {
        for good in [
            "http://127.0.0.1/callback",
            "http://localhost:8250/",
            "http://[::1]:1/x",
        ] {
            assert!(Redirect::parse(Some(good)).is_ok(), "{good}");
        }
        for bad in [
            "https://127.0.0.1/callback",
            "http://example.com/callback",
            "http://127.0.0.1.example.com/",
            "http://user@127.0.0.1/",
            "http://127.0.0.1/?x=1",
            "http://127.0.0.1/#x",
            "callback",
        ] {
            assert!(Redirect::parse(Some(bad)).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn what_is_no_answer_is_refused_and_the_answer_after_it_counts() {
        let (mut listener, address) = listener().await;
        let state: Secret = "right".into();
        let asking = async {
            for (target, host) in [
                ("/callback?code=c&state=wrong", None),
                ("/callback?code=c", None),
                ("/callback?state=right", None),
                ("/callback?code=c&code=d&state=right", None),
                ("/callback?code=c&error=e&state=right", None),
                ("/callback/x?code=c&state=right", None),
                ("/callback?code=c&state=right", Some("evil.example:80")),
            ] {
                let answer = ask(address, target, host).await;
                assert!(answer.starts_with("HTTP/1.1 400"), "{target}: {answer}");
                assert!(!answer.contains("right"), "{answer}");
            }
            ask(address, "/callback?code=good&state=right&iss=x", None).await
        };
        let (returned, answer) = tokio::join!(listener.returned(&state), asking);
        let returned = returned.expect("an answer");
        assert_eq!(returned.outcome, Ok("good".into()));
        assert_eq!(returned.issuer.as_deref(), Some("x"));
        assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
        assert!(answer.contains("location: /callback/done\r\n"), "{answer}");
        assert!(answer.contains("referrer-policy: no-referrer"), "{answer}");
        assert!(
            !answer.contains("good"),
            "the code is not in the answer: {answer}"
        );
    }

    #[tokio::test]
    async fn the_last_page_says_how_it_went() {
        let (mut listener, address) = listener().await;
        let done = Ok::<(), Failure>(());
        let asking = ask(address, "/callback/done", None);
        let ((), answer) = tokio::join!(listener.finish(&done), asking);
        assert!(answer.contains("You are signed in"), "{answer}");
    }

    #[tokio::test]
    async fn a_provider_that_says_no_is_heard() {
        let (mut listener, address) = listener().await;
        let state: Secret = "s".into();
        let asking = ask(address, "/callback?error=access_denied&state=s", None);
        let (returned, _) = tokio::join!(listener.returned(&state), asking);
        let outcome = returned.expect("an answer").outcome;
        assert_eq!(outcome, Err(("access_denied".to_owned(), String::new())));
    }
}
