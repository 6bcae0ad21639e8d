//! The side towards brokers: connections in a user's name, what his browser asks of them, and subscriptions that the
//! browsers of a stream share.

mod asks;
pub(crate) mod calls;
mod crew;
pub(crate) mod feed;
pub(crate) mod item;
pub(crate) mod reach;
pub(crate) mod reading;
mod ring;
pub(crate) mod watch;
pub(crate) mod watched;
