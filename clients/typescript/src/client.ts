/** The client: one scope over one connection that comes back by itself. */
import { encode, toBase64 } from "./bytes.js";
import type { Payload } from "./bytes.js";
import { Cache, checkName, expect } from "./cache.js";
import type { CacheUpstream } from "./cache.js";
import { Connection } from "./connection.js";
import type { StateChange } from "./connection.js";
import { Counter } from "./counter.js";
import { asyncDispose } from "./dispose.js";
import { Emitter } from "./emitter.js";
import { ClosedError, FelixError, UnauthorizedError, UsageError, abortReason, onAbort } from "./errors.js";
import { writePublish } from "./frame.js";
import type { EventFrame } from "./frame.js";
import { browserHost } from "./host.js";
import type { Host, SocketConstructor } from "./host.js";
import { TIMING } from "./machine.js";
import type { State, Timing } from "./machine.js";
import { Presence } from "./presence.js";
import type { PresenceOptions } from "./presence.js";
import { FEATURES, PROTOCOL } from "./protocol.js";
import type { Hello, Inbound, Refusal } from "./protocol.js";
import { Reads } from "./reads.js";
import type { Page, ReadOptions, StateValue } from "./reads.js";
import { Requests, refusalError } from "./requests.js";
import { Subscription } from "./subscription.js";
import type { Lagged, StreamResynced, SubscribeOptions, Trimmed } from "./subscription.js";
import { Tokens } from "./token.js";
import type { TokenSource } from "./token.js";

/** The one room, board or match that a connection is for: `field` is the gateway's name for it. */
export interface Scope {
  readonly field: string;
  readonly value: string;
}

export interface ClientOptions {
  /** The gateway, `wss://host/ws`; an `http` address or a path of this page is understood. */
  readonly url: string;
  readonly scope: Scope;
  /** An ID token, a function that makes one, or nothing: then the gateway's session cookie is used. */
  readonly token?: TokenSource;
  /** Features to ask for; all that this package knows when absent. */
  readonly features?: readonly string[];
  /** A constructor of sockets where there is none built in (Node: the package `ws`), or in tests. */
  readonly webSocket?: SocketConstructor;
  /** Clock, timers, page events; for tests. */
  readonly host?: Host;
  readonly timing?: Partial<Timing>;
  /** Closes the client. */
  readonly signal?: AbortSignal;
}

export interface ClientEvents {
  state: StateChange;
  hello: Hello;
  lagged: Lagged;
  trimmed: Trimmed;
  resynced: StreamResynced;
  unauthorized: UnauthorizedError;
  goingAway: { readonly reconnectAfterMs: number };
  /** A write without an answer of its own was refused. */
  writeFailed: { readonly error: FelixError; readonly cache: string | null; readonly stream: string | null };
  /** What arrived was not the protocol; the connection is opened again. */
  protocolError: FelixError;
}

export interface PublishOptions {
  /** Wait for the broker (default true); without, the answer is `null` at once and a refusal is `writeFailed`. */
  readonly ack?: boolean;
  readonly signal?: AbortSignal;
}

/** Above this many bytes in the socket nothing more is handed to it, and it is looked at again after `DRAIN_MS`. */
const BUFFERED_MAX = 1024 * 1024;
const DRAIN_MS = 20;
/** Upper bounds of the random delay before a subscription is asked for again. */
const RESUBSCRIBE_MS = 200;
const RESUBSCRIBE_MAX_MS = 10_000;

export class FelixClient extends Emitter<ClientEvents> implements AsyncDisposable {
  readonly scope: Scope;
  readonly #host: Host;
  readonly #tokens: Tokens;
  readonly #connection: Connection;
  readonly #requests: Requests;
  readonly #reads: Reads;
  readonly #url: string;
  readonly #features: readonly string[];
  readonly #signal: AbortSignal | undefined;
  #hello: Hello | null = null;
  readonly #subscriptions = new Map<string, Subscription>();
  #subs = new Map<number, string>();
  readonly #caches = new Map<string, Cache>();
  readonly #presences = new Set<Presence>();
  #later = new Map<Subscription, () => void>();
  #draining: (() => void) | null = null;
  #unlisten: (() => void) | null = null;

