//! What the fuzz targets `frame`, `message`, `publish` and `extension` do with their input. Included
//! by the replay test and by the fuzz crate, so both run the same.

use bytes::{Bytes, BytesMut};
use felix_model::Payloads;
use felix_wire::extension::{Answer, Extension, Extensions, Request};
use felix_wire::frame::{Accepts, split};
use felix_wire::limits::{PAYLOAD_BYTES_MAX, UNAUTHENTICATED_BYTES_MAX};
use felix_wire::{
    Ack, EventBatch, EventHead, ExtensionFrame, Flags, Frame, Heard, Incoming, Layout, Message,
    Offer, Outgoing, Publish, Served, Session, Stamps, Ways,
};

/// A stream of frames as a broker hears it: whatever is said, nothing panics, no frame is longer
/// than was allowed, and a stream that ends is not heard any further.
pub(crate) fn frame(data: &[u8]) {
    let served = Served {
        flags: Flags::ALL,
        features: felix_wire::Features::ALL,
        publish_window: 256,
        listener_ports: Vec::new(),
        extensions: all_extensions(),
    };
    let mut session = Session::new(Ways::Both);
    let mut buffer = BytesMut::from(data);
    loop {
        let accepts = session.accepts();
        let known = session.peer().is_some();
        assert_eq!(
            accepts.payload_bytes_max,
            if known {
                PAYLOAD_BYTES_MAX
            } else {
                UNAUTHENTICATED_BYTES_MAX
            }
        );
        let incoming = match split(&mut buffer, accepts) {
            Ok(Some(incoming)) => incoming,
            Ok(None) => return,
            Err(refused) => {
                assert!(session.unreadable(refused).ends);
                return;
            }
        };
        if let Incoming::Published(frame) = &incoming {
            assert!(frame.payload.len() <= accepts.payload_bytes_max);
            rewritten(frame);
        }
        match session.hear(incoming) {
            Heard::Auth(_, offer) => session.open(served.grant(&offer).peer),
            Heard::Refused(refusal) if refusal.ends => return,
            Heard::Publish(_) | Heard::Request(_) | Heard::Extension { .. } => assert!(known),
            Heard::Refused(refusal) => assert!(refusal.answer.is_some()),
        }
    }
}

/// Whatever a frame holds reads the same after it was written again.
fn rewritten(frame: &Frame) {
    let Frame { flags, payload } = frame.clone();
    match flags.layout() {
        Ok(Layout::Json) => message(&payload),
        Ok(Layout::Publish) => publish_as(flags, &payload),
        Ok(Layout::Ack) => {
            if let Ok(ack) = Ack::decode(flags, payload) {
                let mut again = BytesMut::new();
                ack.encode_into(Flags::ALL, &mut again);
                let (flags, payload) = taken(again);
                let read = Ack::decode(flags, payload);
                // An answer of ours always says its class, so only what stands there is compared.
                assert_eq!(
                    read.as_ref().map(|read| read.request_id),
                    Ok(ack.request_id)
                );
                assert_eq!(
                    read.map(|read| read.outcome.is_ok()),
                    Ok(ack.outcome.is_ok())
                );
            }
        }
        Ok(Layout::Events) => {
            if let Ok(batch) = EventBatch::decode(flags, payload) {
                events(&batch);
            }
        }
        Err(refused) => panic!("a frame that was taken has flags that are refused: {refused}"),
    }
}

fn events(batch: &EventBatch) {
    let list: Vec<_> = batch.events().collect();
    assert_eq!(list.len(), batch.count as usize);
    let Ok(payloads) = Payloads::build(list.iter().map(|event| &event.payload[..])) else {
        return;
    };
    let times: Option<Vec<u64>> = list.iter().map(|event| event.timestamp_micros).collect();
    let (body, stamps) = match times.filter(|times| !times.is_empty()) {
        Some(times) => (
            felix_wire::event::stamped(&payloads, times),
            Stamps::Present,
        ),
        None => (payloads.bytes, Stamps::Absent),
    };
    let head = EventHead {
        subscription_id: batch.subscription_id,
        base_offset: batch.base_offset,
        skipped_before: batch.skipped_before,
        publisher: batch.publisher.as_deref(),
    };
    let mut again = head.encode(&body, stamps);
    again.extend_from_slice(&body);
    let (flags, payload) = taken(again);
    let Ok(read) = EventBatch::decode(flags, payload) else {
        panic!("events cannot be read back")
    };
    assert_eq!(read.events().collect::<Vec<_>>(), list);
}

