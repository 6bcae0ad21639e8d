//! One stream of a client: authenticate, then hear requests and send their answers until it finishes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use felix_auth::{Action, Principal};
use felix_model::{CacheId, StreamId};
use felix_wire::error::{Code, Failure};
use felix_wire::extension::{Extension, Request as ExtensionRequest};
use felix_wire::frame::Incoming;
use felix_wire::message::PublishWidth;
use felix_wire::negotiate::Peer;
use felix_wire::publish::Names;
use felix_wire::session::{Heard, Refusal, Session, Ways};
use quinn::{RecvStream, SendStream};
use tokio_util::sync::CancellationToken;

use super::answers::Answers;
use super::calls::{Caller, Gathered, hand_over};
use super::frames::{Frames, FramesEnded};
use super::standing::{Over, Standing, Stands};
use super::wire::Wire;
use super::{Conn, auth, publish, renewal, request};
use crate::caches::CacheHandle;
use crate::limits::{ENDING_WAIT, FETCHED_REMEMBERED_MAX, ROUTES_REMEMBERED_MAX};
use crate::quotas::{TenantUse, User};
use crate::shards::{StreamHandle, StreamSpec};

/// Polls of one stream that are kept in mind before those that were answered are let go.
const POLLS_KEPT_MAX: usize = 16;

/// What one authenticated stream knows.
pub(crate) struct StreamState {
    pub(crate) conn: Arc<Conn>,
    pub(crate) principal: Arc<Principal>,
    /// What the stream rests on, and how it was at the last look.
    pub(crate) standing: Arc<Standing>,
    /// What its tenant uses.
    pub(crate) used: Arc<TenantUse>,
    seen: u64,
    over: Option<Over>,
    /// Something was refused because of it.
    refused: bool,
    pub(crate) peer: Peer,
    pub(crate) answers: Arc<Answers>,
    /// Streams this one publishes to, by the names as they stand in its frames.
    routes: HashMap<Bytes, Arc<StreamHandle>>,
    /// The cache this one asked last.
    cache: Option<Arc<CacheHandle>>,
    /// The width that the client computed its shards with.
    width: Option<PublishWidth>,
    /// Streams this one fetches from, by their names.
    fetched: HashMap<Bytes, Arc<StreamHandle>>,
    /// Groups of the Kafka protocol that the principal was seen to have a right to.
    pub(crate) teams: HashSet<(Action, String)>,
    /// Fetches that wait end with this stream.
    pub(crate) gone: CancellationToken,
    /// Calls read in this turn and not handed over yet.
    calls: Gathered,
    /// What was asked of groups. With the stream, polls that still wait are taken back.
    asked: Vec<crate::groups::Asked>,
}

impl std::fmt::Debug for StreamState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamState")
            .field("conn", &self.conn)
            .finish_non_exhaustive()
    }
}

