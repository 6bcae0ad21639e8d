//! See `extension` in `broker/wire/tests/entry/mod.rs`.
#![no_main]

#[path = "../../../broker/wire/tests/entry/mod.rs"]
#[allow(dead_code, reason = "each target uses one function of it")]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::extension(data));
