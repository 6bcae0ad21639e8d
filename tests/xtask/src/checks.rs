//! The rules, by what they look at.

pub(crate) mod crates;
pub(crate) mod documents;
pub(crate) mod sources;
pub(crate) mod words;
