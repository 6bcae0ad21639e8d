//! What a node answered, for tests that know what it has to be.

use felix_wire::Failure;
use felix_wire::error::Code;
use felix_wire::message::{Message, ProducerInit};

use crate::Node;
use crate::raw::Stream;

/// The failure in an `error`.
///
/// # Panics
/// When the answer is anything else.
pub fn failure(answer: Message) -> Failure {
    if let Message::Error(failure) = answer {
        return failure;
    }
    panic!("not refused: {answer:?}")
}

/// The failure in a `publish_error`.
///
/// # Panics
/// When the answer is anything else.
pub fn publish_failure(answer: Message) -> Failure {
    if let Message::PublishError(error) = answer {
        return error.into_failure();
    }
    panic!("not refused: {answer:?}")
}

/// The code in an `error`.
///
/// # Panics
/// When the answer is anything else.
pub fn code(answer: Message) -> Option<Code> {
    failure(answer).code()
}

/// Sees that a stream still answers.
///
/// # Panics
/// When it does not.
pub async fn still_serves(stream: &mut Stream) {
    let answer = stream.ask(ProducerInit { request_id: 77 }).await;
    let served = matches!(&answer, Ok(Message::ProducerInitOk(ok)) if ok.request_id == 77);
    assert!(served, "{answer:?}");
}

/// Sees that a node as a whole still takes records.
///
/// # Panics
/// When it does not.
pub async fn node_serves(node: &Node) {
    let published = match node.client().await {
        Ok(client) => client
            .publish("orders", "still here")
            .await
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    assert!(published.is_ok(), "{published:?}");
}
