//! The page itself, compiled into the program: what `gateway/console` holds of HTML, styles and compiled TypeScript.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::pages::Pages;

const ROOT: &str = "/console/";

#[derive(RustEmbed)]
#[folder = "console/public"]
struct Public;

#[derive(RustEmbed)]
#[folder = "console/dist"]
struct Compiled;

/// `/console` without its slash.
pub(super) async fn moved() -> Redirect {
    Redirect::permanent(ROOT)
}

/// A file, or the page for every address that is a view of it.
pub(super) async fn serve(uri: Uri, headers: HeaderMap) -> Response {
    let name = uri.path().strip_prefix(ROOT).unwrap_or_default();
    match find(name) {
        Some(file) => answer(name, &file, &headers),
        // What looks like a file and is none must not be taken for the page: a script would be answered with HTML.
        None if is_file(name) => StatusCode::NOT_FOUND.into_response(),
        None => match find("index.html") {
            Some(page) => answer("index.html", &page, &headers),
            None => StatusCode::NOT_FOUND.into_response(),
        },
    }
}

fn find(name: &str) -> Option<EmbeddedFile> {
    Public::get(name).or_else(|| Compiled::get(name))
}

/// Whether a path ends in a kind of file that the page has; names of streams may hold dots.
fn is_file(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    let flat = name.split('/').count() <= 2;
    flat && matches!(ending, Some("js" | "css" | "svg" | "map"))
}

fn answer(name: &str, file: &EmbeddedFile, headers: &HeaderMap) -> Response {
    let tag = tag(&file.metadata.sha256_hash());
    let known = headers.get(header::IF_NONE_MATCH);
    let fresh = known.is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let body = match fresh {
        true => Body::empty(),
        false => Body::from(file.data.to_vec()),
    };
    let status = if fresh {
        StatusCode::NOT_MODIFIED
    } else {
        StatusCode::OK
    };
    let head = [
        (header::CONTENT_TYPE, Pages::kind_of(name).to_owned()),
        // Asked for again each time, and answered without a body while it is the same.
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::ETAG, tag),
    ];
    (status, head, body).into_response()
}

fn tag(hash: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut tag = String::from("\"");
    for byte in hash.iter().take(12) {
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(path: &str) -> Response {
        serve(path.parse().unwrap(), HeaderMap::new()).await
    }

    #[tokio::test]
    async fn every_view_has_an_address_and_a_missing_script_is_no_page() {
        for view in [
            "/console/",
            "/console/default/streams/room.7/tail",
            "/console/access",
        ] {
            let page = get(view).await;
            assert_eq!(
                page.headers()["content-type"],
                "text/html; charset=utf-8",
                "{view}"
            );
        }
        let script = get("/console/main.js").await;
        assert_eq!(
            script.headers()["content-type"],
            "text/javascript; charset=utf-8"
        );
        assert_eq!(
            get("/console/nothere.js").await.status(),
            StatusCode::NOT_FOUND
        );
        assert_eq!(
            get("/console/../Cargo.toml").await.headers()["content-type"],
            "text/html; charset=utf-8"
        );
    }

    #[tokio::test]
    async fn a_file_that_is_known_is_not_sent_again() {
        let first = get("/console/main.js").await;
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        let again = serve("/console/main.js".parse().unwrap(), headers).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn the_page_makes_no_markup_of_text_and_carries_no_script_or_style_of_its_own() {
        for name in Compiled::iter() {
            let text = String::from_utf8(Compiled::get(&name).unwrap().data.to_vec()).unwrap();
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                ".style.",
            ] {
                assert!(!text.contains(forbidden), "{name} uses {forbidden}");
            }
        }
        let page = String::from_utf8(Public::get("index.html").unwrap().data.to_vec()).unwrap();
        assert_eq!(page.matches("<script").count(), 1);
        assert!(!page.contains("style=") && !page.contains("onclick") && !page.contains("<style"));
    }

    #[test]
    fn what_a_browser_loads_first_is_below_a_hundred_kilobytes() {
        let views = |name: &str| name.starts_with("views/") && name != "views/overview.js";
        let compiled = Compiled::iter().filter(|name| name.ends_with(".js") && !views(name));
        let code: usize = compiled
            .map(|name| Compiled::get(&name).unwrap().data.len())
            .sum();
        let rest: usize = Public::iter()
            .map(|name| Public::get(&name).unwrap().data.len())
            .sum();
        assert!(code + rest < 100 * 1024, "{} bytes", code + rest);
    }
}
