//! Where a browser may be sent after signing in: a path of this origin, and nothing that some browser reads as more.

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::{answer, field};

/// Bytes of a path that are taken.
const PATH_BYTES_MAX: usize = 2_048;

/// Where a request asks to be sent afterwards; the first page when it does not say.
///
/// # Errors
/// The refusal of what is no path of this site.
#[expect(
    clippy::result_large_err,
    reason = "a refusal is an answer, made once and handed on"
)]
pub(super) fn of(request: &Parts) -> Result<String, Response> {
    let back = field(request, "return_to")?.unwrap_or_else(|| "/".into());
    path(&back).map(str::to_owned).ok_or_else(|| {
        let message = "`return_to` must be a path on this site, like /board/7\n";
        answer(StatusCode::BAD_REQUEST, message)
    })
}

/// The path, if it is one.
fn path(text: &str) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    // `//host` is another host, and `/\host` is one to some browsers.
    let is_own = text.starts_with('/') && !text.starts_with("//");
    // It would begin all over again.
    let is_here = text.starts_with("/auth/");
    (is_own && !is_here && text.len() <= PATH_BYTES_MAX && text.bytes().all(is_plain))
        .then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_of_this_origin_is_returned_to() {
        for good in [
            "/",
            "/board/7?at=3#x",
            "/console/",
            "/a//b",
            "/%2F%2Fevil.example",
        ] {
            assert_eq!(path(good), Some(good));
        }
        for bad in [
            "",
            "board",
            "//evil.example",
            "///evil.example",
            "/\\evil.example",
            "/a\\..\\b",
            "\\\\evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/\tx",
            "/\r\nSet-Cookie: a=b",
            "/\u{e9}",
            "/ x",
            "/auth/login",
        ] {
            assert_eq!(path(bad), None, "{bad:?}");
        }
        assert_eq!(path(&format!("/{}", "a".repeat(PATH_BYTES_MAX))), None);
    }
}
