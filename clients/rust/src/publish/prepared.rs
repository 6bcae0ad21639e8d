//! A batch that was checked and only waits for its request id.

use bytes::Bytes;
use felix_model::Payloads;
use felix_wire::extension::RecordsHead;
use felix_wire::flags::Flags;
use felix_wire::frame::Header;
use felix_wire::limits::PAYLOAD_BYTES_MAX;
use felix_wire::message::{AckMode, PublishBatch, PublishIdempotent};
use felix_wire::negotiate::Features;
use felix_wire::publish::{Producer, PublishTooLong};

use super::Ack;
use super::outbox::Outbox;
use super::rich;
use super::target::Target;
use crate::error::{CallFailed, PublishFailed};
use crate::record::Record;
use crate::session::Granted;

/// A batch for one shard in the form it will have on the wire. Cloning shares the payloads, so an idempotent
/// producer keeps one until it is acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    form: Form,
    key: Option<Bytes>,
    shard: Option<u32>,
    /// Bytes of the payloads: what counts against the budget.
    pub(crate) bytes: usize,
}

#[derive(Clone, Debug)]
enum Form {
    /// Binary, one payload: the common case needs no list.
    One(Bytes),
    /// Binary.
    Many(Vec<Bytes>),
    /// JSON: the published protocol's only way to name a shard.
    Json(Payloads),
    /// A record batch of the `records` extension.
    Rich(Bytes),
}

/// Who prepares a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Plain,
    /// For an idempotent producer or a condition: brokers compare payloads then, and take no record batches.
    Checked,
}

/// What a batch is sent as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    /// `None` for a publish that is never answered.
    pub(crate) request: Option<(u64, Ack)>,
    pub(crate) producer: Option<Producer>,
}

impl Prepared {
    /// Checks records and chooses the cheapest form that carries them. They go to one shard together, so they
    /// have one key, unless a shard is named.
    ///
    /// # Errors
    /// When the broker cannot take them, or nobody could.
    pub(crate) fn new(
        records: Vec<Record>,
        shard: Option<u32>,
        purpose: Purpose,
        target: &Target,
        granted: Granted,
    ) -> Result<Self, PublishFailed> {
        let malformed = |what, why: &str| PublishFailed::Malformed {
            what,
            why: why.to_owned(),
        };
        let first = records
            .first()
            .ok_or_else(|| malformed("batch", "it has no record"))?;
        let key = first.key.clone();
        if shard.is_none() && records.iter().any(|record| record.key != key) {
            return Err(malformed(
                "batch",
                "its records have different keys and no shard is named",
            ));
        }
        if key
            .as_ref()
            .is_some_and(|key| key.len() > usize::from(u16::MAX))
        {
            return Err(malformed("key", "it is longer than 65535 bytes"));
        }
        let bytes = records.iter().map(|record| record.payload.len()).sum();
        let same_key = records.iter().all(|record| record.key == key);
        let rich = records.iter().any(Record::is_rich) || !same_key;
        let may_be_rich = granted.records() && purpose == Purpose::Plain;
        let form = if rich || (shard.is_some() && may_be_rich) {
            if !may_be_rich {
                return Err(CallFailed::Unsupported { feature: "records" }.into());
            }
            Form::Rich(rich::batch(&records)?)
        } else if shard.is_some() {
            if !granted.features.contains(Features::EXPLICIT_SHARD) {
                return Err(CallFailed::Unsupported {
                    feature: "explicit_shard",
                }
                .into());
            }
            let payloads = records.iter().map(|record| &*record.payload);
            Form::Json(
                Payloads::build(payloads).map_err(|why| malformed("batch", &why.to_string()))?,
            )
        } else {
            let mut payloads = records.into_iter().map(|record| record.payload);
            match (payloads.next(), payloads.len()) {
                (Some(payload), 0) => Form::One(payload),
                (first, _) => Form::Many(first.into_iter().chain(payloads).collect()),
            }
        };
        let prepared = Self {
            form,
            key,
            shard,
            bytes,
        };
        prepared.check_size(target)?;
        Ok(prepared)
    }

