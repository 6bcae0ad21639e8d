//! The servers of a development node, started one after the other and stopped the other way
//! round.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use felix_controlplane::ControlPlane;
use felix_controlplane_client::{Api, Held, TokenSource};

use super::browsers::{self, Behind};
use super::home::Home;
use super::ports::Ports;
use super::provider::Provider;
use super::ready::Ready;
use super::tokens::Kept;
use super::{BOOTSTRAP_URL_FILE, certificate, seed};
use crate::contexts::write_private;
use crate::exit::{Exit, Failure};

/// Name of the one broker.
const NODE_ID: &str = "dev";
/// Name of the cluster: a directory of another one is refused rather than mixed up.
const CLUSTER: &str = "dev";

/// A running development node.
#[derive(Debug)]
pub struct Node {
    kept: Kept,
    gateway: felix_gateway::Running,
    provider: Provider,
    kafka: felix_kafka::Running,
    broker: felix_broker::Running,
    controlplane: ControlPlane,
    url_file: PathBuf,
    // Last, so that an ephemeral directory is removed after everything in it was closed.
    _home: Home,
}

impl Node {
    /// Starts the control plane, fills it, starts the broker. Both answer when this returns.
    ///
    /// # Errors
    /// When one of them cannot start; nothing is left running then.
    pub async fn start(home: Home, ports: &Ports) -> Result<(Self, Ready), Failure> {
        let secret = home.bootstrap_secret()?;
        let tls = certificate::prepare(&home.path().join("tls"))
            .map_err(|error| Failure::failed(error.to_string()))?;
        let controlplane = ControlPlane::start(controlplane_config(&home, ports, &secret)?)
            .await
            .map_err(|error| start_failed("the control plane", &error))?;
        let addresses = controlplane.addresses();
        let controlplane_url = format!("http://{}", addresses.api);
        let bootstrap_url = match addresses.bootstrap {
            Some(address) => format!("http://{address}"),
            None => {
                return Err(Failure::failed(
                    "the control plane has no bootstrap listener",
                ));
            }
        };
        let provider = Provider::start(ports.provider, &home.path().join("provider"))
            .await
            .map_err(|error| start_failed("the sign-in", &error))?;
        let issuer = provider.issuer().to_owned();
        let people = seed::people(&controlplane, &issuer).await;
        let tokens = people.map_err(seed_failed)?;
        let api = Api::new(&controlplane_url, TokenSource::fixed(&tokens.controlplane))
            .map_err(|error| Failure::failed(error.to_string()))?;
        seed::content(&api).await.map_err(seed_failed)?;
        // Quotas and the meaning of acks come from the environment, as for a broker on its own; where things are
        // is this process's to say.
        let from_environment =
            felix_broker::Config::load(None).map_err(|error| Failure::usage(error.to_string()))?;
        let broker = felix_broker::Config {
            listen: ports.broker,
            metrics_listen: ports.broker_admin,
            data_dir: Some(home.path().join("broker")),
            node_id: NODE_ID.to_owned(),
            controlplane_url: controlplane_url.clone(),
            tls_cert: Some(tls.certificate),
            tls_key: Some(tls.key),
            advertise: None,
            ..from_environment
        };
        let kept = Kept::new(&tokens, controlplane.dev_tokens());
        let embedding = felix_broker::Embedding {
            token: Some(kept.node.clone()),
            cluster: Some(CLUSTER.to_owned()),
            ..felix_broker::Embedding::default()
        };
        let broker = felix_broker::start(broker, embedding)
            .await
            .map_err(|error| start_failed("the broker", &error))?;
        let kafka = felix_kafka::Config {
            listen: ports.kafka,
            metrics_listen: ports.kafka_admin,
            brokers: vec![broker.address().to_string()],
            broker_ca: Some(tls.ca.clone()),
            broker_name: Some("localhost".to_owned()),
            controlplane_url: controlplane_url.clone(),
            auto_create_topics: true,
            ..felix_kafka::Config::default()
        };
        let embedding = felix_kafka::Embedding {
            token: Some(kept.node.clone()),
            near: Some(std::sync::Arc::new(Beside(broker.near()))),
            anonymous: Some(felix_kafka::Anonymous {
                tenant: seed::TENANT.to_owned(),
                token: kept.client.clone(),
                controlplane_token: kept.controlplane.clone(),
            }),
        };
        let kafka = felix_kafka::start(kafka, embedding)
            .await
            .map_err(|error| start_failed("the Kafka listener", &error))?;
        let behind = Behind {
            broker: broker.address(),
            ca: &tls.ca,
            controlplane_url: &controlplane_url,
            issuer: &issuer,
        };
        let gateway = browsers::start(ports.gateway, &behind)
            .await
            .map_err(|error| start_failed("the gateway", &error))?;
        let gateway_url = format!("http://{}", gateway.address());
        let url_file = home.path().join(BOOTSTRAP_URL_FILE);
        write_private(&url_file, bootstrap_url.as_bytes())
            .map_err(|error| Failure::failed(format!("{}: {error}", url_file.display())))?;
        let ready = Ready {
            brokers: vec![broker.address().to_string()],
            ca_file: tls.ca,
            server_name: "localhost".to_owned(),
            tenant: seed::TENANT.to_owned(),
            namespace: seed::NAMESPACE.to_owned(),
            token: tokens.client,
            controlplane_url,
            controlplane_token: tokens.controlplane,
            broker_admin_url: format!("http://{}", broker.metrics_address()),
            bootstrap_url,
            kafka_bootstrap: kafka.address().to_string(),
            console_url: format!("{gateway_url}/console/"),
            whiteboard_url: format!("{gateway_url}/"),
            gateway_url,
            issuer_url: issuer,
            data_dir: home.kept_path().map(std::path::Path::to_path_buf),
        };
        Ok((
            Self {
                kept,
                gateway,
                provider,
                kafka,
                broker,
                controlplane,
                url_file,
                _home: home,
            },
            ready,
        ))
    }