  constructor(options: ClientOptions) {
    super();
    checkName(options.scope.field, "scope field");
    checkName(options.scope.value, "scope value");
    this.scope = options.scope;
    this.#features = options.features ?? FEATURES;
    this.#url = socketUrl(options.url);
    this.#host = options.host ?? browserHost(options.webSocket);
    this.#tokens = new Tokens(this.#host, options.token);
    this.#requests = new Requests({ ready: () => this.#ready(), send: (frame) => this.#connection.send(frame) });
    this.#reads = new Reads(this.#requests, (feature) => this.#connection.has(feature));
    this.#connection = new Connection(this.#host, this.#tokens, this.#url, (token) => this.#join(token), {
      ready: (hello) => this.#restore(hello),
      message: (message) => this.#message(message),
      binary: (event) => this.#event(event),
      cut: () => this.#cut(),
      forget: () => this.#forget(),
      state: (change) => this.emit("state", change),
      unauthorized: (error) => this.#unauthorized(error),
      goingAway: (afterMs) => this.emit("goingAway", { reconnectAfterMs: afterMs }),
      failed: (error) => this.emit("protocolError", error),
    }, { ...TIMING, ...options.timing });
    this.#signal = options.signal;
    if (this.#signal?.aborted === true) this.close();
  }

  // ---- the connection

  get state(): State {
    return this.#connection.state;
  }

  /** Who the gateway says we are (feature `principal`); `null` before the first connection. */
  get principal(): string | null {
    return this.#hello?.principal ?? null;
  }

  /** What the gateway granted last; `null` before the first connection. */
  get hello(): Hello | null {
    return this.#hello;
  }

  /**
   * Begins to connect; `connected` says when it stands. A client that waits for its next try makes it now; after `close`
   * and `unauthorized` this begins anew (but not with the text of a token that was refused).
   */
  connect(): void {
    if (this.#signal?.aborted === true) return;
    this.#requests.open();
    this.#unlisten ??= this.#listen();
    this.#connection.connect();
  }

  /** Resolves when the connection stands; rejects when it cannot without help: `UnauthorizedError`, `ClosedError`, the signal's reason. */
  connected(options: { signal?: AbortSignal } = {}): Promise<void> {
    const { signal } = options;
    if (this.state === "connected") return Promise.resolve();
    if (this.state === "closed") return Promise.reject(this.#signal?.aborted === true ? abortReason(this.#signal) : new ClosedError());
    if (this.state === "unauthorized") return Promise.reject(new UnauthorizedError("unauthorized", "set a token first"));
    if (signal?.aborted === true) return Promise.reject(abortReason(signal));
    return new Promise((resolve, reject) => {
      const ending = new AbortController();
      const done = (settle: () => void): void => {
        ending.abort();
        settle();
      };
      const listening = { signal: ending.signal };
      this.on("hello", () => done(resolve), listening);
      this.on("unauthorized", (error) => done(() => reject(error)), listening);
      this.on("state", ({ to }) => { if (to === "closed") done(() => reject(signal?.aborted === true ? abortReason(signal) : new ClosedError())); }, listening);
      signal?.addEventListener("abort", () => done(() => reject(abortReason(signal))), listening);
    });
  }

  /** Another token, or another way to get them. After `unauthorized`, `connect` works again; a connection that stands is renewed. */
  setToken(token: TokenSource): void {
    this.#tokens.replace(token);
    this.#connection.tokenSet();
  }

  /** Tells the gateway to forget the session, then forgets it here: token, subscriptions, caches, what waits. */
  signOut(): void {
    for (const presence of [...this.#presences]) void presence.leave();
    if (this.#connection.has("refresh")) this.#connection.send('{"type":"sign_out"}');
    this.close();
  }

  /** Ends everything of this session. `setToken` and `connect` begin another, in which nothing of this one is left. */
  close(): void {
    this.#unlisten?.();
    this.#unlisten = null;
    // Already closed is no change of state, and a token that was set since is forgotten all the same.
    if (this.state === "closed") this.#forget();
    else this.#connection.close();
  }

  async [asyncDispose](): Promise<void> {
    await Promise.all([...this.#presences].map((presence) => presence.leave()));
    this.close();
  }

  // ---- streams

  /** Records of `stream`, each once, over any number of connections: iterate it, or pass `onEvent`. One at a time for each stream. */
  subscribe(stream: string, options: SubscribeOptions = {}): Subscription {
    if (this.#subscriptions.has(stream)) throw new UsageError(`\`${stream}\` is subscribed already; close that subscription first`);
    if (this.state === "closed") throw new ClosedError();
    const subscription = new Subscription(stream, options, {
      subscribe: (one) => this.#subscribe([one]),
      subscribeLater: (one, failures) => this.#subscribeLater(one, failures),
      lagged: (event) => this.emit("lagged", event),
      trimmed: (event) => this.emit("trimmed", event),
      resynced: (event) => this.emit("resynced", event),
      closed: (one) => this.#closed(one),
    });
    if (options.signal?.aborted === true) return subscription;
    this.#subscriptions.set(stream, subscription);
    this.#subscribe([subscription]);
    return subscription;
  }

  /**
   * Publishes one record; resolves with its offset (`null` without a log or without `ack`). Waits while there is no
   * connection and while too much is under way. A connection cut before the answer is `OutcomeUnknownError`.
   */
  async publish(stream: string, payload: Payload, options: PublishOptions = {}): Promise<number | null> {
    const bytes = encode(payload);
    const ack = options.ack ?? true;
    return this.#requests.ask({
      name: `publish ${stream}`, bytes: 64 + bytes.length, read: false, answered: ack,
      frame: (id) => {
        const index = this.#connection.has("binary") ? (this.#hello?.streams.indexOf(stream) ?? -1) : -1;
        if (index >= 0) return writePublish({ stream: index, id, ack, payload: bytes });
        return JSON.stringify({ type: "publish", stream, payload: toBase64(bytes), ack, id });
      },
      take: (answer) => (answer === null ? null : expect(answer, "ack").offset),
    }, options.signal);
  }

  /** Requests sent and not answered, and such that wait: what a page shows as "saving". */
  get pending(): number {
    return this.#requests.inFlight + this.#requests.waiting;
  }

  /** One page of a log (feature `read`). Throws `TrimmedError` when `from` is gone. */
  read(stream: string, options: ReadOptions): Promise<Page> {
    return this.#reads.read(stream, options);
  }

  /** The state that commits wrote under `key` (feature `state`). */
  stateOf(stream: string, key: string, options: { entity?: string; signal?: AbortSignal } = {}): Promise<StateValue> {
    return this.#reads.state(stream, key, options);
  }

  /** First offset written at `at` or later; `null` when there is none yet (feature `time`). */
  offsetForTime(stream: string, at: Date, options: { signal?: AbortSignal } = {}): Promise<number | null> {
    return this.#reads.offsetForTime(stream, at, options);
  }

  // ---- caches, counters, presence

  cache(alias: string): Cache {
    let cache = this.#caches.get(alias);
    if (cache === undefined) {
      const upstream: CacheUpstream = {
        requests: this.#requests,
        has: (feature) => this.#connection.has(feature),
        watch: (name) => this.#watch(name),
      };
      cache = new Cache(alias, upstream);
      this.#caches.set(alias, cache);
    }
    return cache;
  }

  counter(alias: string): Counter {
    return new Counter(alias, this.#requests);
  }

  /** Enters the members of an expiring cache that this scope may read, write and watch. */
  presence(alias: string, options: PresenceOptions): Presence {
    const presence = new Presence(this.cache(alias), options, {
      host: this.#host,
      ttlMs: () => this.#hello?.cacheTtlMs[alias] ?? null,
      connected: () => this.#connection.sends,
      beacon: (key) => this.#beacon(alias, key),
      ended: (one) => void this.#presences.delete(one),
    });
    if (options.signal?.aborted !== true) this.#presences.add(presence);
    return presence;
  }

  // ---- inside

  /** Ended by `close`, so that neither the page nor a signal that lives on holds a client that is over. */
  #listen(): () => void {
    const page = this.#host.listen((event) => {
      if (event === "leaving") for (const presence of this.#presences) presence.leaving();
      if (event === "returned") for (const presence of this.#presences) presence.enter();
    });
    const signal = onAbort(this.#signal, () => this.close());
    return () => {
      page();
      signal();
    };
  }

  #join(token: string | null): string {
    return JSON.stringify({
      type: "join", protocol: PROTOCOL, features: this.#features, [this.scope.field]: this.scope.value,
      ...(token === null ? {} : { token }),
    });
  }

  #beacon(cache: string, key: string): boolean {
    const token = this.#tokens.current;
    const url = this.#url.replace(/^ws/, "http").replace(/\/ws$/, "/members/leave");
    const body = { [this.scope.field]: this.scope.value, ...(token === null ? {} : { token }), cache, key };
    return this.#host.beacon(url, JSON.stringify(body));
  }

  #ready(): boolean {
    if (!this.#connection.sends) return false;
    if (this.#connection.buffered < BUFFERED_MAX) return true;
    this.#draining ??= this.#host.after(DRAIN_MS, () => {
      this.#draining = null;
      this.#requests.pump();
    });
    return false;
  }

  /** A connection stands: everything that was there before is asked for again, then what waits goes out. */
  #restore(hello: Hello): void {
    this.#hello = hello;
    this.#subs = new Map();
    this.#subscribe([...this.#subscriptions.values()]);
    for (const cache of this.#caches.values()) if (cache.watched) this.#watch(cache.alias);
    for (const presence of this.#presences) presence.enter();
    this.emit("hello", hello);
    this.#requests.pump();
  }

  #subscribe(subscriptions: readonly Subscription[]): void {
    if (this.state !== "connected" || subscriptions.length === 0) return;
    for (const one of subscriptions) this.#later.get(one)?.();
    const asked = subscriptions.map((one) => ({ stream: one.stream, from: one.ask() }));
    if (asked.length > 1 && this.#connection.has("resume")) {
      return this.#connection.send(JSON.stringify({ type: "subscribe", streams: asked }));
    }
    for (const one of asked) this.#connection.send(JSON.stringify({ type: "subscribe", ...one }));
  }

  #subscribeLater(subscription: Subscription, failures: number): void {
    const bound = Math.min(RESUBSCRIBE_MAX_MS, RESUBSCRIBE_MS * 2 ** Math.min(failures, 10));
    const cancel = this.#host.after(Math.round(bound * (0.5 + this.#host.random() / 2)), () => this.#subscribe([subscription]));
    this.#later.set(subscription, () => {
      this.#later.delete(subscription);
      cancel();
    });
  }

  #closed(subscription: Subscription): void {
    this.#later.get(subscription)?.();
    if (this.#subscriptions.get(subscription.stream) === subscription) this.#subscriptions.delete(subscription.stream);
  }

  #watch(cache: string): void {
    if (this.state === "connected") this.#connection.send(JSON.stringify({ type: "cache_watch", cache }));
  }

  #event(event: EventFrame): void {
    const stream = this.#subs.get(event.sub);
    if (stream === undefined) return;
    this.#subscriptions.get(stream)?.receive(event.offset, event.skippedBefore, event.timeMs, event.payload);
  }

  #message(message: Inbound): void {
    switch (message.type) {
      case "event":
        return this.#subscriptions.get(message.stream)?.receive(message.offset, message.skippedBefore, null, message.payload);
      case "subscribed":
        if (message.sub !== null) this.#subs.set(message.sub, message.stream);
        return this.#subscriptions.get(message.stream)?.began(message.startOffset, message.liveOffset);
      case "cache_entries":
      case "cache_change":
        return this.#caches.get(message.cache)?.message(message);
      case "error":
        return this.#refused(message);
      case "hello":
      case "refreshed":
      case "going_away":
      case "unknown":
        return;
      default:
        return this.#requests.answer(message);
    }
  }

  #refused(refusal: Refusal): void {
    if (refusal.code === "unsupported" && refusal.id === null && refusal.stream === null && refusal.cache === null) return;
    if (this.#requests.refuse(refusal)) return;
    const error = refusalError(refusal);
    const subscription = refusal.id === null && refusal.stream !== null ? this.#subscriptions.get(refusal.stream) : undefined;
    if (subscription !== undefined) return subscription.refused(refusal.code, refusal.oldest, error);
    if (refusal.code === "watch_failed" && refusal.cache !== null) return this.#watchLater(refusal.cache);
    this.emit("writeFailed", { error, cache: refusal.cache, stream: refusal.stream });
  }

  #watchLater(cache: string): void {
    this.#host.after(Math.round(RESUBSCRIBE_MS * (1 + this.#host.random())), () => {
      if (this.#caches.get(cache)?.watched === true) this.#watch(cache);
    });
  }

  #cut(): void {
    for (const cancel of [...this.#later.values()]) cancel();
    for (const subscription of this.#subscriptions.values()) subscription.cut();
    this.#requests.cut();
  }

  #unauthorized(error: UnauthorizedError): void {
    this.#requests.fail(error);
    this.emit("unauthorized", error);
  }

  #forget(): void {
    this.#tokens.replace(undefined);
    this.#connection.tokenSet();
    this.#hello = null;
    this.#subs = new Map();
    for (const presence of [...this.#presences]) presence.end();
    for (const subscription of [...this.#subscriptions.values()]) subscription.close();
    this.#subscriptions.clear();
    for (const cache of this.#caches.values()) cache.forget();
    this.#caches.clear();
    this.#draining?.();
    this.#draining = null;
    this.#requests.forget();
  }
}

/** A client that begins to connect at once; resolves when the connection stands. `signal` gives up, and later closes it. */
export async function connect(options: ClientOptions): Promise<FelixClient> {
  const client = new FelixClient(options);
  client.connect();
  try {
    await client.connected(options.signal === undefined ? {} : { signal: options.signal });
  } catch (error) {
    client.close();
    throw error;
  }
  return client;
}

/** `http` becomes `ws`, a path becomes an address of this page. Tokens have no place in an address. */
function socketUrl(url: string): string {
  const base = typeof location === "undefined" ? undefined : location.href;
  let parsed: URL;
  try {
    parsed = new URL(url, base);
  } catch {
    throw new UsageError(`\`${url.slice(0, 200)}\` is not an address`);
  }
  if (parsed.username !== "" || parsed.password !== "" || parsed.search !== "" || parsed.hash !== "") {
    throw new UsageError("the gateway's address has no user, query or fragment");
  }
  parsed.protocol = parsed.protocol.replace(/^http/, "ws");
  if (parsed.protocol !== "ws:" && parsed.protocol !== "wss:") throw new UsageError(`\`${parsed.protocol}\` is not ws or wss`);
  return parsed.href;
}
