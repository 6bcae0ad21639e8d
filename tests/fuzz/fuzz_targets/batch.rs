//! Record batches and payload lists; see `broker/model/tests/entry/batch.rs`.
#![no_main]

#[path = "../../../broker/model/tests/entry/batch.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
