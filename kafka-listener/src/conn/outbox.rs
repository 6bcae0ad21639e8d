//! Answers on their way out, sent from where they are.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Parts handed to the system at once.
const PARTS_AT_ONCE: usize = 64;

/// The sending side of a connection.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    parts: VecDeque<Bytes>,
    bytes: usize,
    unflushed: bool,
}

impl Outbox {
    /// Adds one part.
    pub(crate) fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.bytes += part.len();
            self.parts.push_back(part);
        }
    }

    /// Bytes not sent yet.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && !self.unflushed
    }

    /// Sends some of it. Can be dropped at any time.
    ///
    /// # Errors
    /// What the system says of the connection.
    pub(crate) async fn send<W: AsyncWrite + Unpin>(&mut self, to: &mut W) -> std::io::Result<()> {
        if !self.parts.is_empty() {
            let mut slices = [IoSlice::new(&[]); PARTS_AT_ONCE];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                *slice = IoSlice::new(part);
                count += 1;
            }
            let slices = slices.get(..count).unwrap_or_default();
            let sent = to.write_vectored(slices).await?;
            if sent == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            self.unflushed = true;
            self.advance(sent);
        }
        if self.parts.is_empty() {
            to.flush().await?;
            self.unflushed = false;
        }
        Ok(())
    }

    fn advance(&mut self, mut sent: usize) {
        self.bytes = self.bytes.saturating_sub(sent);
        while let Some(part) = self.parts.front_mut() {
            if part.len() > sent {
                part.advance(sent);
                return;
            }
            sent -= part.len();
            self.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn parts_arrive_whole_and_in_order() {
        let (mut near, mut far) = tokio::io::duplex(5);
        let mut outbox = Outbox::default();
        for part in ["abc", "", "defgh", "i"] {
            outbox.push(Bytes::from_static(part.as_bytes()));
        }
        assert_eq!(outbox.bytes(), 9);
        let sending = async {
            while !outbox.is_empty() {
                outbox.send(&mut near).await.unwrap();
            }
            drop(near);
        };
        let receiving = async {
            let mut all = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut far, &mut all)
                .await
                .unwrap();
            all
        };
        let ((), all) = tokio::join!(sending, receiving);
        assert_eq!(all, b"abcdefghi");
    }
}
