//! Rooms that are made when somebody first joins them: a namespace's templates say what belongs to one.
//!
//! The gateway creates nothing by itself. It asks the control plane in the joining person's name; who may not is not
//! kept from joining a room that is there.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use felix_auth::Audience;
use felix_client::{CallFailed, Client, TokenSource};
use felix_controlplane_client::TokenSource as ControlToken;
use felix_meta::TemplateRecord;
use felix_model::{Namespace, TenantId};

use crate::app::App;
use crate::identity::{Ask, Presented};
use crate::limits::ROOMS_KNOWN_MAX;

/// Rooms that were found to be there. They may be deleted since: then a subscription says so.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    known: Mutex<HashSet<(String, String)>>,
}

/// A room somebody joins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room<'a> {
    pub(crate) namespace: &'a str,
    /// The scope's value.
    pub(crate) value: &'a str,
}

impl Rooms {
    fn is_known(&self, room: Room<'_>) -> bool {
        self.lock()
            .contains(&(room.namespace.to_owned(), room.value.to_owned()))
    }

    fn learn(&self, room: Room<'_>) {
        let mut known = self.lock();
        // Looking again is cheap, so forgetting them all is good enough.
        if known.len() >= ROOMS_KNOWN_MAX {
            known.clear();
        }
        known.insert((room.namespace.to_owned(), room.value.to_owned()));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(String, String)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees to it that a room is there, as far as the person who joins may.
pub(crate) async fn open(app: &App, room: Room<'_>, client: &Client, presented: Presented) {
    if app.rooms.is_known(room) {
        return;
    }
    let streams = &app.scope.streams;
    let Some(first) = streams
        .iter()
        .find(|one| one.subscribe && !one.resource.optional)
    else {
        return;
    };
    let name = first.resource.name_in(room.value);
    match client.stream_shards(&name).await {
        Ok(_) => app.rooms.learn(room),
        Err(failed) if is_unknown(&failed) => match make(app, room, &name, presented).await {
            Ok(true) => app.rooms.learn(room),
            Ok(false) => tracing::debug!(name, "no template makes this name"),
            Err(why) => tracing::warn!(name, why, "a room could not be opened"),
        },
        Err(failed) => tracing::debug!(name, %failed, "whether a room is there was not told"),
    }
}

fn is_unknown(failed: &CallFailed) -> bool {
    failed.code() == "not_found"
}

/// Asks the control plane for the room, with everything that the person may do there.
async fn make(app: &App, room: Room<'_>, name: &str, presented: Presented) -> Result<bool, String> {
    let ask = Ask::Everything(Audience::ControlPlane);
    let granted = app.door.identity.admit(presented, ask).await;
    let granted = granted.map_err(|refused| refused.to_string())?;
    let token = token(&granted.tokens).await?;
    let api = app.console.api().with_token(ControlToken::fixed(&token));
    let tenant: TenantId = app
        .config
        .tenant
        .parse()
        .map_err(|error| format!("{error}"))?;
    let namespace: Namespace = room.namespace.parse().map_err(|error| format!("{error}"))?;
    let templates = api
        .templates(&tenant, &namespace)
        .await
        .map_err(|failed| failed.to_string())?;
    let makes = |template: &&TemplateRecord| template.scope_of(name) == Some(room.value);
    let Some(template) = templates.iter().find(makes) else {
        return Ok(false);
    };
    let opened = api
        .open_room(&tenant, &namespace, &template.template, room.value)
        .await;
    opened.map(|_| true).map_err(|failed| failed.to_string())
}

async fn token(tokens: &TokenSource) -> Result<String, String> {
    let token = tokens.token().await;
    token
        .map(|token| token.to_string())
        .map_err(|failed| failed.to_string())
}
