//! The connection settings in force: flag before environment before context before default, and
//! where each one came from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;
use felix_auth::Audience;
use serde::Serialize;

use crate::cli::Connection;
use crate::contexts::Contexts;
use crate::exit::{Exit, Failure};
use crate::secret::Secret;
use crate::sign_in::SignIn;
use crate::trust::{Identity, Tls};

/// Where a setting came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Nobody said it.
    Unset,
    /// The program's own choice.
    Default,
    /// The selected context.
    Context,
    /// An environment variable.
    Environment,
    /// A flag of this command.
    Flag,
}

/// Names of the connection settings, as the flags have them with `_` for `-`.
const NAMES: [&str; 15] = [
    "brokers",
    "tenant",
    "namespace",
    "token",
    "token_file",
    "service_account_key_file",
    "controlplane_url",
    "controlplane_token",
    "controlplane_token_file",
    "controlplane_ca_file",
    "ca_file",
    "client_cert_file",
    "client_key_file",
    "server_name",
    "broker_admin_url",
];

/// One setting as `context show` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name.
    pub setting: &'static str,
    /// Its value; tokens are redacted.
    pub value: Option<String>,
    /// Where it came from.
    pub origin: Origin,
}

/// The settings in force.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the context used, when one is.
    pub context: Option<String>,
    connection: Connection,
    origins: BTreeMap<&'static str, Origin>,
}

/// Which of the settings on the command line came from a flag and which from the environment.
#[derive(Clone, Debug, Default)]
pub struct Given {
    origins: BTreeMap<&'static str, Origin>,
}

impl Given {
    /// Looks through what clap found, down to the last subcommand.
    #[must_use]
    pub fn from_matches(matches: &ArgMatches) -> Self {
        let mut leaf = matches;
        while let Some((_, below)) = leaf.subcommand() {
            leaf = below;
        }
        let mut origins = BTreeMap::new();
        for name in NAMES {
            // Asking for an argument that a command does not have panics in clap, so ask first.
            let source = leaf
                .try_contains_id(name)
                .is_ok()
                .then(|| leaf.value_source(name));
            match source.flatten() {
                Some(ValueSource::CommandLine) => origins.insert(name, Origin::Flag),
                Some(ValueSource::EnvVariable) => origins.insert(name, Origin::Environment),
                _ => None,
            };
        }
        Self { origins }
    }

    /// The part of a connection that flags gave, with relative paths made absolute: what
    /// `context add` saves.
    #[must_use]
    pub fn only_flags(&self, connection: &Connection) -> Connection {
        let flag = |name: &str| self.origins.get(name) == Some(&Origin::Flag);
        let path = |name: &str, path: &Option<PathBuf>| {
            path.as_ref()
                .filter(|_| flag(name))
                .map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        };
        let text = |name: &str, text: &Option<String>| text.clone().filter(|_| flag(name));
        let secret = |name: &str, text: &Option<Secret>| text.clone().filter(|_| flag(name));
        Connection {
            brokers: connection.brokers.clone().filter(|_| flag("brokers")),
            tenant: text("tenant", &connection.tenant),
            namespace: text("namespace", &connection.namespace),
            token: secret("token", &connection.token),
            token_file: path("token_file", &connection.token_file),
            service_account_key_file: path(
                "service_account_key_file",
                &connection.service_account_key_file,
            ),
            controlplane_url: text("controlplane_url", &connection.controlplane_url),
            controlplane_token: secret("controlplane_token", &connection.controlplane_token),
            controlplane_token_file: path(
                "controlplane_token_file",
                &connection.controlplane_token_file,
            ),
            controlplane_ca_file: path("controlplane_ca_file", &connection.controlplane_ca_file),
            ca_file: path("ca_file", &connection.ca_file),
            client_cert_file: path("client_cert_file", &connection.client_cert_file),
            client_key_file: path("client_key_file", &connection.client_key_file),
            server_name: text("server_name", &connection.server_name),
            broker_admin_url: text("broker_admin_url", &connection.broker_admin_url),
            sign_in: None,
        }
    }
}

