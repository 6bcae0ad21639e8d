//! From batches of a cache's log to the events of one watch.

use bytes::Bytes;
use felix_engine::Batch;
use felix_model::forms::Keyed;
use felix_model::{BatchRefused, Offset, Records, TimeMs};
use felix_wire::message::{CacheEvent, Message};

/// Which keys are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Key(Bytes),
    Prefix(Bytes),
}

impl Filter {
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        match self {
            Self::Key(watched) => watched == key,
            Self::Prefix(prefix) => key.starts_with(prefix),
        }
    }

    /// What the watched keys begin with.
    pub(super) fn prefix(&self) -> &[u8] {
        match self {
            Self::Key(key) => key,
            Self::Prefix(prefix) => prefix,
        }
    }
}

/// Appends the events of a batch from `from` on. Counters are not seen by watches.
///
/// # Errors
/// When a stored batch does not hold what a batch holds.
pub(super) fn events(
    batch: &Batch,
    from: Offset,
    filter: &Filter,
    now: TimeMs,
    out: &mut Vec<Bytes>,
) -> Result<(), BatchRefused> {
    let Some(log) = batch.log() else {
        return Ok(());
    };
    for record in Records::new(log)? {
        let record = record?;
        if record.offset < from || !record.key.as_ref().is_some_and(|key| filter.holds(key)) {
            continue;
        }
        match Keyed::read(&record)? {
            Keyed::Put {
                key,
                value,
                expires,
            } => out.push(event(&key, Some((value, expires)), record.offset, now)),
            Keyed::Delete { key } => out.push(event(&key, None, record.offset, now)),
            Keyed::Add { .. } | Keyed::Checkpoint { .. } => {}
        }
    }
    Ok(())
}

/// The frame of one event. A value that expired is told as its deletion, from the same instant on.
pub(super) fn event(
    key: &[u8],
    value: Option<(Bytes, Option<TimeMs>)>,
    offset: Offset,
    now: TimeMs,
) -> Bytes {
    let live = value.filter(|(_, expires)| expires.is_none_or(|at| at > now));
    let (value, expires) = live.map_or((None, None), |(value, expires)| (Some(value), expires));
    let event = CacheEvent {
        key: String::from_utf8_lossy(key).into_owned(),
        value,
        offset: offset.0,
        expires_at_millis: expires.map_or(0, |at| at.0),
    };
    Message::from(event).encode()
}

#[cfg(test)]
mod tests {
    use felix_engine::Batch;
    use felix_model::forms::KeyedBuilder;

    use super::*;

    fn told(filter: &Filter, from: u64, now: u64) -> Vec<(String, Option<Bytes>, u64)> {
        let mut batch = KeyedBuilder::new(TimeMs(1));
        batch.put(b"a1", b"x", Some(TimeMs(50))).unwrap();
        batch.add(b"a1", 5, None).unwrap();
        batch.put(b"b", b"y", None).unwrap();
        batch.delete(b"a1").unwrap();
        batch.checkpoint(b"a1", 5).unwrap();
        batch.put(b"a2", b"", None).unwrap();
        let batch = Batch::from_log(batch.finish().unwrap().freeze()).unwrap();
        let mut out = Vec::new();
        events(&batch, Offset(from), filter, TimeMs(now), &mut out).unwrap();
        out.iter()
            .map(
                |frame| match Message::decode(&frame[felix_wire::frame::HEADER_BYTES..]) {
                    Ok(Message::CacheEvent(event)) => (event.key, event.value, event.offset),
                    other => panic!("{other:?}"),
                },
            )
            .collect()
    }

    #[test]
    fn a_watch_sees_the_changes_of_its_keys_and_no_counters() {
        let prefix = Filter::Prefix(Bytes::from_static(b"a"));
        assert_eq!(
            told(&prefix, 0, 0),
            [
                ("a1".into(), Some(Bytes::from_static(b"x")), 0),
                ("a1".into(), None, 3),
                ("a2".into(), Some(Bytes::new()), 5),
            ]
        );
        let key = Filter::Key(Bytes::from_static(b"a"));
        assert_eq!(told(&key, 0, 0), []);
        let key = Filter::Key(Bytes::from_static(b"b"));
        assert_eq!(told(&key, 0, 0).len(), 1);
        assert_eq!(told(&key, 3, 0), []);
    }

    #[test]
    fn an_expired_value_is_told_as_gone_from_the_same_instant() {
        let key = Filter::Key(Bytes::from_static(b"a1"));
        assert!(told(&key, 0, 49)[0].1.is_some());
        assert!(told(&key, 0, 50)[0].1.is_none());
    }
}
