//! The thread that asks the ledger for what may take long.

use bytes::Bytes;
use felix_meta::Revision;
use tokio::sync::{mpsc, oneshot};

use crate::ledger::{ConfirmFailed, Ledger, ReadFailed};

/// What is asked.
#[derive(Debug)]
pub(super) enum Ask {
    /// A revision that nothing acknowledged before is newer than.
    Confirm(oneshot::Sender<Result<Revision, ConfirmFailed>>),
    /// Records.
    Read {
        after: Revision,
        bytes_max: usize,
        answer: oneshot::Sender<Result<Vec<Bytes>, ReadFailed>>,
    },
}

/// Answers until nobody can ask any more.
pub(super) fn run(ledger: &dyn Ledger, mut asked: mpsc::Receiver<Ask>) {
    while let Some(first) = asked.blocking_recv() {
        let (mut confirms, mut reads) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(ask) = next {
            match ask {
                Ask::Confirm(answer) => confirms.push(answer),
                Ask::Read {
                    after,
                    bytes_max,
                    answer,
                } => reads.push((after, bytes_max, answer)),
            }
            next = asked.try_recv().ok();
        }
        // One answer for all who asked before the question was put.
        if !confirms.is_empty() {
            let confirmed = ledger.confirm();
            for answer in confirms {
                let _ = answer.send(confirmed.clone());
            }
        }
        for (after, bytes_max, answer) in reads {
            let _ = answer.send(ledger.read_after(after, bytes_max));
        }
    }
}
