//! Topics are streams: under which name a Kafka client sees which stream, and by which id.
//!
//! A stream of the default namespace has its own name. One of another namespace is `namespace.stream`, as long as no
//! stream of the default namespace has that whole name; so every stream has one name at most, and a name means one
//! stream.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use felix_meta::{StreamRecord, TenantEntry};
use felix_model::{Namespace, StreamName};
use sha2::{Digest, Sha256};

/// The namespace whose streams have plain names.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// Longest name of a topic in the Kafka protocol.
pub(crate) const TOPIC_BYTES_MAX: usize = 249;

/// An id of a topic, as it stands on the wire.
pub(crate) type TopicId = [u8; 16];

/// One topic.
#[derive(Debug)]
pub(crate) struct Topic {
    /// The name that Kafka clients use.
    pub(crate) name: String,
    /// Another one for every stream that ever had the name.
    pub(crate) id: TopicId,
    /// What brokers call the stream where they share out its shards.
    pub(crate) number: u64,
    /// The stream.
    pub(crate) stream: Arc<StreamRecord>,
}

/// The topics of one tenant at one revision of the catalogue.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    by_name: BTreeMap<String, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
    by_number: HashMap<u64, Arc<Topic>>,
}

/// Where a topic that does not exist would be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) namespace: Namespace,
    pub(crate) stream: StreamName,
}

/// No topic can have this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no topic can be called that: {0}")]
pub(crate) struct BadTopic(pub(crate) String);

impl Topics {
    /// Finds names and ids for every stream of a tenant.
    pub(crate) fn of(tenant: &TenantEntry) -> Self {
        let default = tenant.namespaces.get(DEFAULT_NAMESPACE);
        let taken = |name: &str| default.is_some_and(|space| space.streams.contains_key(name));
        let mut topics = Self::default();
        for (namespace, space) in &tenant.namespaces {
            for (name, stream) in &space.streams {
                let topic = if namespace.as_str() == DEFAULT_NAMESPACE {
                    name.as_str().to_owned()
                } else {
                    format!("{namespace}.{name}")
                };
                let hidden = namespace.as_str() != DEFAULT_NAMESPACE && taken(&topic);
                // Two namespaces may give one name, `a` with `b.c` and `a.b` with `c`; the shorter one has it.
                if hidden || topic.len() > TOPIC_BYTES_MAX || topics.by_name.contains_key(&topic) {
                    continue;
                }
                let topic = Arc::new(Topic {
                    id: id_of(stream),
                    number: stream.incarnation.number(namespace.as_str(), name.as_str()),
                    stream: Arc::clone(stream),
                    name: topic,
                });
                topics.by_id.insert(topic.id, Arc::clone(&topic));
                topics.by_number.insert(topic.number, Arc::clone(&topic));
                topics.by_name.insert(topic.name.clone(), topic);
            }
        }
        topics
    }

    /// The topic of a name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    /// The topic of an id.
    pub(crate) fn with_id(&self, id: &TopicId) -> Option<&Arc<Topic>> {
        self.by_id.get(id)
    }

    /// The topic of a stream that a broker names by its number.
    pub(crate) fn numbered(&self, number: u64) -> Option<&Arc<Topic>> {
        self.by_number.get(&number)
    }

    /// Every topic, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }

    /// The name of a stream that a broker speaks of.
    pub(crate) fn of_stream(&self, namespace: &str, stream: &str) -> Option<&Arc<Topic>> {
        let plain = namespace == DEFAULT_NAMESPACE;
        let joined = if plain {
            self.by_name.get(stream)
        } else {
            self.by_name.get(&format!("{namespace}.{stream}"))
        };
        joined.filter(|topic| {
            topic.stream.namespace.as_str() == namespace && topic.stream.stream.as_str() == stream
        })
    }
}

/// Where a topic of this name belongs: in the namespace that its first part names, if there is one, else in the
/// default one.
///
/// # Errors
/// [`BadTopic`] when no stream can have the name.
pub(crate) fn place(tenant: &TenantEntry, topic: &str) -> Result<Place, BadTopic> {
    let bad = |error: felix_model::BadName| BadTopic(error.to_string());
    let parts = topic.split_once('.').filter(|(first, rest)| {
        *first != DEFAULT_NAMESPACE && !rest.is_empty() && tenant.namespaces.contains_key(*first)
    });
    let (namespace, stream) = parts.unwrap_or((DEFAULT_NAMESPACE, topic));
    Ok(Place {
        namespace: Namespace::new(namespace).map_err(bad)?,
        stream: StreamName::new(stream).map_err(bad)?,
    })
}