impl Settings {
    /// Merges what was given with the context that was named or is selected.
    ///
    /// # Errors
    /// When a context was named that does not exist.
    pub fn resolve(
        given: &Given,
        connection: Connection,
        contexts: &Contexts,
        named: Option<&str>,
    ) -> Result<Self, Failure> {
        let context = named.or(contexts.current.as_deref());
        let saved = match context {
            Some(name) => contexts.get(name)?.clone(),
            None => Connection::default(),
        };
        let mut settings = Self {
            context: context.map(str::to_owned),
            connection,
            origins: given.origins.clone(),
        };
        settings.take_from(saved);
        settings.keep_one_token();
        Ok(settings)
    }

    fn take_from(&mut self, saved: Connection) {
        let own = &mut self.connection;
        let origins = &mut self.origins;
        fill(&mut own.brokers, saved.brokers, "brokers", origins);
        fill(&mut own.tenant, saved.tenant, "tenant", origins);
        fill(&mut own.namespace, saved.namespace, "namespace", origins);
        fill(&mut own.token, saved.token, "token", origins);
        fill(&mut own.token_file, saved.token_file, "token_file", origins);
        fill(
            &mut own.service_account_key_file,
            saved.service_account_key_file,
            "service_account_key_file",
            origins,
        );
        fill(
            &mut own.controlplane_url,
            saved.controlplane_url,
            "controlplane_url",
            origins,
        );
        fill(
            &mut own.controlplane_token,
            saved.controlplane_token,
            "controlplane_token",
            origins,
        );
        fill(
            &mut own.controlplane_token_file,
            saved.controlplane_token_file,
            "controlplane_token_file",
            origins,
        );
        fill(
            &mut own.controlplane_ca_file,
            saved.controlplane_ca_file,
            "controlplane_ca_file",
            origins,
        );
        fill(&mut own.ca_file, saved.ca_file, "ca_file", origins);
        // Of two pairs no pair is made: a certificate that was said more directly brings its key.
        if own.client_cert_file.is_none() && own.client_key_file.is_none() {
            fill(
                &mut own.client_cert_file,
                saved.client_cert_file,
                "client_cert_file",
                origins,
            );
            fill(
                &mut own.client_key_file,
                saved.client_key_file,
                "client_key_file",
                origins,
            );
        }
        fill(
            &mut own.server_name,
            saved.server_name,
            "server_name",
            origins,
        );
        fill(
            &mut own.broker_admin_url,
            saved.broker_admin_url,
            "broker_admin_url",
            origins,
        );
        fill(&mut own.sign_in, saved.sign_in, "sign_in", origins);
    }

    /// A token and a file with a token are two ways to say one thing: the one that was said more
    /// directly wins, so that `--token-file` is not overruled by a token in the context.
    fn keep_one_token(&mut self) {
        for (text, file) in [
            ("token", "token_file"),
            ("controlplane_token", "controlplane_token_file"),
        ] {
            let loser = if self.origin(text) < self.origin(file) {
                text
            } else {
                file
            };
            match loser {
                "token" => self.connection.token = None,
                "token_file" => self.connection.token_file = None,
                "controlplane_token" => self.connection.controlplane_token = None,
                _ => self.connection.controlplane_token_file = None,
            }
            self.origins.remove(loser);
        }
    }

    fn origin(&self, name: &str) -> Origin {
        self.origins.get(name).copied().unwrap_or(Origin::Unset)
    }

    /// The brokers to try.
    ///
    /// # Errors
    /// When nobody said where brokers are.
    pub fn brokers(&self) -> Result<&[String], Failure> {
        match self.connection.brokers.as_deref() {
            Some(brokers) if !brokers.is_empty() => Ok(brokers),
            _ => Err(unset("which broker to connect to", "--brokers")),
        }
    }

