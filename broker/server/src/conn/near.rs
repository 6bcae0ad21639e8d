//! Clients in this process: the same calls, judged by the same token, without a transport in between.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use felix_wire::error::Failure;
use felix_wire::extension::requests::Call;
use felix_wire::extension::{Extension, Extensions};
use felix_wire::flags::Flags;
use felix_wire::negotiate::{Features, Offer};
use tokio::sync::{mpsc, oneshot};

use super::calls::{Caller, Outcome, hand_over};
use super::standing::Over;
use super::stream::StreamState;
use super::{Conn, auth};
use crate::broker::Shared;
use crate::limits::CALLS_UNANSWERED_MAX;

/// A call, and where its answer goes. A sender that is dropped says that the outcome is unknown.
pub type NearCall = (Call, oneshot::Sender<Outcome>);

/// Calls carried out before it is looked at what they rest on.
const CALLS_PER_TURN: usize = 64;

/// The way into a broker for who lives in its process. The token decides what he may do, as for everybody.
#[derive(Clone, Debug)]
pub struct Near {
    shared: Arc<Shared>,
}

impl Near {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Opens a way for calls in the name of a token. Calls are carried out in the order in which they are sent, and
    /// answered in any. It ends when what the token rests on is revoked.
    ///
    /// # Errors
    /// What is wrong with the token, as on any other stream.
    pub async fn open(&self, tenant: &str, token: &str) -> Result<mpsc::Sender<NearCall>, Failure> {
        let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let conn = Conn::new(0, remote, None, None, Arc::clone(&self.shared));
        let offer = offer();
        let (standing, used) = auth::authenticate(&conn, &offer.auth(tenant, token)).await?;
        let peer = conn.shared.served.grant(&offer).peer;
        let state = StreamState::new(&conn, standing, used, peer);
        let (sender, calls) = mpsc::channel(CALLS_UNANSWERED_MAX);
        tokio::spawn(run(state, calls));
        Ok(sender)
    }
}

fn offer() -> Offer {
    let extensions: Extensions = [Extension::Requests, Extension::Raw].into_iter().collect();
    Offer {
        flags: Some(Flags::ALL),
        features: Features::ALL,
        reads_second_word: true,
        extensions,
    }
}

async fn run(mut state: StreamState, mut calls: mpsc::Receiver<NearCall>) {
    let standing = Arc::clone(&state.standing);
    let moved = standing.changed();
    tokio::pin!(moved);
    let mut heard = Vec::with_capacity(CALLS_PER_TURN);
    loop {
        if standing.serial() != state.seen() {
            moved.set(standing.changed());
            if let Some(over @ Over::Revoked(_)) = state.looks() {
                // Whoever waits is told so when what he asked is dropped.
                state.answers.ends_with(over.failure());
                return;
            }
        }
        let full = state.answers.is_full();
        tokio::select! {
            biased;
            () = &mut moved => {}
            () = state.answers.ready(), if full => {}
            count = calls.recv_many(&mut heard, CALLS_PER_TURN), if !full => {
                if count == 0 {
                    return;
                }
            }
        }
        if heard.is_empty() {
            continue;
        }
        let gathered = state.gather(heard.drain(..));
        Box::pin(hand_over(&mut state, gathered)).await;
    }
}

impl StreamState {
    /// What was heard, but for what is refused because of the token.
    fn gather(&mut self, heard: impl Iterator<Item = NearCall>) -> super::calls::Gathered {
        let mut gathered = super::calls::Gathered::default();
        for (call, answer) in heard {
            let caller = Caller::near(&self.answers, answer);
            match self.refusal() {
                Some(failure) => caller.fail(failure),
                None => gathered.push(call, caller),
            }
        }
        gathered
    }
}
