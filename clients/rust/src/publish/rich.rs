//! Records with headers and times: the `records` extension, which carries whole record batches.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use felix_model::{BatchBuilder, BatchOptions};
use felix_wire::extension::{Answer, Extension, ExtensionFrame, Extensions};
use felix_wire::message::RefusedReason;

use super::answer::{NotPublished, Outcome};
use crate::error::PublishFailed;
use crate::record::Record;

/// A record batch of these records. Those without a time of their own get the time of now.
pub(crate) fn batch(records: &[Record]) -> Result<Bytes, PublishFailed> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let now_ms = now_ms();
    for record in records {
        let headers: Vec<(&[u8], Option<&[u8]>)> = record
            .headers
            .iter()
            .map(|(name, value)| (&**name, Some(&**value)))
            .collect();
        builder
            .push(
                record.timestamp_ms.unwrap_or(now_ms),
                record.key.as_deref(),
                Some(&record.payload),
                &headers,
            )
            .map_err(refused)?;
    }
    builder
        .finish()
        .map(bytes::BytesMut::freeze)
        .map_err(refused)
}

fn refused(why: impl std::fmt::Display) -> PublishFailed {
    PublishFailed::Malformed {
        what: "batch",
        why: why.to_string(),
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The answer in a frame of ours. The error says why the frame is none.
pub(crate) fn answer_in(frame: ExtensionFrame) -> Result<(u64, Outcome), String> {
    let id = frame.correlation;
    let granted: Extensions = [Extension::Records].into_iter().collect();
    match frame
        .answer(granted)
        .map_err(|refused| refused.to_string())?
    {
        Answer::Published(published) => Ok((id, Ok(published.offset))),
        Answer::Refused(refused) => {
            let out_of_place = |reason| {
                let message = refused.failure.message.clone();
                Err(NotPublished::OutOfPlace(reason, message))
            };
            let outcome = match (refused.failure.reason(), refused.number, &refused.owner) {
                (Some("sequence_gap"), Some(expected), _) => {
                    out_of_place(RefusedReason::SequenceGap { expected })
                }
                (Some("sequence_expired"), ..) => out_of_place(RefusedReason::SequenceExpired),
                (Some("sequence_reused"), ..) => out_of_place(RefusedReason::SequenceReused),
                (Some("unknown_producer"), ..) => out_of_place(RefusedReason::UnknownProducer),
                (Some("offset_mismatch"), Some(tail), _) => {
                    out_of_place(RefusedReason::OffsetMismatch { tail })
                }
                (_, _, Some(owner)) => out_of_place(RefusedReason::NotLeader {
                    node_id: owner.node_id.clone(),
                    addr: owner.addr.clone(),
                }),
                _ => Err(NotPublished::Refused(refused.failure)),
            };
            Ok((id, outcome))
        }
        Answer::Deliver(_) | Answer::Reply(_) | Answer::Expiring(_) | Answer::Renewed(_) => {
            Err("an answer to something else came on a publish stream".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use felix_model::Records;
    use felix_wire::error::{Code, Failure};
    use felix_wire::extension::Refused;

    use super::*;

    #[test]
    fn keys_headers_and_times_stand_in_the_batch() {
        let records = [
            Record::new("a").key("k").header("h", "v").timestamp_ms(7),
            Record::new("b").timestamp_ms(9),
        ];
        let batch = batch(&records).unwrap();
        felix_model::verify(&batch).unwrap();
        let read: Vec<_> = Records::new(&batch).unwrap().map(Result::unwrap).collect();
        assert_eq!(read[0].key.as_deref(), Some(b"k".as_slice()));
        assert_eq!(read[0].timestamp_ms, 7);
        assert_eq!(read[0].headers.last(b"h"), Some(Some("v".into())));
        assert_eq!(read[1].value.as_deref(), Some(b"b".as_slice()));
    }

    #[test]
    fn a_refusal_that_names_a_sequence_is_read_as_what_it_is() {
        let failure = Failure::new(Code::InvalidRequest, "gap").with_reason("sequence_gap");
        let refused = Refused {
            failure,
            number: Some(3),
            owner: None,
        };
        let bytes = refused.encode(12);
        let mut buffer = bytes::BytesMut::from(&*bytes);
        let accepts = felix_wire::Accepts {
            payload_bytes_max: 1024,
            extensions: true,
        };
        let frame = felix_wire::frame::split(&mut buffer, accepts).unwrap();
        let Some(felix_wire::Incoming::Extension(frame)) = frame else {
            panic!("{frame:?}")
        };
        let (id, outcome) = answer_in(frame).unwrap();
        assert_eq!(id, 12);
        assert!(matches!(
            outcome,
            Err(NotPublished::OutOfPlace(
                RefusedReason::SequenceGap { expected: 3 },
                _
            ))
        ));
    }
}
