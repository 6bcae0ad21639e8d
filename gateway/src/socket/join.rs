//! The first message: who it is, what he may do here, and whether there is room for him.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket};
use felix_auth::Permission;
use felix_client::Client;
use felix_process::Slot;

use super::{Goodbye, failed, say};
use crate::app::App;
use crate::identity::{Ask, Attached, Granted, Place, Presented, Refused, Secret, now};
use crate::limits::{FIRST_ANSWER_TIMEOUT, FIRST_MESSAGE_TIMEOUT, JOIN_TIMEOUT, SESSIONS_WAIT};
use crate::metrics::Limited;
use crate::origin;
use crate::rooms::{self, Room};
use crate::scope::{Resource, Scope};
use crate::session::answer::Hello;
use crate::session::fault::{Code, Fault, quoted};
use crate::session::features::{Feature, Features};
use crate::session::message::Join;
use crate::session::once::Page;
use crate::session::{Rights, Session};
use crate::sign_in::SessionId;

/// What is known of a browser before it says anything.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) ip: IpAddr,
    pub(super) page: origin::Page,
    /// The sign-in that its cookie names.
    pub(super) session: Option<SessionId>,
}

/// A browser that was let in.
pub(super) struct Joined {
    pub(super) session: Session,
    pub(super) granted: Arc<Granted>,
    pub(super) client: Client,
    pub(super) namespace: String,
    /// The scope's value.
    pub(super) value: String,
    /// Its places among those of its address, of its person and of a shared connection.
    pub(super) places: Places,
}

/// Held for as long as a browser is there.
pub(super) type Places = (Option<Slot<IpAddr>>, Option<Slot<Arc<str>>>, Option<Place>);

/// Waits for the first message and answers it. `waiting` is where the socket is counted until it has joined.
///
/// # Errors
/// What to close with; the browser has been told why.
pub(super) async fn join(
    app: &App,
    caller: Caller,
    waiting: Option<Slot<IpAddr>>,
    socket: &mut WebSocket,
) -> Result<Joined, Goodbye> {
    let first = tokio::select! {
        // Whoever says nothing must not hold up a gateway that stops.
        () = app.draining.cancelled() => return Err(Goodbye::GoingAway),
        first = tokio::time::timeout(FIRST_MESSAGE_TIMEOUT, first(socket)) => first,
    };
    let Ok(first) = first else {
        return Err(Goodbye::Policy("no message came in time"));
    };
    let admitted = match first? {
        Some(text) => tokio::select! {
            () = app.draining.cancelled() => return Err(Goodbye::GoingAway),
            admitted = tokio::time::timeout(JOIN_TIMEOUT, admit(app, caller, &text)) => {
                let late = |_| Fault::new(Code::Unavailable, "it took too long to let you in");
                admitted.map_err(late).flatten()
            }
        },
        None => Err(Fault::bad_request(
            "the first message must be `join`, as text",
        )),
    };
    match admitted {
        Ok((joined, hello)) => {
            app.metrics.joins.increment(1);
            drop(waiting);
            say(socket, FIRST_ANSWER_TIMEOUT, hello).await?;
            Ok(joined)
        }
        Err(fault) => {
            app.metrics.joins_refused.increment(1);
            say(socket, FIRST_ANSWER_TIMEOUT, fault.to_text()).await?;
            Err(Goodbye::Policy("the join was refused"))
        }
    }
}

/// The first message's text; `None` when it is none.
async fn first(socket: &mut WebSocket) -> Result<Option<String>, Goodbye> {
    loop {
        match socket.recv().await {
            Some(Ok(Message::Text(text))) => return Ok(Some(text.as_str().to_owned())),
            Some(Ok(Message::Binary(_))) => return Ok(None),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_))) | None => return Err(Goodbye::Gone),
            Some(Err(error)) => return Err(failed(error)),
        }
    }
}

