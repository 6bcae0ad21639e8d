//! InitProducerId: an id for an idempotent producer, or the next epoch of the one it has.

use std::sync::Arc;

use felix_client::raw::RawProducerId;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};

use super::{Ctx, Head};
use crate::wire::codes::{
    INVALID_PRODUCER_EPOCH, INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
};

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    _head: Head,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refused = |error| {
        InitProducerIdResponse::default()
            .with_error_code(error)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1)
    };
    if request.transactional_id.is_some() {
        return refused(TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    }
    let held = (request.producer_id.0, request.producer_epoch);
    let ask = match (u64::try_from(held.0), u16::try_from(held.1)) {
        (Ok(id), Ok(epoch)) => RawProducerId {
            id: Some(id),
            epoch,
        },
        (Err(_), Err(_)) => RawProducerId { id: None, epoch: 0 },
        // One of the two alone means nothing.
        _ => return refused(INVALID_REQUEST),
    };
    let given = async { ctx.raw().await?.producer_id(ask).await };
    match given.await {
        Ok(given) => {
            let (id, epoch) = (i64::try_from(given.id), i16::try_from(given.epoch));
            match (id, epoch) {
                (Ok(id), Ok(epoch)) => InitProducerIdResponse::default()
                    .with_producer_id(ProducerId(id))
                    .with_producer_epoch(epoch),
                _ => refused(INVALID_PRODUCER_EPOCH),
            }
        }
        Err(failed) => refused(failed.raw_error().number()),
    }
}
