//! Whole requests out of what a connection sends.
//!
//! A request is four bytes of length and that many bytes. It takes memory as its bytes come in, never for its length
//! alone, and beyond the first of them only within what all connections may hold together.

use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::READ_AHEAD_BYTES;

/// Requests up to this size get all their memory at once.
const AT_ONCE_BYTES: usize = 2 * 1024 * 1024;

/// Room made for a connection that has nothing buffered.
const FIRST_BYTES: usize = 4 * 1024;

/// A length that no request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request of {length} bytes is over the limit of {limit}")]
pub(crate) struct TooLong {
    pub(crate) length: i64,
    pub(crate) limit: usize,
}

type Waiting = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// The receiving side of a connection.
pub(crate) struct Frames {
    buffer: BytesMut,
    room: Arc<Semaphore>,
    /// Room for the request that is being read.
    held: Option<OwnedSemaphorePermit>,
    waiting: Option<Waiting>,
}

impl Frames {
    pub(crate) fn new(room: Arc<Semaphore>) -> Self {
        Self {
            buffer: BytesMut::new(),
            room,
            held: None,
            waiting: None,
        }
    }

    /// Whether a request has begun and is not whole.
    pub(crate) fn is_amid(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The next whole request that is there already, with the room it takes until it is answered.
    ///
    /// # Errors
    /// [`TooLong`] when the next one may not be as long as it says; nothing can be read after it.
    pub(crate) fn next(
        &mut self,
        limit: usize,
    ) -> Result<Option<(Bytes, OwnedSemaphorePermit)>, TooLong> {
        let Some(length) = self.length(limit)? else {
            return Ok(None);
        };
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        let Some(room) = self.take_room(length) else {
            return Ok(None);
        };
        let mut frame = self.buffer.split_to(4 + length);
        let _ = frame.split_to(4);
        Ok(Some((frame.freeze(), room)))
    }

    fn length(&self, limit: usize) -> Result<Option<usize>, TooLong> {
        let Some(length) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*length);
        match usize::try_from(length) {
            Ok(length) if length <= limit => Ok(Some(length)),
            _ => Err(TooLong {
                length: length.into(),
                limit,
            }),
        }
    }

    fn take_room(&mut self, length: usize) -> Option<OwnedSemaphorePermit> {
        let held = self.held.take();
        held.or_else(|| {
            let wanted = u32::try_from(length).unwrap_or(u32::MAX);
            Arc::clone(&self.room).try_acquire_many_owned(wanted).ok()
        })
    }

    /// Reads more, once there is room for it. `false` at the end of the connection. Can be dropped at any time.
    ///
    /// # Errors
    /// What the system says of the connection.
    pub(crate) async fn fill<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
    ) -> std::io::Result<bool> {
        let length = match self.buffer.first_chunk::<4>() {
            Some(length) => usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0),
            None => 0,
        };
        let whole = 4 + length;
        if self.buffer.len() >= whole.min(READ_AHEAD_BYTES) && length > 0 && self.held.is_none() {
            self.wait_for_room(length).await;
            if self.buffer.len() >= whole {
                // It was whole already and waited for room only.
                return Ok(true);
            }
        }
        let missing = whole.saturating_sub(self.buffer.len());
        let step = if whole <= AT_ONCE_BYTES {
            missing
        } else {
            // Twice of what came, so that a length alone takes no memory.
            missing.min(self.buffer.len().max(READ_AHEAD_BYTES))
        };
        let least = if self.buffer.is_empty() {
            FIRST_BYTES
        } else {
            READ_AHEAD_BYTES
        };
        let granted = self.held.is_some();
        self.buffer.reserve(if granted {
            step.max(FIRST_BYTES)
        } else {
            least
        });
        Ok(from.read_buf(&mut self.buffer).await? > 0)
    }

    async fn wait_for_room(&mut self, length: usize) {
        let wanted = u32::try_from(length).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room);
        let waiting = self.waiting.get_or_insert_with(|| {
            // The room is never closed, so this always comes to a permit.
            Box::pin(async move { room.acquire_many_owned(wanted).await.ok() })
        });
        let held = waiting.await;
        self.waiting = None;
        self.held = held;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(room: usize) -> (Frames, Arc<Semaphore>) {
        let room = Arc::new(Semaphore::new(room));
        (Frames::new(Arc::clone(&room)), room)
    }

    #[tokio::test]
    async fn several_requests_of_one_read_come_out_one_by_one() {
        let (mut frames, room) = frames(100);
        let mut bytes = &b"\0\0\0\x02ab\0\0\0\x01c\0\0"[..];
        assert!(frames.fill(&mut bytes).await.unwrap());
        let (first, held) = frames.next(10).unwrap().unwrap();
        assert_eq!(first, "ab");
        assert_eq!(room.available_permits(), 98);
        drop(held);
        let (second, _held) = frames.next(10).unwrap().unwrap();
        assert_eq!(second, "c");
        assert!(frames.next(10).unwrap().is_none() && frames.is_amid());
    }

    #[tokio::test]
    async fn a_length_beyond_the_limit_ends_the_connection() {
        for bytes in [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\x0b"] {
            let (mut frames, _room) = frames(100);
            frames.fill(&mut &bytes[..]).await.unwrap();
            assert!(frames.next(10).is_err());
        }
    }

    #[tokio::test]
    async fn a_large_length_takes_no_memory_by_itself() {
        let (mut frames, _room) = frames(200 << 20);
        frames.fill(&mut &b"\x05\xf5\xe0\xff"[..]).await.unwrap();
        assert!(frames.next(100 << 20).unwrap().is_none());
        frames.fill(&mut &b"x"[..]).await.unwrap();
        assert!(frames.buffer.capacity() <= 4 * READ_AHEAD_BYTES);
    }

    #[tokio::test]
    async fn a_whole_request_waits_for_room() {
        let (mut frames, room) = frames(4);
        let taken = Arc::clone(&room).try_acquire_many_owned(3).unwrap();
        frames.fill(&mut &b"\0\0\0\x02ab"[..]).await.unwrap();
        assert!(frames.next(10).unwrap().is_none());
        drop(taken);
        assert!(frames.fill(&mut &b""[..]).await.unwrap());
        assert!(frames.next(10).unwrap().is_some());
    }
}