impl Drop for StreamState {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

/// The stream a publish names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route<'a> {
    /// As it stands in a binary frame, which is also its key among the remembered ones.
    Names(&'a Names),
    /// As JSON has it: tenant, namespace, stream.
    Text(&'a str, &'a str, &'a str),
}

/// Serves one stream. `send` is absent on a stream that only the client may write.
pub(crate) async fn serve(conn: Arc<Conn>, send: Option<SendStream>, recv: RecvStream) {
    let Ok(permit) = Arc::clone(&conn.unknown).acquire_owned().await else {
        return;
    };
    let ways = if send.is_some() {
        Ways::Both
    } else {
        Ways::OneWay
    };
    let mut session = Session::new(ways);
    let mut wire = Wire::new(Frames::new(recv, session.accepts()), send);
    let opened = tokio::time::timeout(
        crate::limits::AUTHENTICATION_TIMEOUT,
        Box::pin(open(&conn, &mut session, &mut wire)),
    );
    let opened = opened.await;
    drop(permit);
    // Otherwise it was refused, is gone, or was silent for too long.
    if let Ok(Some(mut state)) = opened {
        wire.frames.accept(session.accepts());
        let ran = run(&mut state, &session, &mut wire).await;
        if ran == Ran::Revoked {
            let last = end_revoked(&mut state, &mut wire);
            if tokio::time::timeout(ENDING_WAIT, last).await.is_err() {
                wire.cut();
            }
        }
    }
    wire.frames.stop();
    wire.finish().await;
}

async fn open(conn: &Arc<Conn>, session: &mut Session, wire: &mut Wire) -> Option<StreamState> {
    let heard = match wire.frames.next().await {
        Ok(Some(frame)) => session.hear(frame),
        Ok(None) | Err(FramesEnded::Cut | FramesEnded::Lost(_)) => return None,
        Err(FramesEnded::Refused(why)) => Heard::Refused(session.unreadable(why)),
    };
    let answer = match heard {
        Heard::Auth(message, offer) => match auth::authenticate(conn, &message).await {
            Ok((standing, used)) => {
                let grant = conn.shared.served.grant(&offer);
                session.open(grant.peer);
                if !wire.write(&mut vec![grant.answer.encode()]).await {
                    return None;
                }
                let state = StreamState::new(conn, standing, used, grant.peer);
                if grant.peer.extensions.contains(Extension::Reauth) {
                    conn.keep_told(&state.answers, &state.principal);
                }
                return Some(state);
            }
            Err(failure) => {
                conn.shared.metrics.auth_refused.increment(1);
                Some(offer.peer().error(failure).encode())
            }
        },
        Heard::Refused(Refusal { answer, .. }) => answer,
        // Before `auth` a session hears nothing else.
        Heard::Publish(_) | Heard::Request(_) | Heard::Extension { .. } => None,
    };
    wire.write(&mut answer.into_iter().collect()).await;
    None
}

/// How a stream came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ran {
    /// Everything is said, or nobody is there any more.
    Out,
    /// What it rests on was revoked.
    Revoked,
}

async fn run(state: &mut StreamState, session: &Session, wire: &mut Wire) -> Ran {
    let mut out = Vec::new();
    let mut finished = false;
    let mut ending = false;
    // Nobody reads a stream any more that has said all it will, but its client may still go away.
    let gone = wire.gone();
    tokio::pin!(gone);
    let standing = Arc::clone(&state.standing);
    let moved = standing.changed();
    tokio::pin!(moved);
    loop {
        // One comparison a turn, however many requests it holds.
        if standing.serial() != state.seen {
            moved.set(standing.changed());
            state.look();
            if let Some(Over::Revoked(_)) = state.over {
                return Ran::Revoked;
            }
        }
        while !ending && !state.answers.is_full() {
            match wire.frames.buffered() {
                Ok(Some(frame)) => ending = hear(state, session, frame).await,
                Ok(None) => {
                    // What came with the request that was refused is refused as well.
                    ending = state.has_refused();
                    break;
                }
                Err(error) => {
                    if let FramesEnded::Refused(why) = error {
                        state.answers_refusal(session.unreadable(why));
                    }
                    ending = true;
                }
            }
        }
        if !state.calls.is_empty() {
            let calls = std::mem::take(&mut state.calls);
            Box::pin(hand_over(state, calls)).await;
        }
        let taken = state.answers.take(&mut out);
        if !out.is_empty() && !wire.write_while(&standing, &mut out).await {
            return Ran::Out;
        }
        if taken.is_err() || ((ending || finished) && state.answers.is_idle()) {
            return Ran::Out;
        }
        tokio::select! {
            biased;
            () = state.answers.ready() => {}
            () = &mut moved => {}
            () = &mut gone, if finished => return Ran::Out,
            more = wire.frames.fill(), if !ending && !finished && !state.answers.is_full() => {
                match more {
                    Ok(true) => {}
                    Ok(false) => finished = true,
                    Err(_) => return Ran::Out,
                }
            }
        }
    }
}

/// Says why the stream ends, once what was accepted on it is answered.
async fn end_revoked(state: &mut StreamState, wire: &mut Wire) {
    let Some(over) = state.standing.over() else {
        return;
    };
    state.answers.ends_with(over.failure());
    // Polls and fetches that wait are taken back.
    state.asked.clear();
    state.gone.cancel();
    let mut out = Vec::new();
    let mut written = true;
    let settled = async {
        loop {
            let taken = state.answers.take(&mut out);
            written = false;
            if !wire.write(&mut out).await {
                return false;
            }
            written = true;
            if taken.is_err() || state.answers.is_idle() {
                return true;
            }
            state.answers.ready().await;
        }
    };
    // What waits for records may wait for long: the last word is said without it.
    match tokio::time::timeout(ENDING_WAIT / 2, settled).await {
        Ok(true) => {}
        Ok(false) => return,
        // Behind a part of a frame nothing can be said.
        Err(_) if !written => return wire.cut(),
        Err(_) => out.clear(),
    }
    out.push(state.peer.error(over.failure()).encode());
    wire.write(&mut out).await;
}

/// Carries out one frame. `true` when the stream ends after its answers.
async fn hear(state: &mut StreamState, session: &Session, frame: Incoming) -> bool {
    match session.hear(frame) {
        Heard::Publish(binary) => {
            let (names, request) = publish::Request::binary(binary);
            publish::publish(state, Route::Names(&names), request).await;
            false
        }
        // Apart, so that a stream that waits for its next frame does not hold room for the largest request.
        Heard::Request(message) => Box::pin(request::answer(state, message)).await,
        Heard::Extension {
            correlation,
            request: ExtensionRequest::PublishRecords(records),
        } => {
            let (names, request) = publish::Request::records(correlation, records);
            publish::publish(state, Route::Names(&names), request).await;
            false
        }
        Heard::Extension {
            correlation,
            request: ExtensionRequest::Call(call),
        } => {
            let caller = Caller::new(&state.answers, correlation);
            match state.refusal() {
                Some(failure) => caller.fail(failure),
                None => state.calls.push(call, caller),
            }
            false
        }
        Heard::Extension {
            correlation,
            request: ExtensionRequest::Renew(renew),
        } => {
            Box::pin(renewal::renew(state, correlation, renew)).await;
            false
        }
        Heard::Refused(refusal) => {
            let ends = refusal.ends;
            state.answers_refusal(refusal);
            ends
        }
        // The session lets `auth` through only once.
        Heard::Auth(..) => true,
    }
}

impl StreamState {
    pub(super) fn new(
        conn: &Arc<Conn>,
        standing: Arc<Standing>,
        used: Arc<TenantUse>,
        peer: Peer,
    ) -> Self {
        Self {
            conn: Arc::clone(conn),
            principal: standing.holder().principal,
            standing,
            used,
            // Looked at before the first frame is carried out.
            seen: u64::MAX,
            over: None,
            refused: false,
            answers: Answers::new(&peer),
            peer,
            routes: HashMap::new(),
            cache: None,
            width: None,
            fetched: HashMap::new(),
            teams: HashSet::new(),
            gone: CancellationToken::new(),
            calls: Gathered::default(),
            asked: Vec::new(),
        }
    }

