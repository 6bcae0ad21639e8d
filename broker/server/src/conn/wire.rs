//! Both directions of a client's stream, as frames.

use bytes::{Bytes, BytesMut};
use quinn::SendStream;

use super::egress::{cut, revoked};
use super::frames::Frames;
use super::standing::Standing;
use crate::limits::{ENDING_WAIT, SMALL_FRAME_BYTES};

/// Both directions of a stream.
pub(super) struct Wire {
    pub(super) frames: Frames,
    send: Option<SendStream>,
}

impl Wire {
    pub(super) fn new(frames: Frames, send: Option<SendStream>) -> Self {
        Self { frames, send }
    }

    /// Writes whole frames. `false` when the client is gone.
    pub(super) async fn write(&mut self, frames: &mut Vec<Bytes>) -> bool {
        let Some(send) = &mut self.send else {
            frames.clear();
            return true;
        };
        gather_small(frames);
        let written = send.write_all_chunks(frames).await.is_ok();
        frames.clear();
        written
    }

    /// The same for as long as the standing lasts.
    pub(super) async fn write_while(
        &mut self,
        standing: &Standing,
        frames: &mut Vec<Bytes>,
    ) -> bool {
        let written = {
            let writing = self.write(frames);
            tokio::pin!(writing);
            tokio::select! {
                biased;
                written = &mut writing => Some(written),
                () = revoked(standing) => tokio::time::timeout(ENDING_WAIT, writing).await.ok(),
            }
        };
        if written.is_none() {
            self.cut();
        }
        written.unwrap_or(false)
    }

    /// Says no more, also not what is on its way.
    pub(super) fn cut(&mut self) {
        if let Some(mut send) = self.send.take() {
            cut(&mut send);
        }
    }

    /// Resolves when the client does not want answers any more, or is gone.
    pub(super) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let stopped = self.send.as_ref().map(SendStream::stopped);
        async move {
            match stopped {
                Some(stopped) => drop(stopped.await),
                None => std::future::pending().await,
            }
        }
    }

    pub(super) async fn finish(&mut self) {
        if let Some(mut send) = self.send.take() {
            // A stream that the client stopped already needs no end.
            let _ = send.finish();
            // Dropping the handle before everything is acknowledged would not lose it; waiting here keeps the
            // connection's task count honest. The connection's end resolves it, too.
            let _ = send.stopped().await;
        }
    }
}

/// Copies runs of small frames together: the transport looks through its list of chunks for every datagram.
pub(crate) fn gather_small(frames: &mut Vec<Bytes>) {
    if frames.len() < 2 {
        return;
    }
    let mut gathered: Vec<Bytes> = Vec::with_capacity(frames.len());
    let mut run = BytesMut::new();
    for frame in frames.drain(..) {
        if frame.len() <= SMALL_FRAME_BYTES {
            run.extend_from_slice(&frame);
        } else {
            if !run.is_empty() {
                gathered.push(run.split().freeze());
            }
            gathered.push(frame);
        }
    }
    if !run.is_empty() {
        gathered.push(run.freeze());
    }
    *frames = gathered;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_frames_go_together_and_order_stays() {
        let large = Bytes::from(vec![7; SMALL_FRAME_BYTES + 1]);
        let mut frames = vec![
            Bytes::from_static(b"a"),
            Bytes::from_static(b"b"),
            large.clone(),
            Bytes::from_static(b"c"),
        ];
        gather_small(&mut frames);
        assert_eq!(
            frames,
            [Bytes::from_static(b"ab"), large, Bytes::from_static(b"c")]
        );
    }
}