async fn admit(app: &App, caller: Caller, text: &str) -> Result<(Joined, String), Fault> {
    let scope = &app.scope;
    let join = Join::read(text, &scope.field)?;
    let (features, names) = Features::agree(&join.features, join.session.is_some());
    let namespace = namespace(app, join.namespace)?;
    let asks = Asks::of(scope, (&app.config.tenant, &namespace), &join.scope)?;
    let ip_max = scope.limits.sessions_per_ip;
    let at_ip = place(ip_max, |most| app.at_ip.take(caller.ip, usize::MAX, most))
        .ok_or_else(|| crowded(app, Limited::IpSessions, features))?;
    let presented = presented(caller, join.token)?;
    let admitted = app.door.identity.admit(presented.clone(), asks.ask()).await;
    let granted = admitted.map_err(refused)?;
    let granted = Arc::new(granted);
    let principal = Arc::clone(&granted.principal);
    let person_max = scope.limits.sessions_per_principal;
    let of_person = place(person_max, |most| {
        app.of_person.take(Arc::clone(&principal), usize::MAX, most)
    })
    .ok_or_else(|| crowded(app, Limited::PrincipalSessions, features))?;
    let reached = app.reach.connect(&namespace, granted.tokens.clone()).await;
    let Attached { client, place } = reached.map_err(|failed| {
        tracing::warn!(%failed, "no broker can be reached for a browser");
        Fault::new(
            Code::Unavailable,
            "the brokers cannot be reached at the moment",
        )
    })?;
    let room = Room {
        namespace: &namespace,
        value: &join.scope,
    };
    rooms::open(app, room, &client, presented).await;
    let rights = asks.rights(&granted);
    let hello = hello(
        app,
        (&namespace, &join.scope),
        (features, &names),
        &granted,
        &rights,
    );
    let page = join
        .session
        .filter(|_| features.has(Feature::IdempotentPublish));
    let page = page.map(|name| Page::new(&principal, &name));
    let now = app.uptime();
    let session = Session::new(Arc::clone(scope), features, principal, rights, page, now);
    let joined = Joined {
        session,
        granted,
        client,
        namespace,
        value: join.scope,
        places: (at_ip, of_person, place),
    };
    Ok((joined, hello))
}

/// A place within a limit; `Some(None)` where there is no limit.
pub(super) fn place<K: Eq + std::hash::Hash>(
    most: usize,
    take: impl FnOnce(usize) -> Option<Slot<K>>,
) -> Option<Option<Slot<K>>> {
    match most {
        0 => Some(None),
        most => take(most).map(Some),
    }
}

fn crowded(app: &App, why: Limited, features: Features) -> Fault {
    app.metrics.limited(why);
    let message = "there are too many sessions already";
    match features.has(Feature::RateLimited) {
        true => Fault::new(Code::RateLimited, message).retry_after(SESSIONS_WAIT),
        false => Fault::new(Code::Unavailable, message),
    }
}

/// The namespace that a browser names, or the gateway's own; only what is listed.
pub(super) fn namespace(app: &App, asked: Option<String>) -> Result<String, Fault> {
    let own = &app.config.namespace;
    let asked = asked.unwrap_or_else(|| own.clone());
    let listed = &app.scope.namespaces;
    let may = match listed.is_empty() {
        true => asked == *own,
        false => listed.contains(&asked),
    };
    match may {
        true => Ok(asked),
        false => Err(Fault::bad_request(format!(
            "namespace {:?} is not served here",
            quoted(&asked)
        ))),
    }
}

/// What a browser presents: its token, or else the sign-in of its cookie, if its page may use that.
pub(super) fn presented(caller: Caller, token: Option<String>) -> Result<Presented, Fault> {
    if let Some(token) = token {
        return Ok(Presented::IdToken(Secret::new(token)));
    }
    match (caller.session, caller.page) {
        (Some(session), origin::Page::Allowed) => Ok(Presented::Session(session)),
        (Some(_), origin::Page::Unsaid) => Err(Fault::new(
            Code::Forbidden,
            "a sign-in by cookie must say which page it comes from",
        )),
        (None, _) => Err(Fault::new(
            Code::SignedOut,
            "there is neither a token nor a sign-in",
        )),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is the argument of map_err"
)]
pub(super) fn refused(refused: Refused) -> Fault {
    let code = match &refused {
        Refused::SignedOut(_) => Code::SignedOut,
        Refused::Forbidden(_) => Code::Forbidden,
        Refused::Unavailable(_) => Code::Unavailable,
    };
    Fault::new(code, refused.to_string())
}

/// The permissions that a scope comes to, by resource and action.
pub(super) struct Asks {
    publish: Vec<Option<Permission>>,
    subscribe: Vec<Option<Permission>>,
    read: Vec<Option<Permission>>,
    write: Vec<Option<Permission>>,
    watch: Vec<Option<Permission>>,
    add: Vec<Option<Permission>>,
    required: Vec<Permission>,
    optional: Vec<Permission>,
}

/// Tenant and namespace.
type Where<'a> = (&'a str, &'a str);

