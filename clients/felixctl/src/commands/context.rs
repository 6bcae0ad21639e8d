//! `context add | ls | use | rm | show`.

use serde_json::json;

use super::App;
use crate::cli::{ContextAdd, ContextCommand};
use crate::confirm;
use crate::contexts::{Contexts, Taken};
use crate::credentials::Store;
use crate::exit::Failure;
use crate::output::{Field, Report};

pub(super) fn run(app: &App, command: ContextCommand) -> Result<(), Failure> {
    match command {
        ContextCommand::Add(add) => add_context(app, &add),
        ContextCommand::Ls => list(app),
        ContextCommand::Use { name } => change(app, |contexts| {
            contexts.select(&name)?;
            Ok(format!("context {name} is selected"))
        }),
        ContextCommand::Rm { name, yes } => {
            Contexts::load(&app.config_file()?)?.get(&name)?;
            confirm::destroy(&format!("context {name}"), &name, yes.into())?;
            change(app, |contexts| {
                contexts.remove(&name)?;
                Ok(format!("context {name} is forgotten"))
            })?;
            // What renews a forgotten session would lie around for somebody else to find.
            Store::beside(&app.config_file()?, &name).remove()?;
            Ok(())
        }
        ContextCommand::Show => show(app),
    }
}

fn change(
    app: &App,
    make: impl FnOnce(&mut Contexts) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let file = app.config_file()?;
    let mut contexts = Contexts::load(&file)?;
    let said = make(&mut contexts)?;
    contexts.save(&file)?;
    Ok(app.output.say(&said)?)
}

fn add_context(app: &App, add: &ContextAdd) -> Result<(), Failure> {
    let connection = app.given.only_flags(&app.global.connection);
    if connection == crate::cli::Connection::default() {
        return Err(
            Failure::usage("a context needs at least one connection flag to save").with_hint(
                "for example --brokers 127.0.0.1:5000 --tenant dev --token-file dev.jwt",
            ),
        );
    }
    let taken = if add.replace {
        Taken::Replace
    } else {
        Taken::Refuse
    };
    change(app, |contexts| {
        contexts.add(&add.name, connection, taken)?;
        if add.select {
            contexts.select(&add.name)?;
        }
        let selected = contexts.current.as_deref() == Some(&add.name);
        let state = if selected {
            "saved and selected"
        } else {
            "saved"
        };
        Ok(format!("context {} is {state}", add.name))
    })
}

fn list(app: &App) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("name"),
        Field::plain("selected"),
        Field::plain("brokers"),
        Field::plain("tenant"),
        Field::plain("namespace"),
        Field::plain("controlplane_url"),
    ];
    let contexts = Contexts::load(&app.config_file()?)?;
    let items = contexts.contexts.iter().map(|(name, connection)| {
        json!({
            "name": name,
            "selected": contexts.current.as_ref() == Some(name),
            "brokers": connection.brokers,
            "tenant": connection.tenant,
            "namespace": connection.namespace,
            "controlplane_url": connection.controlplane_url,
        })
    });
    Ok(app
        .output
        .report(&Report::list("felixctl.context.ls/1", FIELDS, items))?)
}

fn show(app: &App) -> Result<(), Failure> {
    const FIELDS: &[Field] = &[
        Field::plain("setting"),
        Field::plain("value"),
        Field::plain("origin"),
    ];
    let settings = app.settings()?;
    let report = Report::list("felixctl.context.show/1", FIELDS, settings.explain());
    let name = settings.context.as_deref().unwrap_or("(none)");
    app.output.say(&format!(
        "context {name} in {}",
        app.config_file()?.display()
    ))?;
    Ok(app.output.report(&report)?)
}
