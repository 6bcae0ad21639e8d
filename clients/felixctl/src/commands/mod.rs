//! One file a noun: what each command does once its arguments are understood.

mod auth;
mod backup;
mod cache;
mod commit;
mod connect;
mod context;
mod credential;
mod group;
mod identity;
mod input;
mod keys;
mod login;
mod members;
mod misc;
mod namespace;
mod publish;
mod reading;
mod restore;
mod schedule;
mod shard;
mod stream;
mod sub;
mod template;
mod tenant;
mod token;
mod whoami;

pub(crate) use connect::{builder as client_builder, failure as client_failure};
pub(crate) use reading::seen;

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::{Command, Global, GroupCommand};
use crate::contexts::Contexts;
use crate::exit::Failure;
use crate::output::Output;
use crate::settings::{Given, Settings};
use crate::surroundings::Surroundings;

/// How long a request may take when `--timeout` says nothing.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Everything a command needs to know besides its own arguments.
#[derive(Debug)]
pub struct App {
    /// The flags every command has.
    pub global: Global,
    /// Which of them were really given, and how.
    pub given: Given,
    /// The process's surroundings.
    pub surroundings: Surroundings,
    /// Where results go.
    pub output: Output,
}

impl App {
    /// Carries out one command. Ctrl-C ends it where it stands, except for `dev`, which stops
    /// its node first, `group consume`, which gives records back, and `bench`, which listens on its own runtime.
    ///
    /// # Errors
    /// The failure to show, with the exit status.
    pub async fn run(&self, command: Command) -> Result<(), Failure> {
        let listens = matches!(&command, Command::Group(GroupCommand::Consume(_)));
        if listens || matches!(command, Command::Dev(_) | Command::Bench(_)) {
            return self.dispatch(command).await;
        }
        tokio::select! {
            done = self.dispatch(command) => done,
            _ = tokio::signal::ctrl_c() => Err(Failure::interrupted()),
        }
    }

    async fn dispatch(&self, command: Command) -> Result<(), Failure> {
        match command {
            Command::Dev(command) => crate::dev::run(self, &command).await,
            Command::Install(command) => crate::dev::install(self, &command).await,
            Command::Pub(command) => publish::run(self, &command).await,
            Command::Sub(command) => sub::follow(self, &command).await,
            Command::Read(command) => sub::read(self, &command).await,
            Command::Stream(command) => stream::run(self, command).await,
            Command::Tenant(command) => tenant::run(self, command).await,
            Command::Namespace(command) => namespace::run(self, command).await,
            Command::Cache(command) => cache::run(self, command).await,
            Command::Counter(command) => keys::counter(self, &command).await,
            Command::Group(command) => group::run(self, command).await,
            Command::Commit(command) => commit::run(self, &command).await,
            Command::State(command) => commit::state(self, &command).await,
            Command::Schedule(command) => schedule::run(self, &command).await,
            Command::Shard(command) => shard::run(self, command).await,
            Command::ControlPlane(command) => members::run(self, command).await,
            Command::Context(command) => context::run(self, command),
            Command::Token(command) => token::run(self, command).await,
            Command::Login(command) => login::login(self, command).await,
            Command::Logout => login::logout(self).await,
            Command::Whoami => whoami::run(self).await,
            Command::Auth(command) => auth::run(self, &command).await,
            Command::Rbac(command) => identity::rbac(self, command).await,
            Command::Idp(command) => identity::idp(self, command).await,
            Command::Keys(command) => identity::keys(self, command).await,
            Command::ServiceAccount(command) => identity::service_account(self, command).await,
            Command::Session(command) => identity::session(self, command).await,
            Command::Revoke(command) => identity::revoke(self, &command).await,
            Command::Audit(command) => identity::audit(self, command).await,
            Command::Quota(command) => identity::quota(self, command).await,
            Command::Backup(command) => backup::run(self, &command).await,
            Command::Restore(command) => restore::run(self, &command),
            Command::Completions { shell } => misc::completions(self, shell),
            Command::Version => misc::version(self),
            Command::Bench(command) => crate::bench::run(self, &command),
        }
    }

    /// The file with the contexts.
    ///
    /// # Errors
    /// When no file was named and the person has no home directory.
    pub fn config_file(&self) -> Result<PathBuf, Failure> {
        match &self.global.config {
            Some(file) => Ok(file.clone()),
            None => self.surroundings.config_file(),
        }
    }

    /// The connection settings in force.
    ///
    /// # Errors
    /// When the contexts cannot be read, or the context that was named does not exist.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let contexts = match self.config_file() {
            Ok(file) => Contexts::load(&file)?,
            // Without a home there are no contexts; flags and environment may be enough.
            Err(_) => Contexts::default(),
        };
        let named = self.global.context.as_deref();
        Settings::resolve(
            &self.given,
            self.global.connection.clone(),
            &contexts,
            named,
        )
    }

    /// How long a request may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.global.timeout.unwrap_or(TIMEOUT)
    }
}
