//! The audit: what is remembered beside changes, and how it is read.
//!
//! Changes are in the ledger anyway, each with who made it. What changes nothing, refusals above all, is noted here,
//! counted where it repeats, and written down every few seconds, so that a flood of it costs a few lines.

mod index;
mod notebook;

pub(crate) use index::{Asked, Index};
pub(crate) use notebook::{Note, Notebook};
