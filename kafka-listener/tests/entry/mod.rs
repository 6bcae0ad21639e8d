//! What the fuzz target `kafka` runs; `tests/fuzz_replay.rs` runs it on the committed inputs.

/// Takes bytes for a request, as a connection does.
pub(crate) fn run(data: &[u8]) {
    let _ = felix_kafka::readable(data);
}
