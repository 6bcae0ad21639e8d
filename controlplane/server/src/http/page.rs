//! Pages of listings: by the last key seen, not by count, so that changes meanwhile neither repeat nor skip an item.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use felix_meta::http::Page;
use serde::Deserialize;

use super::error::Refusal;
use crate::limits::PAGE_ITEMS;

/// What a listing asks for, still as text: it is read only by [`Paging::read`], after the caller is known.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Paging {
    limit: Option<String>,
    cursor: Option<String>,
    #[serde(skip)]
    malformed: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for Paging {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = Query::<Self>::from_request_parts(parts, state).await;
        Ok(query.map_or_else(
            |_| Self {
                malformed: true,
                ..Self::default()
            },
            |Query(paging)| paging,
        ))
    }
}

/// What a listing asks for.
pub(crate) struct Window {
    limit: usize,
    /// The last key of the page before.
    after: Option<String>,
}

impl Paging {
    /// Whether the caller asked for a page at all.
    pub(crate) const fn is_asked_for(&self) -> bool {
        self.malformed || self.limit.is_some() || self.cursor.is_some()
    }

    pub(crate) fn read(&self) -> Result<Window, Refusal> {
        if self.malformed {
            return Err(Refusal::invalid("the query cannot be read"));
        }
        let (default, max) = PAGE_ITEMS;
        let limit = match &self.limit {
            None => default,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=max).contains(limit))
                .ok_or_else(|| Refusal::invalid(format!("`limit` must be from 1 to {max}")))?,
        };
        let after = match &self.cursor {
            None => None,
            Some(text) => Some(
                URL_SAFE_NO_PAD
                    .decode(text)
                    .ok()
                    .and_then(|bytes| String::from_utf8(bytes).ok())
                    .ok_or_else(|| Refusal::invalid("`cursor` is not one of ours"))?,
            ),
        };
        Ok(Window { limit, after })
    }
}

impl Window {
    /// Everything, for listings that need not be paged.
    pub(crate) const fn all() -> Self {
        Self {
            limit: usize::MAX,
            after: None,
        }
    }

    /// Cuts the page out of items that come in the order of their keys. Only items already permitted may be passed, so
    /// that every page but the last is full.
    pub(crate) fn cut<T>(&self, items: impl Iterator<Item = (String, T)>) -> Page<T> {
        let mut rest =
            items.skip_while(|(key, _)| self.after.as_ref().is_some_and(|after| key <= after));
        let mut page = Vec::new();
        let mut last = None;
        while page.len() < self.limit
            && let Some((key, item)) = rest.next()
        {
            page.push(item);
            last = Some(key);
        }
        let more = rest.next().is_some();
        let next_cursor = last.filter(|_| more).map(|key| URL_SAFE_NO_PAD.encode(key));
        Page {
            items: page,
            next_cursor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_without_gap_or_repeat() {
        let items = || (0..5).map(|n| (format!("k{n}"), n));
        let mut seen = Vec::new();
        let mut cursor = None;
        loop {
            let paging = Paging {
                limit: Some("2".into()),
                cursor,
                malformed: false,
            };
            let page = paging.read().unwrap().cut(items());
            seen.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn bad_values_are_refused() {
        let refused = |limit: Option<&str>, cursor: Option<&str>| {
            let paging = Paging {
                limit: limit.map(str::to_owned),
                cursor: cursor.map(str::to_owned),
                malformed: false,
            };
            paging.read().is_err()
        };
        assert!(refused(Some("0"), None));
        assert!(refused(Some("10001"), None));
        assert!(refused(Some("many"), None));
        assert!(refused(None, Some("!!!")));
        assert!(!refused(Some("10000"), None));
    }
}
