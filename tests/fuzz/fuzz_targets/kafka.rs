//! Requests of Kafka clients; see `kafka-listener/tests/entry/mod.rs`.
#![no_main]

#[path = "../../../kafka-listener/tests/entry/mod.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::run(data));