    /// The tokens in force, for who passes them on.
    pub(super) fn tokens(&self) -> (Held, Held) {
        (self.kept.client.clone(), self.kept.controlplane.clone())
    }

    /// Stops the broker, which answers what it accepted and flushes, then the control plane.
    ///
    /// # Errors
    /// When something that was accepted could not be made safe.
    pub async fn stop(self) -> Result<(), Failure> {
        // The address is good only while the node runs.
        let _ = fs::remove_file(&self.url_file);
        // Those in front go first, so that what they passed on is still answered.
        self.gateway.shutdown().await;
        self.provider.shutdown().await;
        self.kafka.shutdown().await;
        let stopped = self.broker.shutdown().await;
        self.kept.end().await;
        self.controlplane.shutdown().await;
        if stopped.unflushed_logs > 0 {
            return Err(Failure::failed(format!(
                "the last records of {} logs could not be flushed",
                stopped.unflushed_logs
            )));
        }
        Ok(())
    }
}

/// How long tokens live and which providers may be asked come from the environment, as for a
/// control plane on its own; where things are is this process's to say.
fn controlplane_config(
    home: &Home,
    ports: &Ports,
    secret: &str,
) -> Result<felix_controlplane::Config, Failure> {
    let from_environment =
        felix_controlplane::Config::load(None, &BTreeMap::<String, String>::new())
            .map_err(|error| Failure::usage(error.to_string()))?;
    Ok(felix_controlplane::Config {
        data_dir: home.path().join("controlplane"),
        bind: ports.controlplane,
        metrics_bind: ports.controlplane_metrics,
        bootstrap_enabled: true,
        bootstrap_bind_addr: ports.bootstrap,
        bootstrap_token: felix_controlplane::Secret(secret.to_owned()),
        bootstrap_dev_tokens: true,
        // Nobody balances load over a development node.
        shutdown_predrain_ms: 0,
        ..from_environment
    })
}

fn start_failed(what: &str, error: &dyn std::error::Error) -> Failure {
    let message = format!("{what} cannot start: {error}");
    let failure = Failure::failed(message.clone());
    // All of them say it in their own words, and all words end in the system's.
    if message.contains("in use") {
        return Failure {
            exit: Exit::Conflict,
            ..failure
        }
        .with_hint(
            "another node may be running; --port-base moves the ports, --data-dir the directory",
        );
    }
    failure
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is the argument of map_err"
)]
fn seed_failed(error: seed::SeedFailed) -> Failure {
    Failure::failed(error.to_string())
}

/// The broker of this process, as the Kafka listener beside it reaches it.
#[derive(Debug)]
struct Beside(felix_broker::Near);

impl felix_client::Near for Beside {
    fn open<'a>(&'a self, tenant: &'a str, token: &'a str) -> felix_client::Opening<'a> {
        Box::pin(self.0.open(tenant, token))
    }
}