impl Asks {
    pub(super) fn of(scope: &Scope, at: Where<'_>, value: &str) -> Result<Self, Fault> {
        let mut asks = Self {
            publish: Vec::new(),
            subscribe: Vec::new(),
            read: Vec::new(),
            write: Vec::new(),
            watch: Vec::new(),
            add: Vec::new(),
            required: Vec::new(),
            optional: Vec::new(),
        };
        for stream in &scope.streams {
            let mut ask =
                |on, action| asks.want(on, (action, "stream"), &stream.resource, at, value);
            let publish = ask(stream.publish, "stream.publish")?;
            let subscribe = ask(stream.subscribe, "stream.subscribe")?;
            asks.publish.push(publish);
            asks.subscribe.push(subscribe);
        }
        for cache in &scope.caches {
            let mut ask = |on, action| asks.want(on, (action, "cache"), &cache.resource, at, value);
            let read = ask(cache.read, "cache.read")?;
            let write = ask(cache.write, "cache.write")?;
            let watch = ask(cache.watch, "cache.read")?;
            asks.read.push(read);
            asks.write.push(write);
            asks.watch.push(watch);
        }
        for counter in &scope.counters {
            let add = asks.want(true, ("cache.write", "cache"), &counter.resource, at, value)?;
            asks.add.push(add);
        }
        Ok(asks)
    }

    fn want(
        &mut self,
        on: bool,
        (action, kind): (&str, &str),
        resource: &Resource,
        (tenant, namespace): Where<'_>,
        value: &str,
    ) -> Result<Option<Permission>, Fault> {
        if !on {
            return Ok(None);
        }
        let name = resource.name_in(value);
        let text = format!("{action}:{kind}:{tenant}/{namespace}/{name}");
        let permission: Permission = text
            .parse()
            .map_err(|error| Fault::bad_request(format!("{name:?} can be no name: {error}")))?;
        let list = match resource.optional {
            true => &mut self.optional,
            false => &mut self.required,
        };
        if !list.contains(&permission) {
            list.push(permission.clone());
        }
        Ok(Some(permission))
    }

    pub(super) fn ask(&self) -> Ask {
        Ask::Exactly {
            required: self.required.clone(),
            optional: self.optional.clone(),
        }
    }

    pub(super) fn rights(&self, granted: &Granted) -> Rights {
        let has = |list: &[Option<Permission>]| {
            let has =
                |one: &Option<Permission>| one.as_ref().is_some_and(|one| granted.allows(one));
            list.iter().map(has).collect()
        };
        Rights {
            publish: has(&self.publish),
            subscribe: has(&self.subscribe),
            read: has(&self.read),
            write: has(&self.write),
            watch: has(&self.watch),
            add: has(&self.add),
        }
    }
}

fn hello(
    app: &App,
    (namespace, value): (&str, &str),
    (features, names): (Features, &[&'static str]),
    granted: &Granted,
    rights: &Rights,
) -> String {
    let scope = &app.scope;
    let ttl = scope.caches.iter().filter_map(|cache| {
        let ms = u64::try_from(cache.ttl?.as_millis()).unwrap_or(u64::MAX);
        Some((cache.resource.alias.as_str(), ms))
    });
    let streams = scope
        .streams
        .iter()
        .map(|stream| stream.resource.alias.as_str());
    let left = granted.expires_at().0.saturating_sub(now().0);
    Hello {
        features: names,
        namespace,
        scope: (&scope.field, value),
        cache_ttl_ms: ttl.collect(),
        missing: missing(scope, rights),
        principal: features
            .has(Feature::Principal)
            .then_some(&*granted.principal),
        streams: features.has(Feature::Binary).then(|| streams.collect()),
        expires_in_ms: features.has(Feature::Refresh).then_some(left),
    }
    .to_text()
}

/// Aliases of optional resources of which some listed action is not granted.
fn missing<'a>(scope: &'a Scope, rights: &Rights) -> Vec<&'a str> {
    let lacks = |wanted: bool, has: &[bool], place: usize| wanted && has.get(place) != Some(&true);
    let streams = scope.streams.iter().enumerate().filter_map(|(place, one)| {
        let lacks = lacks(one.publish, &rights.publish, place)
            || lacks(one.subscribe, &rights.subscribe, place);
        lacks.then_some(&one.resource)
    });
    let caches = scope.caches.iter().enumerate().filter_map(|(place, one)| {
        let lacks = lacks(one.read, &rights.read, place)
            || lacks(one.write, &rights.write, place)
            || lacks(one.watch, &rights.watch, place);
        lacks.then_some(&one.resource)
    });
    let counters = scope
        .counters
        .iter()
        .enumerate()
        .filter_map(|(place, one)| lacks(true, &rights.add, place).then_some(&one.resource));
    let all = streams.chain(caches).chain(counters);
    all.map(|one| one.alias.as_str()).collect()
}
