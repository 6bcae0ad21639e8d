//! `felixctl dev`: a control plane and a broker in this process, with something in them.

mod browsers;
mod certificate;
mod demo;
mod home;
mod install;
mod node;
mod ports;
mod provider;
mod ready;
mod roles;
mod seed;
mod tokens;
mod told;

pub use certificate::{CertificateFailed, Files, prepare as certificates};
pub use home::Home;
pub use install::run as install;
pub use node::Node;
pub use ports::{NoRoom, Ports};
pub use provider::{CLIENT_ID, Provider, ProviderFailed};
pub use ready::{CONTEXT, ContextState, Ready};

use std::time::Instant;

use told::Told;

use crate::cli;
use crate::commands::App;
use crate::exit::{Exit, Failure};

/// File of the data directory that holds the secret of the bootstrap listener.
pub const BOOTSTRAP_SECRET_FILE: &str = "bootstrap.secret";
/// File of the data directory that says where the bootstrap listener is while the node runs.
pub const BOOTSTRAP_URL_FILE: &str = "bootstrap.url";

/// Starts a node, tells the world, and serves until Ctrl-C or SIGTERM; then stops it cleanly. A
/// second Ctrl-C does not wait.
///
/// # Errors
/// When the node cannot start, or had to be stopped before it was clean.
pub async fn run(app: &App, args: &cli::Dev) -> Result<(), Failure> {
    let started = Instant::now();
    let ports = Ports::choose(args.port_base).map_err(|error| Failure::usage(error.to_string()))?;
    let home = if args.ephemeral {
        Home::ephemeral()?
    } else {
        match &args.data_dir {
            Some(directory) => Home::kept(directory)?,
            None => Home::kept(&app.surroundings.dev_dir()?)?,
        }
    };
    let stop = stop_signal()?;
    let (node, ready) = Node::start(home, &ports).await?;
    let context = save_context(app, args, &ready);
    // The ready file comes last: whoever waits for it may count on everything else.
    if let Some(file) = &args.ready_file {
        ready.write(file)?;
    }
    let told = Told {
        context: match context {
            ContextState::Selected => Some(app.config_file()?),
            ContextState::Skipped | ContextState::Failed(_) => None,
        },
        ready_file: args.ready_file.clone(),
    };
    let telling = tokio::spawn(told.keep(ready.clone(), node.tokens()));
    app.output
        .say(&ready.screen(app.output.style, &context, started.elapsed().as_millis()))?;
    let demo = if args.demo {
        Some(demo::start(app, &ready, node.tokens().0).await?)
    } else {
        None
    };
    stop.await;
    telling.abort();
    if let Some(demo) = demo {
        demo.abort();
    }
    app.output.say("stopping")?;
    tokio::select! {
        stopped = node.stop() => stopped,
        _ = tokio::signal::ctrl_c() => Err(Failure::new(Exit::Interrupted, "stopped at once")),
    }
}

fn save_context(app: &App, args: &cli::Dev, ready: &Ready) -> ContextState {
    if args.no_context {
        return ContextState::Skipped;
    }
    let saved = app
        .config_file()
        .and_then(|file| Ok(ready.save_context(&file)?));
    // A node without a context is a node all the same: the ready file and flags still work.
    match saved {
        Ok(()) => ContextState::Selected,
        Err(failure) => ContextState::Failed(failure.message),
    }
}

/// Ends when the process is told to stop. The handlers are in place when this returns, so a signal
/// during the start is not lost.
fn stop_signal() -> Result<impl Future<Output = ()>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