    /// The tenant to act in.
    ///
    /// # Errors
    /// When nobody said which.
    pub fn tenant(&self) -> Result<&str, Failure> {
        self.connection
            .tenant
            .as_deref()
            .ok_or_else(|| unset("which tenant to act in", "--tenant"))
    }

    /// The namespace to act in; `default` unless somebody said otherwise.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.connection.namespace.as_deref().unwrap_or("default")
    }

    /// The name expected in the brokers' certificate: what was said, else the host of the first
    /// broker, and `localhost` when that is a bare address.
    #[must_use]
    pub fn server_name(&self) -> String {
        if let Some(name) = &self.connection.server_name {
            return name.clone();
        }
        let first = self.connection.brokers.iter().flatten().next();
        let host = first
            .and_then(|broker| broker.rsplit_once(':'))
            .map_or("localhost", |it| it.0);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if bare.parse::<std::net::IpAddr>().is_ok() {
            "localhost".into()
        } else {
            host.to_owned()
        }
    }

    /// File with the certificate authority of the brokers, when one was named.
    #[must_use]
    pub fn ca_file(&self) -> Option<&Path> {
        self.connection.ca_file.as_deref()
    }

    /// The certificate that is presented to brokers and to an `https` control plane, when one was named.
    ///
    /// # Errors
    /// When the certificate was named without its key, or the key without its certificate.
    pub fn client_identity(&self) -> Result<Option<Identity>, Failure> {
        let own = &self.connection;
        match (&own.client_cert_file, &own.client_key_file) {
            (None, None) => Ok(None),
            (Some(cert_file), Some(key_file)) => Ok(Some(Identity {
                cert_file: cert_file.clone(),
                key_file: key_file.clone(),
            })),
            (Some(_), None) => Err(half("a client certificate", "--client-key-file")),
            (None, Some(_)) => Err(half(
                "the key of a client certificate",
                "--client-cert-file",
            )),
        }
    }

    /// How the control plane is trusted, and what is presented to it.
    ///
    /// # Errors
    /// As [`Self::client_identity`].
    pub fn controlplane_tls(&self) -> Result<Tls, Failure> {
        Ok(Tls {
            ca_file: self.connection.controlplane_ca_file.clone(),
            identity: self.client_identity()?,
        })
    }

    /// What proves who is asking, for an audience. What was said more directly wins: a flag before
    /// the environment before the context; of two things said alike, the one that renews itself.
    ///
    /// # Errors
    /// When nobody said anything.
    pub fn credential(&self, audience: Audience) -> Result<Credential<'_>, Failure> {
        let own = &self.connection;
        let (text, file, flag) = match audience {
            Audience::Broker => (&own.token, &own.token_file, ["token", "token_file"]),
            Audience::ControlPlane => (
                &own.controlplane_token,
                &own.controlplane_token_file,
                ["controlplane_token", "controlplane_token_file"],
            ),
        };
        let [text_name, file_name] = flag;
        let said = [
            (text.as_ref().map(Credential::Token), text_name),
            (file.as_deref().map(Credential::TokenFile), file_name),
            (own.sign_in.as_ref().map(Credential::SignIn), "sign_in"),
            (
                own.service_account_key_file
                    .as_deref()
                    .map(Credential::ServiceAccount),
                "service_account_key_file",
            ),
        ];
        // Of several that are said equally directly, the last one is taken.
        said.into_iter()
            .filter_map(|(credential, name)| Some((self.origin(name), credential?)))
            .max_by_key(|(origin, _)| *origin)
            .map(|(_, credential)| credential)
            .ok_or_else(|| {
                let flag = file_name.replace('_', "-");
                unset("which token to use", &format!("--{flag}, `felixctl login`"))
            })
    }

    /// How the context's `login` signed in.
    #[must_use]
    pub fn sign_in(&self) -> Option<&SignIn> {
        self.connection.sign_in.as_ref()
    }

    /// Address of the control plane, without a slash at its end.
    ///
    /// # Errors
    /// When nobody said where it is.
    pub fn controlplane_url(&self) -> Result<&str, Failure> {
        self.connection
            .controlplane_url
            .as_deref()
            .map(|url| url.trim_end_matches('/'))
            .ok_or_else(|| unset("where the control plane is", "--controlplane-url"))
    }

    /// Address of the broker's metrics and administration listener.
    ///
    /// # Errors
    /// When nobody said where it is.
    pub fn broker_admin_url(&self) -> Result<&str, Failure> {
        self.connection
            .broker_admin_url
            .as_deref()
            .map(|url| url.trim_end_matches('/'))
            .ok_or_else(|| unset("where the broker's admin listener is", "--broker-admin-url"))
    }

    /// Every setting with its origin, tokens redacted.
    #[must_use]
    pub fn explain(&self) -> Vec<Setting> {
        let own = &self.connection;
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let secret = |text: &Option<Secret>| text.as_ref().map(|_| "(hidden)".to_owned());
        let values = [
            own.brokers.as_ref().map(|brokers| brokers.join(",")),
            own.tenant.clone(),
            own.namespace.clone(),
            secret(&own.token),
            path(&own.token_file),
            path(&own.service_account_key_file),
            own.controlplane_url.clone(),
            secret(&own.controlplane_token),
            path(&own.controlplane_token_file),
            path(&own.controlplane_ca_file),
            path(&own.ca_file),
            path(&own.client_cert_file),
            path(&own.client_key_file),
            own.server_name.clone(),
            own.broker_admin_url.clone(),
        ];
        let mut settings: Vec<Setting> = NAMES
            .into_iter()
            .zip(values)
            .map(|(setting, value)| Setting {
                setting,
                value,
                origin: self.origin(setting),
            })
            .collect();
        for setting in &mut settings {
            if setting.value.is_none() && matches!(setting.setting, "namespace" | "server_name") {
                setting.origin = Origin::Default;
                setting.value = Some(match setting.setting {
                    "namespace" => self.namespace().to_owned(),
                    _ => self.server_name(),
                });
            }
        }
        let signed_in = own
            .sign_in
            .as_ref()
            .map(|it| format!("{} as {}", it.issuer, it.client_id));
        settings.push(Setting {
            setting: "sign_in",
            value: signed_in,
            origin: self.origin("sign_in"),
        });
        settings
    }
}