/// A JSON message: read, written, and read as the same.
pub(crate) fn message(data: &[u8]) {
    let Ok(message) = Message::decode(data) else {
        return;
    };
    if let Message::Auth(auth) = &message {
        let offer = Offer::of(auth);
        assert_eq!(Offer::of(&offer.auth("t", "k")).flags, offer.flags);
    }
    let (flags, payload) = taken(message.encode().into());
    assert_eq!(flags, Flags::NONE);
    assert_eq!(Message::decode(&payload), Ok(message));
}

/// A binary publish of every set of flags: read, written, and read as the same.
pub(crate) fn publish(data: &[u8]) {
    let payload = Bytes::copy_from_slice(data);
    for flags in [0x0001, 0x0009, 0x0041, 0x0049, 0x0109, 0x0149] {
        publish_as(Flags::from_bits(flags), &payload);
    }
}

fn publish_as(flags: Flags, payload: &Bytes) {
    let read = match Publish::decode(flags, payload.clone()) {
        Ok(read) => read,
        Err(malformed) => {
            let named = flags.contains(Flags::PUBLISH_ACKED) && payload.len() >= 8;
            assert_eq!(malformed.request_id.is_some(), named);
            return;
        }
    };
    let outgoing = Outgoing {
        request: read.request,
        producer: read.producer,
        key: read.key.as_deref(),
        tenant: read.names.tenant(),
        namespace: read.names.namespace(),
        stream: read.names.stream(),
    };
    let Ok(again) = outgoing.encode(&read.payloads) else {
        panic!("cannot be written")
    };
    let (again_flags, again) = taken(again.into());
    assert_eq!(again_flags, flags);
    assert!(payload.starts_with(&again));
    assert_eq!(Publish::decode(flags, again), Ok(read));
}

/// A frame of ours, as broker and as client.
pub(crate) fn extension(data: &[u8]) {
    let accepts = Accepts {
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        extensions: true,
    };
    let mut buffer = BytesMut::from(&felix_wire::extension::MAGIC[..]);
    buffer.extend_from_slice(data);
    while let Ok(Some(incoming)) = split(&mut buffer, accepts) {
        let Incoming::Extension(frame) = incoming else {
            continue;
        };
        let mut again = BytesMut::from(&frame.encode()[..]);
        assert_eq!(
            split(&mut again, accepts),
            Ok(Some(Incoming::Extension(frame.clone())))
        );
        assert!(frame.clone().request(Extensions::NONE).is_err());
        request(frame.clone());
        if let Ok(Answer::Reply(reply)) = frame.clone().answer(all_extensions()) {
            let mut again = BytesMut::new();
            assert_eq!(reply.encode_into(frame.correlation, &mut again), Ok(()));
            assert_eq!(again, frame.encode());
        }
    }
}

fn request(frame: ExtensionFrame) {
    let correlation = frame.correlation;
    let sent = frame.encode();
    match frame.request(all_extensions()) {
        Ok(Request::Call(call)) => {
            let mut again = BytesMut::new();
            assert_eq!(call.encode_into(correlation, &mut again), Ok(()));
            assert_eq!(again, sent);
        }
        Ok(Request::Renew(renew)) => assert_eq!(renew.encode(correlation), Some(sent)),
        Ok(Request::PublishRecords(request)) => {
            let names = [
                request.names.tenant(),
                request.names.namespace(),
                request.names.stream(),
            ];
            let bytes: usize = names.map(str::len).into_iter().sum();
            assert_eq!(request.names.raw().len(), 6 + bytes);
        }
        Err(refused) => {
            let mut answer = BytesMut::from(&refused.encode(correlation)[..]);
            let accepts = Accepts {
                payload_bytes_max: PAYLOAD_BYTES_MAX,
                extensions: true,
            };
            assert!(matches!(
                split(&mut answer, accepts),
                Ok(Some(Incoming::Extension(_)))
            ));
        }
    }
}

fn all_extensions() -> Extensions {
    Extension::ALL.into_iter().collect()
}

/// The one frame of a buffer.
fn taken(mut buffer: BytesMut) -> (Flags, Bytes) {
    let accepts = Accepts {
        payload_bytes_max: usize::MAX,
        extensions: false,
    };
    match split(&mut buffer, accepts) {
        Ok(Some(Incoming::Published(Frame { flags, payload }))) => (flags, payload),
        other => panic!("{other:?} is not what was written"),
    }
}
