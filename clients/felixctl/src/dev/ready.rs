//! What the development node tells the world once it is ready: the ready file for programs, the
//! context for later commands, the lines on the screen for people.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::Connection;
use crate::contexts::{Contexts, ContextsRefused, Taken, write_private};
use crate::exit::Failure;
use crate::output::Style;
use crate::secret::Secret;

/// Name of the context that `dev` writes.
pub const CONTEXT: &str = "dev";

/// How to connect to the node. This is the content of the ready file; its keys do not change.
#[derive(Clone, Serialize)]
pub struct Ready {
    /// Addresses for clients, `host:port`.
    pub brokers: Vec<String>,
    /// File with the authority to trust.
    pub ca_file: PathBuf,
    /// Name in the certificate.
    pub server_name: String,
    /// The tenant.
    pub tenant: String,
    /// The namespace.
    pub namespace: String,
    /// Token for brokers.
    pub token: String,
    /// Address of the control plane.
    pub controlplane_url: String,
    /// Token for the control plane.
    pub controlplane_token: String,
    /// The broker's metrics and administration listener.
    pub broker_admin_url: String,
    /// The listener that mints tokens.
    pub bootstrap_url: String,
    /// Where Kafka clients connect, `host:port`.
    pub kafka_bootstrap: String,
    /// Where browsers and their programs connect.
    pub gateway_url: String,
    /// The console, for people.
    pub console_url: String,
    /// The whiteboard, for people.
    pub whiteboard_url: String,
    /// The development identity provider, as its tokens name it.
    pub issuer_url: String,
    /// Where the data is; null when it goes with the process.
    pub data_dir: Option<PathBuf>,
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ready")
            .field("brokers", &self.brokers)
            .field("controlplane_url", &self.controlplane_url)
            .finish_non_exhaustive()
    }
}

impl Ready {
    /// Writes the ready file. It appears whole or not at all, so whoever waits for it can read it
    /// at once, and only its owner can, because it holds tokens.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|error| Failure::failed(error.to_string()))?;
        text.push('\n');
        write_private(file, text.as_bytes())
            .map_err(|error| Failure::failed(format!("{}: {error}", file.display())))
    }

    /// Writes and selects the context `dev`.
    ///
    /// # Errors
    /// When the contexts cannot be read or written.
    pub fn save_context(&self, file: &Path) -> Result<(), ContextsRefused> {
        let mut contexts = Contexts::load(file)?;
        let connection = Connection {
            brokers: Some(self.brokers.clone()),
            tenant: Some(self.tenant.clone()),
            namespace: Some(self.namespace.clone()),
            token: Some(self.token.as_str().into()),
            token_file: None,
            service_account_key_file: None,
            controlplane_url: Some(self.controlplane_url.clone()),
            controlplane_token: Some(self.controlplane_token.as_str().into()),
            controlplane_token_file: None,
            controlplane_ca_file: None,
            ca_file: Some(self.ca_file.clone()),
            client_cert_file: None,
            client_key_file: None,
            server_name: Some(self.server_name.clone()),
            broker_admin_url: Some(self.broker_admin_url.clone()),
            sign_in: None,
        };
        contexts.add(CONTEXT, connection, Taken::Replace)?;
        contexts.select(CONTEXT)?;
        contexts.save(file)
    }

    /// Puts the tokens of `self` into the context `dev` in place of those of `before`. A context that was changed or
    /// removed meanwhile is somebody else's, and stays as it is; which one is selected does too.
    ///
    /// # Errors
    /// When the contexts cannot be read or written.
    pub fn renew_context(&self, file: &Path, before: &Self) -> Result<(), ContextsRefused> {
        let mut contexts = Contexts::load(file)?;
        let Some(connection) = contexts.contexts.get_mut(CONTEXT) else {
            return Ok(());
        };
        let holds = |held: &Option<Secret>, token: &str| {
            held.as_ref().is_some_and(|held| held.reveal() == token)
        };
        if !holds(&connection.token, &before.token)
            || !holds(&connection.controlplane_token, &before.controlplane_token)
        {
            return Ok(());
        }
        connection.token = Some(self.token.as_str().into());
        connection.controlplane_token = Some(self.controlplane_token.as_str().into());
        contexts.save(file)
    }

    /// What stands on the screen.
    #[must_use]
    pub fn screen(&self, style: Style, context: &ContextState, took_ms: u128) -> String {
        let data = match &self.data_dir {
            Some(directory) => format!("{} (kept)", directory.display()),
            None => "in a temporary directory, gone when this node stops".into(),
        };
        let selected = match context {
            ContextState::Selected => format!("{CONTEXT} (written and selected)"),
            ContextState::Skipped => "not written".into(),
            ContextState::Failed(why) => format!("not written: {why}"),
        };
        let broker = self.brokers.join(",");
        let lines = [
            ("broker", format!("{broker} (QUIC)")),
            ("Kafka", format!("{} (TCP, no login)", self.kafka_bootstrap)),
            ("gateway", format!("{} (browsers)", self.gateway_url)),
            ("sign-in", format!("{} (no passwords)", self.issuer_url)),
            ("control plane", self.controlplane_url.clone()),
            ("metrics", format!("{}/metrics", self.broker_admin_url)),
            (
                "tenant",
                format!("{}, namespace {}", self.tenant, self.namespace),
            ),
            ("data", data),
            ("context", selected),
        ];
        let head = format!("Felix is ready after {took_ms} ms.");
        let mut text = format!("{}\n\n", style.good(&style.bold(&head)));
        for (name, value) in lines {
            text.push_str(&format!(
                "  {} {value}\n",
                style.dim(&format!("{name:<14}"))
            ));
        }
        text.push_str("\nTry it in another terminal:\n\n");
        let kcat = format!("kcat -b {} -t orders -C -e", self.kafka_bootstrap);
        for line in [
            "felixctl sub orders --from earliest",
            "felixctl pub orders 'hello' --key cust-7",
            "felixctl stream info orders",
            &kcat,
        ] {
            text.push_str(&format!("  {}\n", style.bold(line)));
        }
        text.push_str("\nOr in a browser, as Ada, Grace, Linus or anybody:\n\n");
        for (name, value) in [
            ("whiteboard", &self.whiteboard_url),
            ("console", &self.console_url),
        ] {
            text.push_str(&format!(
                "  {} {}\n",
                style.dim(&format!("{name:<14}")),
                style.bold(value)
            ));
        }
        text.push_str("\nCtrl-C stops it.\n");
        text
    }
}