/// What proves who is asking.
#[derive(Clone, Copy, Debug)]
pub enum Credential<'a> {
    /// A token that somebody gave.
    Token(&'a Secret),
    /// A file with a token, which somebody else renews.
    TokenFile(&'a Path),
    /// The tokens of `login`.
    SignIn(&'a SignIn),
    /// The key of a service account.
    ServiceAccount(&'a Path),
}

fn fill<T>(
    own: &mut Option<T>,
    saved: Option<T>,
    name: &'static str,
    origins: &mut BTreeMap<&'static str, Origin>,
) {
    if own.is_none() && saved.is_some() {
        *own = saved;
        origins.insert(name, Origin::Context);
    }
}

/// Reads a file with a token.
///
/// # Errors
/// When it cannot be read, or is empty.
pub fn read_token(file: &Path) -> Result<Secret, Failure> {
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::usage(format!(
            "the token file {} cannot be read: {error}",
            file.display()
        ))
    })?;
    trimmed(&text)
}

/// A token without the spaces and line ends around it.
///
/// # Errors
/// When nothing is left.
pub fn trimmed(text: &str) -> Result<Secret, Failure> {
    match text.trim() {
        "" => Err(Failure::new(Exit::Usage, "the token is empty")),
        token => Ok(token.into()),
    }
}

fn half(what: &str, missing: &str) -> Failure {
    Failure::usage(format!("{what} was named alone; both files are needed"))
        .with_hint(format!("give {missing} too"))
}

fn unset(what: &str, flag: &str) -> Failure {
    Failure::usage(format!("nothing says {what}")).with_hint(format!(
        "give {flag}, select a context, or start a node with `felixctl dev`"
    ))
}
