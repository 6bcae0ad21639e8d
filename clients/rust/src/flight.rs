//! One attempt that many wait for.

use std::future::Future;

use tokio::sync::watch;

/// Work that runs in a task of its own and whose result everybody who joined receives. Nobody's cancellation
/// ends it, so a caller that polls with short deadlines still makes progress.
#[derive(Debug)]
pub(crate) struct Flight<T>(watch::Receiver<Option<T>>);

impl<T> Clone for Flight<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Clone + Send + Sync + 'static> Flight<T> {
    /// Begins the work.
    pub(crate) fn launch(work: impl Future<Output = T> + Send + 'static) -> Self {
        let (landing, flight) = watch::channel(None);
        tokio::spawn(async move {
            let result = work.await;
            landing.send_replace(Some(result));
        });
        Self(flight)
    }

    /// Waits for the result; `None` when the work panicked. Cancel-safe.
    pub(crate) async fn landed(mut self) -> Option<T> {
        let landed = self.0.wait_for(Option::is_some).await.ok()?;
        landed.clone()
    }
}

/// Does something when the scope ends, however it ends: a flight that panicked must not be joined for ever.
pub(crate) struct Finally<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn the_work_goes_on_when_those_who_wait_give_up() {
        let go = Arc::new(Notify::new());
        let flight = Flight::launch({
            let go = Arc::clone(&go);
            async move {
                go.notified().await;
                7
            }
        });
        let waiting = tokio::spawn(flight.clone().landed());
        waiting.abort();
        go.notify_one();
        assert_eq!(flight.clone().landed().await, Some(7));
        assert_eq!(flight.landed().await, Some(7));
    }
}
