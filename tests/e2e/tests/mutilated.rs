//! Frames that nobody should send: the vectors, turned, cut and repeated.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that meets anything else has failed"
)]

use std::path::Path;

use felix_e2e::raw::Wire;
use felix_e2e::said::node_serves;
use felix_e2e::{Home, Node};
use felix_wire::flags::Flags;
use felix_wire::frame::Frame;

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_felix-e2e")).unwrap()
}

async fn wire(node: &Node) -> Wire {
    Wire::connect(node.ready()).await.unwrap()
}

#[tokio::test]
async fn mutilated_frames_never_end_the_process() {
    const ROUNDS: u64 = 600;
    let home = home();
    let node = home.start().await.unwrap();
    let frames = golden_frames();
    assert!(frames.len() > 100, "{} vectors", frames.len());
    let mut random = Random(0x0f1e_2d3c);
    let mut open = Some(wire(&node).await);
    for round in 0..ROUNDS {
        let here = match open.take() {
            Some(here) if here.connection.close_reason().is_none() => here,
            _ => wire(&node).await,
        };
        let mut stream = if round % 3 == 0 {
            here.open().await.unwrap()
        } else {
            here.authenticated().await.unwrap()
        };
        for _ in 0..random.below(3) + 1 {
            let frame = &frames[random.below(frames.len())];
            let frame = random.mutilate(frame);
            // The broker may have had enough of this stream.
            let _ = stream.write(&frame).await;
        }
        let _ = stream.finish();
        // Whatever it answers, it comes to an end of the stream.
        while let Ok(Some(_)) = stream.incoming.frame().await {}
        open = Some(here);
    }
    node_serves(&node).await;
    let status = node.stop().await.unwrap();
    assert!(status.success(), "{status}");
}

/// A small generator with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// Turns bits, cuts, repeats or leaves alone.
    fn mutilate(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut bytes = frame.to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next().to_be_bytes()[0],
                2 => bytes.truncate(at.max(1)),
                _ => bytes.extend_from_within(at..),
            }
        }
        bytes
    }
}

/// The frames of the vectors: those in hexadecimal, and a frame around each message.
fn golden_frames() -> Vec<Vec<u8>> {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/wire");
    let mut frames = Vec::new();
    for file in ["frames.txt", "extension.txt", "refused.txt", "messages.txt"] {
        let text = std::fs::read_to_string(vectors.join(file)).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let last = line.rsplit('|').next().unwrap_or_default().trim();
            if let Some(start) = line.find('{') {
                let payload = bytes::Bytes::copy_from_slice(line[start..].trim().as_bytes());
                let flags = Flags::NONE;
                frames.push(Frame { flags, payload }.encode().to_vec());
            } else if let Some(bytes) = from_hex(last) {
                frames.push(bytes);
            }
        }
    }
    frames
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok())
        .collect()
}
