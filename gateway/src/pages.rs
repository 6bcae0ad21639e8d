//! Files that a process which embeds a gateway brings along.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// One file.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its media type.
    pub kind: &'static str,
    /// What is in it.
    pub bytes: Cow<'static, [u8]>,
}

/// Files by their path below the gateway's address, without a leading slash; `index.html` answers `/`.
#[derive(Clone)]
pub struct Pages(Arc<Find>);

type Find = dyn Fn(&str) -> Option<Page> + Send + Sync;

impl Pages {
    /// Files that `find` knows.
    pub fn new(find: impl Fn(&str) -> Option<Page> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    /// The media type that goes with a file's name.
    #[must_use]
    pub fn kind_of(name: &str) -> &'static str {
        match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
            "html" => "text/html; charset=utf-8",
            "js" | "mjs" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "json" | "map" => "application/json",
            "svg" => "image/svg+xml",
            "png" => "image/png",
            "ico" => "image/x-icon",
            "woff2" => "font/woff2",
            "webmanifest" => "application/manifest+json",
            _ => "application/octet-stream",
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Page> {
        (self.0)(name)
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pages(..)")
    }
}
