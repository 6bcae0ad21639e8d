//! A connection's place, and how much went through it: what shows that a slow browser is there all the same.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use felix_process::Slot;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection's place among those there may be. Every request of it carries it, so that a WebSocket, which outlives the
/// requests, keeps it.
#[derive(Debug)]
pub(crate) struct Seat {
    _slot: Slot<IpAddr>,
    /// Bytes that came.
    read: AtomicU64,
    /// Bytes that the system has taken.
    written: AtomicU64,
}

impl Seat {
    pub(super) fn new(slot: Slot<IpAddr>) -> Self {
        Self {
            _slot: slot,
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Bytes that have come so far.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes that the system has taken so far. Once it has no room, it takes more only when the browser has taken some.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

/// A stream whose bytes are counted.
pub(super) struct Counted<S> {
    stream: S,
    seat: Arc<Seat>,
}

impl<S> Counted<S> {
    pub(super) const fn new(stream: S, seat: Arc<Seat>) -> Self {
        Self { stream, seat }
    }

    fn wrote(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &polled {
            self.seat
                .written
                .fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let came = buffer.filled().len().saturating_sub(before);
        self.seat.read.fetch_add(came as u64, Ordering::Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn what_went_through_is_counted_both_ways_and_no_more_than_was_taken() {
        let (near, mut far) = tokio::io::duplex(4);
        let slots = Arc::<felix_process::Slots<IpAddr>>::default();
        let slot = slots.take(IpAddr::from([127, 0, 0, 1]), 1, 1).unwrap();
        let seat = Arc::new(Seat::new(slot));
        let mut counted = Counted::new(near, Arc::clone(&seat));
        far.write_all(b"abc").await.unwrap();
        counted.read_exact(&mut [0; 3]).await.unwrap();
        assert_eq!((seat.read(), seat.written()), (3, 0));
        let wrote = counted.write(b"sixsix").await.unwrap();
        assert_eq!((seat.read(), seat.written()), (3, 4));
        assert_eq!(wrote, 4);
    }
}