    /// The usual publish, without a detour over a list.
    pub(crate) fn one(
        payload: Bytes,
        key: Option<Bytes>,
        target: &Target,
    ) -> Result<Self, PublishFailed> {
        if key
            .as_ref()
            .is_some_and(|key| key.len() > usize::from(u16::MAX))
        {
            let why = "it is longer than 65535 bytes".to_owned();
            return Err(PublishFailed::Malformed { what: "key", why });
        }
        let bytes = payload.len();
        let prepared = Self {
            form: Form::One(payload),
            key,
            shard: None,
            bytes,
        };
        prepared.check_size(target)?;
        Ok(prepared)
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    pub(crate) fn key_bytes(&self) -> Option<Bytes> {
        self.key.clone()
    }

    pub(crate) fn shard(&self) -> Option<u32> {
        self.shard
    }

    /// The payloads as a list, for requests in JSON.
    pub(crate) fn payloads(&self) -> Result<Payloads, PublishFailed> {
        let built = match &self.form {
            Form::One(payload) => Payloads::build([&**payload]),
            Form::Many(payloads) => Payloads::build(payloads.iter().map(|payload| &**payload)),
            Form::Json(payloads) => Ok(payloads.clone()),
            Form::Rich(_) => return Err(CallFailed::Unsupported { feature: "records" }.into()),
        };
        built.map_err(|why| PublishFailed::Malformed {
            what: "batch",
            why: why.to_string(),
        })
    }

    /// Appends the frame.
    pub(crate) fn encode(&self, target: &Target, stamp: Stamp, outbox: &mut Outbox) {
        match &self.form {
            Form::One(payload) => {
                self.encode_binary(target, stamp, std::slice::from_ref(payload), outbox);
            }
            Form::Many(payloads) => self.encode_binary(target, stamp, payloads, outbox),
            Form::Json(payloads) => outbox.put_shared(&self.json(target, stamp, payloads)),
            Form::Rich(batch) => {
                // The size was checked when the batch was prepared.
                if let Ok(head) = self.rich_head(target, stamp).encode(stamp.id(), batch) {
                    outbox.put(&head);
                    outbox.put_shared(batch);
                }
            }
        }
    }

    fn encode_binary(
        &self,
        target: &Target,
        stamp: Stamp,
        payloads: &[Bytes],
        outbox: &mut Outbox,
    ) {
        let flags = Flags::PUBLISH
            .with_if(Flags::PUBLISH_ACKED, stamp.request.is_some())
            .with_if(Flags::PUBLISH_IDEMPOTENT, stamp.producer.is_some())
            .with_if(Flags::PUBLISH_KEYED, self.key.is_some());
        let prefixes = stamp.request.map_or(0, |_| 9) + stamp.producer.map_or(0, |_| 16);
        let length = prefixes + self.body_bytes(target, payloads);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        outbox.put(&Header { flags, length }.encode());
        if let Some((id, ack)) = stamp.request {
            outbox.put(&id.to_be_bytes());
            outbox.put(&[ack.byte()]);
        }
        if let Some(Producer { id, sequence }) = stamp.producer {
            outbox.put(&id.to_be_bytes());
            outbox.put(&sequence.to_be_bytes());
        }
        if let Some(key) = &self.key {
            outbox.put(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes());
            outbox.put(key);
        }
        outbox.put(target.names());
        outbox.put(
            &u32::try_from(payloads.len())
                .unwrap_or(u32::MAX)
                .to_be_bytes(),
        );
        for payload in payloads {
            outbox.put(
                &u32::try_from(payload.len())
                    .unwrap_or(u32::MAX)
                    .to_be_bytes(),
            );
            outbox.put_shared(payload);
        }
    }

    /// The longest the frame can become, with every optional field.
    fn frame_bytes_max(&self, target: &Target) -> usize {
        const PREFIXES: usize = 9 + 16;
        match &self.form {
            Form::One(payload) => PREFIXES + self.body_bytes(target, std::slice::from_ref(payload)),
            Form::Many(payloads) => PREFIXES + self.body_bytes(target, payloads),
            Form::Json(payloads) => {
                // Base64 with quotes and comma, and the names and numbers around it.
                let text = payloads.bytes.len().div_ceil(3) * 4 + 8 * payloads.count as usize;
                text + 2 * self.key.as_ref().map_or(0, Bytes::len) + target.names().len() + 256
            }
            Form::Rich(batch) => {
                let fields = 4 + 2 + self.key.as_ref().map_or(0, Bytes::len) + 16 + 8;
                fields + target.names().len() + batch.len()
            }
        }
    }

    fn body_bytes(&self, target: &Target, payloads: &[Bytes]) -> usize {
        let key = self.key.as_ref().map_or(0, |key| 2 + key.len());
        let list: usize = payloads.iter().map(|payload| 4 + payload.len()).sum();
        key + target.names().len() + 4 + list
    }

    fn check_size(&self, target: &Target) -> Result<(), PublishFailed> {
        let bytes = self.frame_bytes_max(target);
        if bytes > PAYLOAD_BYTES_MAX {
            return Err(PublishFailed::TooLarge {
                bytes,
                limit: PAYLOAD_BYTES_MAX,
            });
        }
        Ok(())
    }

    fn json(&self, target: &Target, stamp: Stamp, payloads: &Payloads) -> Bytes {
        let (tenant_id, namespace, stream) = target.strings();
        let (payloads, key, shard) = (payloads.clone(), self.key.clone(), self.shard);
        match stamp.producer {
            Some(Producer {
                id: producer_id,
                sequence,
            }) => felix_wire::Message::from(PublishIdempotent {
                tenant_id,
                namespace,
                stream,
                payloads,
                key,
                shard,
                request_id: stamp.id(),
                producer_id,
                sequence,
            })
            .encode(),
            None => felix_wire::Message::from(PublishBatch {
                tenant_id,
                namespace,
                stream,
                payloads,
                key,
                shard,
                request_id: stamp.request.map(|(id, _)| id),
                ack: Some(stamp.request.map_or(AckMode::None, |(_, ack)| ack.json())),
            })
            .encode(),
        }
    }

    fn rich_head<'a>(&'a self, target: &'a Target, stamp: Stamp) -> RecordsHead<'a> {
        RecordsHead {
            silent: stamp.request.is_none(),
            shard: self.shard,
            key: self.key.as_deref(),
            producer: stamp.producer,
            expected_offset: None,
            tenant: target.tenant.as_str(),
            namespace: target.namespace.as_str(),
            stream: target.stream.as_str(),
        }
    }
}

impl Stamp {
    fn id(self) -> u64 {
        self.request.map_or(0, |(id, _)| id)
    }
}

impl From<PublishTooLong> for PublishFailed {
    fn from(why: PublishTooLong) -> Self {
        match why {
            PublishTooLong::Frame { length, limit } => Self::TooLarge {
                bytes: length,
                limit,
            },
            PublishTooLong::Field { field, .. } => Self::Malformed {
                what: field,
                why: why.to_string(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use felix_wire::extension::Extensions;
    use felix_wire::publish::{BinaryAck, Outgoing, Request};

    use super::*;

    fn target() -> Target {
        Target::new(
            "t1".parse().unwrap(),
            "default".parse().unwrap(),
            "demo".parse().unwrap(),
        )
    }

    fn granted(features: Features, extensions: Extensions) -> Granted {
        Granted {
            features,
            extensions,
            publish_window: 1,
        }
    }

    fn records() -> Extensions {
        [felix_wire::Extension::Records].into_iter().collect()
    }

    fn encoded(prepared: &Prepared, stamp: Stamp) -> Vec<u8> {
        let mut outbox = Outbox::default();
        prepared.encode(&target(), stamp, &mut outbox);
        outbox.chunks().concat()
    }

    #[test]
    fn binary_frames_are_those_of_the_wire_crate() {
        let ack = |ack| match ack {
            Ack::Batch => BinaryAck::PerBatch,
            Ack::Message | Ack::None => BinaryAck::PerMessage,
        };
        let producer = Producer {
            id: 0x1122,
            sequence: 3,
        };
        let long = Bytes::from(vec![9; 10_000]);
        for (request, producer) in [
            (None, None),
            (Some((7, Ack::Message)), None),
            (Some((7, Ack::Batch)), None),
            (Some((7, Ack::Batch)), Some(producer)),
        ] {
            for key in [None, Some(Bytes::new()), Some(Bytes::from_static(b"k7"))] {
                for payloads in [
                    vec!["hello".into()],
                    vec!["a".into(), long.clone(), "".into()],
                ] {
                    let many = payloads.iter().map(|payload: &Bytes| {
                        let record = Record::new(payload.clone());
                        match &key {
                            Some(key) => record.key(key.clone()),
                            None => record,
                        }
                    });
                    let none = granted(Features::NONE, Extensions::NONE);
                    let prepared =
                        Prepared::new(many.collect(), None, Purpose::Plain, &target(), none);
                    let outgoing = Outgoing {
                        request: request.map(|(id, mode)| Request { id, ack: ack(mode) }),
                        producer,
                        key: key.as_deref(),
                        tenant: "t1",
                        namespace: "default",
                        stream: "demo",
                    };
                    let list = Payloads::build(payloads.iter().map(|payload| &**payload)).unwrap();
                    let stamp = Stamp { request, producer };
                    assert_eq!(
                        encoded(&prepared.unwrap(), stamp),
                        outgoing.encode(&list).unwrap()
                    );
                }
            }
        }
    }

    #[test]
    fn a_named_shard_goes_by_extension_or_as_json_or_not_at_all() {
        let form = |purpose, granted| {
            let batch = vec![Record::new("a")];
            Prepared::new(batch, Some(3), purpose, &target(), granted).map(|batch| batch.form)
        };
        let both = granted(Features::EXPLICIT_SHARD, records());
        assert!(matches!(form(Purpose::Plain, both), Ok(Form::Rich(_))));
        assert!(matches!(form(Purpose::Checked, both), Ok(Form::Json(_))));
        let json = granted(Features::EXPLICIT_SHARD, Extensions::NONE);
        assert!(matches!(form(Purpose::Plain, json), Ok(Form::Json(_))));
        let neither = granted(Features::NONE, Extensions::NONE);
        assert_eq!(
            form(Purpose::Plain, neither).unwrap_err().code(),
            "unsupported"
        );
    }

    #[test]
    fn what_cannot_be_sent_is_refused_before_anything_is() {
        let prepare = |batch: Vec<Record>| {
            let all = granted(Features::ALL, records());
            Prepared::new(batch, None, Purpose::Plain, &target(), all)
                .map(drop)
                .map_err(|failed| failed.code().to_owned())
        };
        assert_eq!(prepare(vec![]), Err("malformed".to_owned()));
        let two_keys = vec![Record::new("a").key("1"), Record::new("b").key("2")];
        assert_eq!(prepare(two_keys), Err("malformed".to_owned()));
        assert_eq!(
            prepare(vec![Record::new("a").key(vec![0; 70_000])]),
            Err("malformed".to_owned())
        );
        assert_eq!(
            prepare(vec![Record::new(vec![0; 16 * 1024 * 1024])]),
            Err("too_large".to_owned())
        );
        assert_eq!(
            prepare(vec![Record::new(vec![0; 16 * 1024 * 1024 - 100])]),
            Ok(())
        );
    }

    #[test]
    fn headers_need_the_extension() {
        let batch = || vec![Record::new("a").header("h", "v")];
        let none = granted(Features::ALL, Extensions::NONE);
        let refused = Prepared::new(batch(), None, Purpose::Plain, &target(), none).unwrap_err();
        assert_eq!(refused.code(), "unsupported");
        let all = granted(Features::ALL, records());
        let rich = Prepared::new(batch(), None, Purpose::Plain, &target(), all).unwrap();
        assert!(matches!(rich.form, Form::Rich(_)));
        let stamp = Stamp {
            request: Some((5, Ack::Batch)),
            producer: None,
        };
        assert!(encoded(&rich, stamp).starts_with(b"FXX1"));
    }
}
