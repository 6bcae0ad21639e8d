//! Requests that are not answered yet. They run at the same time and are answered in the order they came.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Work that comes to an answer.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum Entry<T> {
    Runs(Work<T>),
    Done(T),
}

/// The queue.
pub(crate) struct Pending<T> {
    entries: VecDeque<Entry<T>>,
}

impl<T> Pending<T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds work behind all other. It begins when [`Self::next`] is polled, after those before it began.
    pub(crate) fn push(&mut self, work: Work<T>) {
        self.entries.push_back(Entry::Runs(work));
    }

    /// Adds an answer that is there already.
    pub(crate) fn push_done(&mut self, answer: T) {
        self.entries.push_back(Entry::Done(answer));
    }

    /// Runs everything, and gives the oldest answer once it is there; never, while there is nothing to answer. Can be
    /// dropped at any time.
    pub(crate) async fn next(&mut self) -> T {
        poll_fn(|context| {
            for entry in &mut self.entries {
                if let Entry::Runs(work) = entry
                    && let Poll::Ready(answer) = work.as_mut().poll(context)
                {
                    *entry = Entry::Done(answer);
                }
            }
            match self.entries.pop_front() {
                Some(Entry::Done(answer)) => Poll::Ready(answer),
                Some(runs) => {
                    self.entries.push_front(runs);
                    Poll::Pending
                }
                None => Poll::Pending,
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn answers_leave_in_the_order_of_their_requests() {
        let mut pending = Pending::new();
        let (slow, answer) = oneshot::channel();
        pending.push(Box::pin(async move { answer.await.unwrap() }));
        pending.push(Box::pin(async move {
            // The second is done first, and lets the first go on.
            slow.send("first").unwrap();
            "second"
        }));
        pending.push_done("third");
        let mut order = Vec::new();
        while !pending.is_empty() {
            order.push(pending.next().await);
        }
        assert_eq!(order, ["first", "second", "third"]);
    }
}
