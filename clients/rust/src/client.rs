//! The client: what a program holds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use felix_model::{Namespace, StreamName};
use tokio::time::timeout;

use crate::brokers::Brokers;
use crate::builder::{BadConfig, Builder, Config};
use crate::error::{ConnectFailed, PublishFailed};
use crate::limits::{CLOSE_TIMEOUT, GOODBYE_TIMEOUT};
use crate::publish::{Published, Publisher, Target};
use crate::record::Record;
use crate::requests::Widths;
use crate::subscribe::{Subscribe, SubscribeAll};
use crate::token::TokenSource;
use crate::transport::Transport;

/// A connection to a cluster, in the name of one tenant.
///
/// Cheap to clone; clones share connections, and the last one to go closes them. [`close`](Self::close) first
/// waits for what is in flight.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    pub(crate) namespace: Namespace,
}

/// What all handles of one client share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) brokers: Arc<Brokers>,
    /// The line to the broker in this process, once there was one to send.
    pub(crate) near: tokio::sync::Mutex<Option<crate::asks::Line>>,
    pub(crate) widths: Mutex<Widths>,
    requests: AtomicU64,
    slots: AtomicUsize,
}

impl Client {
    /// Begins to describe a connection.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) async fn connect(
        config: Config,
        transport: Transport,
    ) -> Result<Self, ConnectFailed> {
        let namespace = config.namespace.clone();
        let brokers = Brokers::new(config, transport);
        match &brokers.config.near {
            // Whether the token is good is seen by the first call.
            Some(_) => {}
            None => drop(brokers.first().await?),
        }
        Ok(Self {
            inner: Arc::new(Inner::new(brokers)),
            namespace,
        })
    }

    /// The same client for somebody else: it shares this one's connections, and what it asks is asked with tokens of
    /// `source`. This is for gateways: a broker judges each stream by its own token, so many people can be served over
    /// few connections. Closing or dropping it ends what is its own and no connection.
    ///
    /// # Errors
    /// [`ConnectFailed`] when the broker does not accept the token, or cannot be reached.
    pub async fn with_token(&self, source: TokenSource) -> Result<Self, ConnectFailed> {
        let brokers = Brokers::over(&self.inner.brokers, source);
        brokers.first().await?;
        Ok(Self {
            inner: Arc::new(Inner::new(brokers)),
            namespace: self.namespace.clone(),
        })
    }

    /// The same client for names in another namespace.
    ///
    /// # Errors
    /// When no namespace can have this name.
    pub fn in_namespace(&self, namespace: &str) -> Result<Self, BadConfig> {
        let namespace = Namespace::new(namespace).map_err(|why| BadConfig::Name {
            what: "namespace",
            name: namespace.to_owned(),
            why: why.to_string(),
        })?;
        Ok(Self {
            inner: Arc::clone(&self.inner),
            namespace,
        })
    }

    /// Publishes one record and waits for the answer. A [`Publisher`] does the same with less work for each, and
    /// with many in flight.
    ///
    /// # Errors
    /// [`PublishFailed`] says whether it may have been appended.
    pub async fn publish(
        &self,
        stream: &str,
        record: impl Into<Record>,
    ) -> Result<Published, PublishFailed> {
        self.publisher_on(stream, 0)?.publish(record).await
    }

    /// Publishes records of one key as one batch: contiguous offsets, one answer.
    ///
    /// # Errors
    /// As [`publish`](Self::publish); all of it is appended or nothing.
    pub async fn publish_batch<I>(
        &self,
        stream: &str,
        records: I,
    ) -> Result<Published, PublishFailed>
    where
        I: IntoIterator<Item: Into<Record>>,
    {
        self.publisher_on(stream, 0)?.publish_batch(records).await
    }

    /// A handle for publishing to one stream. Whether the stream exists is seen by the first publish.
    ///
    /// # Errors
    /// When no stream can have this name.
    pub fn publisher(&self, stream: &str) -> Result<Publisher, PublishFailed> {
        self.publisher_on(stream, self.inner.next_slot())
    }

    fn publisher_on(&self, stream: &str, slot: usize) -> Result<Publisher, PublishFailed> {
        let target = self.target(stream)?;
        Ok(Publisher::new(
            Arc::clone(&self.inner),
            Arc::new(target),
            slot,
        ))
    }

    /// Begins a subscription to one shard of a stream: the first, and the newest records, unless said otherwise.
    pub fn subscribe(&self, stream: &str) -> Subscribe {
        Subscribe::new(self.clone(), stream)
    }

    /// Begins a subscription to all shards of a stream, merged.
    pub fn subscribe_all(&self, stream: &str) -> SubscribeAll {
        SubscribeAll::new(self.clone(), stream)
    }

    /// The broker everything goes to at this moment, `host:port`; `None` while there is no connection.
    #[must_use]
    pub fn broker(&self) -> Option<String> {
        self.inner
            .brokers
            .current()
            .map(|address| address.to_string())
    }

    /// Waits until every publish in flight is answered (30 s at most), and closes all connections. Whatever is
    /// asked of the client afterwards fails; subscriptions end.
    pub async fn close(&self) {
        let drained = async {
            for pipe in self.inner.brokers.pipes() {
                pipe.finish().await;
            }
        };
        if timeout(CLOSE_TIMEOUT, drained).await.is_err() {
            tracing::warn!("closing with publishes that are not answered");
        }
        self.inner.brokers.close();
        let _ = timeout(GOODBYE_TIMEOUT, self.inner.brokers.said_goodbye()).await;
    }

    pub(crate) fn target(&self, stream: &str) -> Result<Target, PublishFailed> {
        let tenant = self.inner.brokers.config.tenant.clone();
        let stream = StreamName::new(stream).map_err(|why| PublishFailed::Malformed {
            what: "the stream's name",
            why: why.to_string(),
        })?;
        Ok(Target::new(tenant, self.namespace.clone(), stream))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("tenant", &self.inner.brokers.config.tenant)
            .field("namespace", &self.namespace)
            .field("broker", &self.broker())
            .finish()
    }
}

impl Inner {
    fn new(brokers: Arc<Brokers>) -> Self {
        Self {
            brokers,
            near: tokio::sync::Mutex::default(),
            widths: Mutex::new(BTreeMap::new()),
            requests: AtomicU64::new(1),
            slots: AtomicUsize::new(0),
        }
    }

    /// A number for a request that is answered by number.
    pub(crate) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Which of several connections the next publisher or subscription uses.
    pub(crate) fn next_slot(&self) -> usize {
        self.slots.fetch_add(1, Ordering::Relaxed) % self.brokers.config.connections
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.brokers.close();
    }
}
