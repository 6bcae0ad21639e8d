//! What the fuzz target `kafka_requests` runs; `tests/fuzz_replay.rs` runs it on drawn inputs.

use felix_kafka::{Draw, readable, sample, served};

/// Makes a well-formed request of any kind and version out of the bytes, which is read; what is left of them damages it.
pub(crate) fn run(data: &[u8]) {
    let versions = || served().flat_map(|(key, min, max)| (min..=max).map(move |it| (key, it)));
    let (choices, damage) = data.split_at(data.len().min(2 + data.len() / 2));
    let mut choices = choices.iter();
    let mut next = || usize::from(choices.next().copied().unwrap_or(0));
    let Some((key, version)) = versions().nth((next() << 8 | next()) % versions().count()) else {
        return;
    };
    let batch = [0xa5; 66];
    let mut draw = Draw {
        below: &mut |most| next() % most.max(1),
        texts: &["orders", "", "nothing", "range", "group", "n\u{e4}her"],
        blobs: &[b"", b"bytes", &batch],
        ids: &[[0; 16], [7; 16]],
    };
    let Some(mut request) = sample(key, version, 77, &mut draw) else {
        return;
    };
    assert!(readable(&request), "{key} {version}: {request:02x?}");
    for step in damage.chunks_exact(4) {
        let &[high, low, how, value] = step else {
            return;
        };
        // Key and version stay, so that it is this request that is damaged.
        let behind = request.len().saturating_sub(4).max(1);
        let at = 4 + usize::from(u16::from_be_bytes([high, low])) % behind;
        match how % 6 {
            0 => request.truncate(at),
            1 => request.insert(at.min(request.len()), value),
            2 if at < request.len() => drop(request.remove(at)),
            3 => {
                let end = (at + 4).min(request.len());
                request.splice(at.min(end)..end, [0x7f, 0xff, 0xff, value]);
            }
            _ => {
                if let Some(byte) = request.get_mut(at) {
                    *byte ^= value;
                }
            }
        }
        let _ = readable(&request);
    }
}