/// An id that a stream keeps as long as it exists and that no other stream has: a digest of where it is and of what
/// tells it from earlier ones of its name, in the form of a version 8 UUID.
fn id_of(stream: &StreamRecord) -> TopicId {
    let mut hash = Sha256::new();
    for part in [
        stream.tenant_id.as_str(),
        stream.namespace.as_str(),
        stream.stream.as_str(),
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(stream.incarnation.0.to_be_bytes());
    let digest = hash.finalize();
    let mut id = TopicId::default();
    for (to, from) in id.iter_mut().zip(digest) {
        *to = from;
    }
    id[6] = id[6] & 0x0f | 0x80;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

#[cfg(test)]
pub(crate) mod tests {
    use felix_meta::NamespaceEntry;
    use felix_meta::record::StreamSpec;
    use felix_model::Incarnation;

    use super::*;

    fn stream(namespace: &str, name: &str, incarnation: u64) -> Arc<StreamRecord> {
        let spec = serde_json::to_value(StreamSpec::new(name.parse().unwrap())).unwrap();
        let mut record = spec;
        record["tenant_id"] = "acme".into();
        record["namespace"] = namespace.into();
        record["max_record_bytes"] = 1000.into();
        record["incarnation"] = incarnation.into();
        serde_json::from_value::<StreamRecord>(record)
            .map(Arc::new)
            .unwrap()
    }

    fn tenant(streams: &[(&str, &str)]) -> TenantEntry {
        let mut tenant = TenantEntry::default();
        for (namespace, name) in streams {
            let space = tenant
                .namespaces
                .entry(namespace.parse().unwrap())
                .or_default();
            let space: &mut NamespaceEntry = Arc::make_mut(space);
            space
                .streams
                .insert(name.parse().unwrap(), stream(namespace, name, 1));
        }
        tenant
    }

    /// The topics of a tenant with these streams.
    pub(crate) fn topics(streams: &[(&str, &str)]) -> Topics {
        Topics::of(&tenant(streams))
    }

    #[test]
    fn a_stream_of_another_namespace_is_called_by_both_names() {
        let topics = Topics::of(&tenant(&[("default", "orders"), ("shop", "orders")]));
        let names: Vec<_> = topics.iter().map(|topic| topic.name.as_str()).collect();
        assert_eq!(names, ["orders", "shop.orders"]);
        assert_eq!(
            topics
                .named("shop.orders")
                .unwrap()
                .stream
                .namespace
                .as_str(),
            "shop"
        );
        assert_eq!(
            topics.of_stream("shop", "orders").unwrap().name,
            "shop.orders"
        );
        assert!(topics.named("default.orders").is_none());
    }

    #[test]
    fn a_whole_name_of_the_default_namespace_comes_first() {
        let topics = Topics::of(&tenant(&[("default", "shop.orders"), ("shop", "orders")]));
        let topic = topics.named("shop.orders").unwrap();
        assert_eq!(topic.stream.namespace.as_str(), "default");
        assert_eq!(topics.iter().count(), 1);
        assert!(topics.of_stream("shop", "orders").is_none());
    }

    #[test]
    fn streams_that_were_created_together_are_told_apart() {
        let topics = Topics::of(&tenant(&[
            ("default", "a"),
            ("default", "b"),
            ("shop", "a"),
        ]));
        for topic in topics.iter() {
            assert_eq!(topics.numbered(topic.number).unwrap().name, topic.name);
            assert_eq!(topics.with_id(&topic.id).unwrap().name, topic.name);
        }
    }

    #[test]
    fn an_id_is_of_one_incarnation() {
        let (first, second) = (stream("default", "a", 1), stream("default", "a", 2));
        assert_eq!(id_of(&first), id_of(&first));
        assert_ne!(id_of(&first), id_of(&second));
        assert_ne!(id_of(&first), id_of(&stream("a", "default", 1)));
        assert_eq!(first.incarnation, Incarnation(1));
    }

    #[test]
    fn a_new_topic_goes_where_its_first_part_says() {
        let tenant = tenant(&[("shop", "x")]);
        let there = place(&tenant, "shop.orders").unwrap();
        assert_eq!(
            (there.namespace.as_str(), there.stream.as_str()),
            ("shop", "orders")
        );
        let here = place(&tenant, "store.orders").unwrap();
        assert_eq!(
            (here.namespace.as_str(), here.stream.as_str()),
            ("default", "store.orders")
        );
        for bad in ["", ".", "..", "_x", "a b", "shop."] {
            let placed = place(&tenant, bad);
            assert!(placed.is_err() || bad == "shop.", "{bad}: {placed:?}");
        }
    }
}
