//! Whole requests out of what a connection sends.
//!
//! A request is four bytes of length and that many bytes. It takes memory as its bytes come in, never for its length
//! alone, and beyond the first of them only within what all connections may hold together.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use super::clock::frame_time;
use super::room::{Room, Taken};
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

type Waiting = Pin<Box<dyn Future<Output = Option<Taken>> + Send>>;

/// The receiving side of a connection.
pub(crate) struct Frames {
    buffer: BytesMut,
    room: Room,
    /// Room for the request that is being read.
    held: Option<Taken>,
    waiting: Option<Waiting>,
    /// When the request that is being read began, or got its room. What comes in later does not move it.
    began: Instant,
    /// Since when nothing is read that the client could send.
    paused: Option<Instant>,
}

impl Frames {
    pub(crate) fn new(room: Room) -> Self {
        Self {
            buffer: BytesMut::new(),
            room,
            held: None,
            waiting: None,
            began: Instant::now(),
            paused: None,
        }
    }

    /// Takes room elsewhere from here on: the connection is another's.
    pub(crate) fn move_to(&mut self, room: Room) {
        self.room = room;
        self.waiting = None;
    }

    /// Says whether it is for the client to go on. The time of a request that has begun stands still while it is not.
    pub(crate) fn ticks(&mut self, ticks: bool) {
        if ticks {
            let paused = self.paused.take().map(|since| since.elapsed());
            self.began += paused.unwrap_or_default();
        } else if self.paused.is_none() {
            self.paused = Some(Instant::now());
        }
    }

    /// How long a request that has begun may take, and when that is over; nothing between two requests.
    pub(crate) fn due(&self) -> Option<(Duration, Instant)> {
        if self.buffer.is_empty() || self.paused.is_some() {
            return None;
        }
        let time = frame_time(self.announced());
        Some((time, self.began + time))
    }

    /// What the next request says of its length; 0 as long as it does not, or if none has that length.
    fn announced(&self) -> usize {
        let length = self.buffer.first_chunk::<4>();
        let length = length.map_or(0, |length| i32::from_be_bytes(*length));
        usize::try_from(length).unwrap_or(0)
    }

    /// The next whole request that is there already, with the room it takes until it is answered.
    ///
    /// # Errors
    /// [`TooLong`] when the next one may not be as long as it says; nothing can be read after it.
    pub(crate) fn next(&mut self, limit: usize) -> Result<Option<(Bytes, Taken)>, TooLong> {
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
        self.began = self.paused.unwrap_or_else(Instant::now);
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

    fn take_room(&mut self, length: usize) -> Option<Taken> {
        let taken = self.held.take().or_else(|| self.room.try_take(length))?;
        // What is waited for is of this request's length, and would be held by the next one, or by nobody's.
        self.waiting = None;
        Some(taken)
    }

    /// Reads more, once there is room for it. `false` at the end of the connection. Can be dropped at any time.
    ///
    /// # Errors
    /// What the system says of the connection.
    pub(crate) async fn fill<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
    ) -> std::io::Result<bool> {
        let length = self.announced();
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
        let is_first = self.buffer.is_empty();
        let count = from.read_buf(&mut self.buffer).await?;
        if is_first {
            self.began = Instant::now();
        }
        Ok(count > 0)
    }

    async fn wait_for_room(&mut self, length: usize) {
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(self.room.clone().take(length)));
        let held = waiting.await;
        self.waiting = None;
        self.held = held;
        // Who waited for others may take as long as who did not.
        self.began = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::conn::room::Rooms;

    fn frames(room: usize) -> (Frames, Rooms) {
        let rooms = Rooms::new(room);
        (Frames::new(rooms.of_nobody()), rooms)
    }

    #[tokio::test]
    async fn several_requests_of_one_read_come_out_one_by_one() {
        let (mut frames, room) = frames(100);
        let mut bytes = &b"\0\0\0\x02ab\0\0\0\x01c\0\0"[..];
        assert!(frames.fill(&mut bytes).await.unwrap());
        let (first, held) = frames.next(10).unwrap().unwrap();
        assert_eq!(first, "ab");
        assert_eq!(room.free(), 98);
        drop(held);
        let (second, _held) = frames.next(10).unwrap().unwrap();
        assert_eq!(second, "c");
        assert!(frames.next(10).unwrap().is_none() && frames.due().is_some());
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
        let taken = room.of_nobody().try_take(3).unwrap();
        frames.fill(&mut &b"\0\0\0\x02ab"[..]).await.unwrap();
        assert!(frames.next(10).unwrap().is_none());
        drop(taken);
        assert!(frames.fill(&mut &b""[..]).await.unwrap());
        assert!(frames.next(10).unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_trickle_in_give_a_request_no_more_time() {
        let (mut frames, _room) = frames(100);
        let began = Instant::now();
        assert_eq!(frames.due(), None);
        frames.fill(&mut &b"\0\0"[..]).await.unwrap();
        let (time, due) = frames.due().unwrap();
        assert_eq!(due, began + time);
        for byte in [b"\0", b"\x09", b"a", b"b"] {
            advance(Duration::from_secs(29)).await;
            frames.fill(&mut &byte[..]).await.unwrap();
            assert_eq!(frames.due(), Some((time, due)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_request_and_one_that_was_not_read_have_their_own_time() {
        let (mut frames, _room) = frames(100);
        let mut bytes = &b"\0\0\0\x01a\0"[..];
        frames.fill(&mut bytes).await.unwrap();
        advance(Duration::from_secs(20)).await;
        assert!(frames.next(10).unwrap().is_some());
        let (time, due) = frames.due().unwrap();
        assert_eq!(due, Instant::now() + time);
        frames.ticks(false);
        assert_eq!(frames.due(), None);
        advance(Duration::from_secs(100)).await;
        frames.ticks(true);
        assert_eq!(frames.due(), Some((time, Instant::now() + time)));
    }

    #[tokio::test]
    async fn room_that_was_waited_for_and_not_needed_goes_back() {
        let (mut frames, room) = frames(4);
        let taken = room.of_nobody().try_take(3).unwrap();
        frames.fill(&mut &b"\0\0\0\x02ab"[..]).await.unwrap();
        let waits = tokio::time::timeout(Duration::ZERO, frames.fill(&mut &b""[..])).await;
        assert!(waits.is_err());
        drop(taken);
        // The room came to the one who waits, and he finds it without asking.
        assert!(frames.fill(&mut &b""[..]).await.unwrap());
        let (_, first) = frames.next(10).unwrap().unwrap();
        assert_eq!(room.free(), 2);
        frames.waiting = Some(Box::pin(frames.room.clone().take(2)));
        drop(first);
        frames.buffer.extend_from_slice(b"\0\0\0\x01a");
        let held = frames.next(10).unwrap().unwrap();
        assert!(frames.waiting.is_none());
        drop(held);
        assert_eq!(room.free(), 4);
    }
}
