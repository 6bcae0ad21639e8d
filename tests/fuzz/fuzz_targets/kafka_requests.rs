//! Requests of Kafka clients, made of the input and then damaged; see `kafka-listener/tests/entry/made.rs`.
#![no_main]

#[path = "../../../kafka-listener/tests/entry/made.rs"]
mod made;

libfuzzer_sys::fuzz_target!(|data: &[u8]| made::run(data));