    /// Looks at what the stream rests on, and says whether that is over.
    pub(super) fn looks(&mut self) -> Option<Over> {
        self.look();
        self.over
    }

    /// Looks at what the stream rests on.
    fn look(&mut self) {
        self.seen = self.standing.serial();
        match self.standing.now() {
            Stands::For(principal) => {
                if !Arc::ptr_eq(&principal, &self.principal) {
                    // What the earlier token allowed is asked anew.
                    self.routes.clear();
                    self.fetched.clear();
                    self.teams.clear();
                    self.principal = principal;
                }
            }
            Stands::Over(over) => self.over = Some(over),
        }
    }

    /// How what it rests on was at the last look.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// What requests are answered with instead of being carried out.
    pub(crate) fn refusal(&mut self) -> Option<Failure> {
        let over = self.over?;
        self.refused = true;
        Some(over.failure())
    }

    fn has_refused(&self) -> bool {
        self.refused
    }

    /// Who uses what is used in a namespace.
    pub(crate) fn user<'a>(&'a self, namespace: &'a str) -> User<'a> {
        User {
            namespace,
            principal: &self.principal.subject,
        }
    }

    /// Counts a write against everything that bounds its author.
    ///
    /// # Errors
    /// `tenant_quota` or `quota_exceeded`, with when it is worth trying again.
    pub(crate) fn writes(&self, namespace: &str, bytes: u64, records: u64) -> Result<(), Failure> {
        self.used
            .write(self.user(namespace), bytes, records)
            .map_err(|exceeded| self.conn.shared.exceeded(exceeded))
    }

    /// As [`Self::writes`], for somebody who waits afterwards: gives for how many milliseconds.
    ///
    /// # Errors
    /// As there, once he is too far ahead.
    pub(crate) fn writes_ahead(
        &self,
        namespace: &str,
        bytes: u64,
        records: u64,
    ) -> Result<u64, Failure> {
        self.used
            .write_ahead(self.user(namespace), bytes, records)
            .map_err(|exceeded| self.conn.shared.exceeded(exceeded))
    }

    fn answers_refusal(&self, refusal: Refusal) {
        let Some(answer) = refusal.answer else { return };
        if refusal.publish {
            self.answers.reserve().fill(answer);
        } else {
            self.answers.push(answer);
        }
    }

    /// The stream a publish goes to, once this principal may publish there.
    pub(crate) async fn route_publish(
        &mut self,
        route: Route<'_>,
    ) -> Result<Arc<StreamHandle>, Failure> {
        let (key, tenant, namespace, stream) = match route {
            Route::Names(names) => {
                if let Some(handle) = self.routes.get(names.raw())
                    && !handle.is_gone()
                {
                    return Ok(Arc::clone(handle));
                }
                (
                    Some(names.raw().clone()),
                    names.tenant(),
                    names.namespace(),
                    names.stream(),
                )
            }
            Route::Text(tenant, namespace, stream) => (None, tenant, namespace, stream),
        };
        let id = self.name(tenant, namespace, stream)?;
        if !publish::may_publish(&self.principal, &id) {
            return Err(forbidden("stream.publish", &id));
        }
        let handle = self.conn.shared.stream(&id, &self.principal).await?;
        if let Some(key) = key {
            if self.routes.len() >= ROUTES_REMEMBERED_MAX {
                self.routes.clear();
            }
            // A copy, so that the frame it came in is not kept.
            self.routes
                .insert(Bytes::copy_from_slice(&key), Arc::clone(&handle));
        }
        Ok(handle)
    }