/// What became of the context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextState {
    /// It was written and selected.
    Selected,
    /// It was not wanted.
    Skipped,
    /// It could not be written; the node runs all the same.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Ready {
        Ready {
            brokers: vec!["127.0.0.1:5000".into()],
            ca_file: "/data/tls/ca.pem".into(),
            server_name: "localhost".into(),
            tenant: "dev".into(),
            namespace: "default".into(),
            token: "t".into(),
            controlplane_url: "http://127.0.0.1:8443".into(),
            controlplane_token: "c".into(),
            broker_admin_url: "http://127.0.0.1:8080".into(),
            bootstrap_url: "http://127.0.0.1:9095".into(),
            kafka_bootstrap: "127.0.0.1:9092".into(),
            gateway_url: "http://127.0.0.1:8787".into(),
            console_url: "http://127.0.0.1:8787/console/".into(),
            whiteboard_url: "http://127.0.0.1:8787/".into(),
            issuer_url: "http://127.0.0.1:9400".into(),
            data_dir: Some("/data".into()),
        }
    }

    #[test]
    fn the_ready_file_has_the_keys_that_others_wait_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("ready.json");
        ready().write(&file).expect("written");
        let text = std::fs::read_to_string(&file).expect("read");
        let json: serde_json::Value = serde_json::from_str(&text).expect("json");
        for key in [
            "brokers",
            "ca_file",
            "server_name",
            "tenant",
            "namespace",
            "token",
            "controlplane_url",
            "controlplane_token",
            "kafka_bootstrap",
            "gateway_url",
            "console_url",
            "whiteboard_url",
            "issuer_url",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert_eq!(json["brokers"][0], "127.0.0.1:5000");
    }

    #[test]
    fn the_context_is_written_and_selected_beside_the_ones_there_were() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config.toml");
        let mut contexts = Contexts::default();
        contexts
            .add("prod", Connection::default(), Taken::Refuse)
            .expect("added");
        contexts.save(&file).expect("saved");
        ready().save_context(&file).expect("saved");
        let contexts = Contexts::load(&file).expect("read");
        assert_eq!(contexts.current.as_deref(), Some("dev"));
        assert!(contexts.contexts.contains_key("prod"));
    }

    #[test]
    fn new_tokens_reach_the_context_unless_it_is_somebody_elses_by_now() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config.toml");
        let next = Ready {
            token: "t2".into(),
            controlplane_token: "c2".into(),
            ..ready()
        };
        let token = || {
            let contexts = Contexts::load(&file).expect("read");
            let connection = contexts.get(CONTEXT).expect("a context").clone();
            connection.token.expect("a token").reveal().to_owned()
        };
        next.renew_context(&file, &ready()).expect("nothing to do");
        assert!(!file.exists());
        ready().save_context(&file).expect("saved");
        let mut contexts = Contexts::load(&file).expect("read");
        contexts
            .add("prod", Connection::default(), Taken::Refuse)
            .expect("added");
        contexts.select("prod").expect("selected");
        contexts.save(&file).expect("saved");
        next.renew_context(&file, &ready()).expect("renewed");
        assert_eq!(token(), "t2");
        let contexts = Contexts::load(&file).expect("read");
        assert_eq!(contexts.current.as_deref(), Some("prod"), "still selected");
        // Another node of the same name has written its own since.
        let other = Ready {
            token: "t3".into(),
            ..next
        };
        other.renew_context(&file, &ready()).expect("left alone");
        assert_eq!(token(), "t2");
    }

    #[test]
    fn the_screen_shows_addresses_and_four_lines_to_paste() {
        let screen = ready().screen(Style::new(false), &ContextState::Selected, 412);
        insta::assert_snapshot!(screen);
    }
}
