//! What is asked of a token, from the words of a body.

use std::fmt::Display;
use std::str::FromStr;

use felix_auth::{Action, Ask, Audience, Held, NarrowRefused, Permission, expand, narrow};
use felix_meta::SessionAsk;
use felix_meta::http::ExchangeSpec;
use felix_meta::limits::SESSION_ITEMS_MAX;

use crate::http::error::Refusal;

/// What a token shall be good for. It goes with the session for life.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) audience: Audience,
    ask: Ask,
    /// No grant at all: good only for opening a connection on which others' tokens act.
    connection_only: bool,
}

impl Wanted {
    /// Reads the body of an exchange.
    pub(super) fn of_exchange(spec: &ExchangeSpec) -> Result<(Self, SessionAsk), Refusal> {
        let stored = stored(spec)?;
        Ok((Self::read(spec.audience.as_deref(), &stored)?, stored))
    }

    /// Reads what a session, or the body of a development token, asks for.
    pub(super) fn read(audience: Option<&str>, ask: &SessionAsk) -> Result<Self, Refusal> {
        let pairs = ask.permissions.as_deref().unwrap_or_default();
        let wanted = Self {
            audience: read_audience(audience)?,
            ask: Ask {
                requested: all::<Action>("requested", &ask.requested)?,
                resources: all("resources", &ask.resources)?,
                permissions: all("permissions", pairs)?,
            },
            connection_only: ask.permissions.as_deref().is_some_and(<[_]>::is_empty),
        };
        if wanted.connection_only && wanted.audience != Audience::Broker {
            let message = "a token without permissions is only for felix-broker";
            return Err(Refusal::invalid(message));
        }
        Ok(wanted)
    }

    /// The part of what is held that is asked for.
    pub(super) fn narrow(&self, held: &Held) -> Result<Vec<Permission>, Refusal> {
        if self.connection_only {
            let acts_for_others = held
                .permissions
                .iter()
                .any(|grant| grant.action == Action::TokenDelegate);
            return acts_for_others.then(Vec::new).ok_or_else(nothing_left);
        }
        let expanded = expand(&held.permissions, self.audience);
        narrow(&expanded, &self.ask).map_err(|refused| match refused {
            NarrowRefused::NothingLeft => nothing_left(),
            NarrowRefused::PairsNotAlone => Refusal::invalid(refused.to_string()),
        })
    }
}

pub(super) fn nothing_left() -> Refusal {
    Refusal::forbidden("no permissions")
}

/// The ask of an exchange in the form in which it is kept, which is also the check that its parts go together.
fn stored(spec: &ExchangeSpec) -> Result<SessionAsk, Refusal> {
    let resources = spec.resources.clone().unwrap_or_default();
    match (&spec.requested, &spec.permissions) {
        (requested, Some(pairs)) => {
            let alone = requested.as_deref().is_some_and(<[_]>::is_empty) && resources.is_empty();
            if !alone {
                return Err(Refusal::invalid(
                    "`permissions` needs `\"requested\": []` beside it and no `resources`",
                ));
            }
            Ok(SessionAsk {
                permissions: Some(pairs.clone()),
                ..SessionAsk::default()
            })
        }
        (Some(requested), None) if requested.is_empty() => Err(nothing_left()),
        (requested, None) => Ok(SessionAsk {
            requested: requested.clone().unwrap_or_default(),
            resources,
            permissions: None,
        }),
    }
}

pub(super) fn read_audience(text: Option<&str>) -> Result<Audience, Refusal> {
    text.map_or(Ok(Audience::Broker), |text| {
        text.parse()
            .map_err(|_| Refusal::invalid("`audience` must be felix-broker or felix-controlplane"))
    })
}

/// Reads a list of a body, of as many items as a session may keep: each is held against every grant.
pub(super) fn all<T: FromStr<Err: Display>>(
    field: &str,
    texts: &[String],
) -> Result<Vec<T>, Refusal> {
    if texts.len() > SESSION_ITEMS_MAX {
        let message = format!(
            "`{field}` has {} items, more than {SESSION_ITEMS_MAX}",
            texts.len()
        );
        return Err(Refusal::invalid(message));
    }
    texts
        .iter()
        .map(|text| {
            text.parse()
                .map_err(|error| Refusal::invalid(format!("`{field}`: {error}")))
        })
        .collect()
}