    /// The stream a fetch reads, once this principal may read it.
    pub(crate) async fn route_fetch(
        &mut self,
        namespace: &str,
        stream: &str,
    ) -> Result<Arc<StreamHandle>, Failure> {
        // No name has a zero in it.
        let key = Bytes::from([namespace, stream].join("\0"));
        if let Some(handle) = self.fetched.get(&key)
            && !handle.is_gone()
        {
            return Ok(Arc::clone(handle));
        }
        let tenant = self.principal.tenant.clone();
        let id = self.name(tenant.as_str(), namespace, stream)?;
        super::subscribe::check_read(self, &id)?;
        let handle = self.conn.shared.stream(&id, &self.principal).await?;
        if self.fetched.len() >= FETCHED_REMEMBERED_MAX {
            self.fetched.clear();
        }
        self.fetched.insert(key, Arc::clone(&handle));
        Ok(handle)
    }

    /// A stream's name, once it is well formed and of this stream's tenant.
    pub(crate) fn name(
        &self,
        tenant: &str,
        namespace: &str,
        stream: &str,
    ) -> Result<StreamId, Failure> {
        if tenant != self.principal.tenant.as_str() {
            return Err(Failure::new(
                Code::Forbidden,
                "the request names another tenant than the token",
            ));
        }
        // A malformed name cannot be that of anything.
        StreamId::new(tenant, namespace, stream).map_err(|error| {
            Failure::new(Code::NotFound, error.to_string()).with_reason("bad_name")
        })
    }

    /// A cache's name, once it is well formed and of this stream's tenant.
    pub(crate) fn cache_id(
        &self,
        tenant: &str,
        namespace: &str,
        cache: &str,
    ) -> Result<CacheId, Failure> {
        if let Some(known) = &self.cache {
            let id = &known.spec().id;
            if id.cache == *cache && id.namespace == *namespace && id.tenant == *tenant {
                return Ok(id.clone());
            }
        }
        if tenant != self.principal.tenant.as_str() {
            return Err(Failure::new(
                Code::Forbidden,
                "the request names another tenant than the token",
            ));
        }
        // A malformed name cannot be that of anything.
        CacheId::new(tenant, namespace, cache).map_err(|error| {
            Failure::new(Code::NotFound, error.to_string()).with_reason("bad_name")
        })
    }

    /// A cache in service. The one asked last is at hand.
    pub(crate) async fn cache(&mut self, id: &CacheId) -> Result<Arc<CacheHandle>, Failure> {
        if let Some(known) = &self.cache
            && known.spec().id == *id
            && !known.is_gone()
        {
            return Ok(Arc::clone(known));
        }
        let found = self.conn.shared.cache(id, &self.principal).await?;
        self.cache = Some(Arc::clone(&found));
        Ok(found)
    }

    /// Keeps a poll that waits in mind, so that it ends with this stream.
    pub(crate) fn asks(&mut self, asked: crate::groups::Asked) {
        if self.asked.len() >= POLLS_KEPT_MAX {
            self.asked.retain(|asked| !asked.is_answered());
        }
        self.asked.push(asked);
    }

    /// Remembers the width the client uses from here on.
    pub(crate) fn declare_width(&mut self, width: PublishWidth) {
        self.width = Some(width);
    }

    /// Refuses a keyed publish that was computed for another width than the stream has.
    pub(crate) fn check_width(&self, spec: &StreamSpec) -> Result<(), Failure> {
        let Some(width) = &self.width else {
            return Ok(());
        };
        let same_stream = width.namespace == spec.id.namespace.as_str()
            && width.stream == spec.id.stream.as_str();
        if !same_stream || publish::width_matches(spec, width.shards, width.routing.as_deref()) {
            return Ok(());
        }
        Err(Failure::new(
            Code::StaleWidth,
            format!(
                "the key was routed over {} shards and the stream has {} ({})",
                width.shards, spec.shards, spec.routing
            ),
        ))
    }
}

/// The refusal of a principal that lacks a permission. It never says whether the thing exists.
pub(crate) fn forbidden(action: &str, id: &StreamId) -> Failure {
    Failure::new(
        Code::Forbidden,
        format!("the token does not allow {action} on stream:{id}"),
    )
}
