/** Who is here: one key of an expiring cache for each member, written again before it expires, deleted when the page goes. */
import { encode, text } from "./bytes.js";
import type { Payload } from "./bytes.js";
import type { Cache } from "./cache.js";
import { checkName } from "./cache.js";
import { Emitter } from "./emitter.js";
import type { Host } from "./host.js";

export interface Member {
  readonly key: string;
  readonly bytes: Uint8Array;
  /** The member's data as JSON that nobody checked yet; `null` when it is none. */
  json(): unknown;
}

export interface PresenceEvents {
  join: Member;
  update: Member;
  leave: { readonly key: string };
  /** After any of the three. */
  change: readonly Member[];
}

/** What presence needs of its client. */
export interface PresenceUpstream {
  readonly host: Host;
  /** The expiry of the cache in milliseconds; `null` when it has none or there was no connection yet. */
  ttlMs(): number | null;
  connected(): boolean;
  /** Deletes the key without a connection, while the page goes. */
  beacon(key: string): boolean;
  ended(presence: Presence): void;
}

export interface PresenceOptions {
  /** This member's key: unique among the members, for example a random id of the tab. */
  readonly key: string;
  readonly data: Payload;
  readonly signal?: AbortSignal;
}

/** Without an expiry in `hello`, how often presence is written again. */
const AGAIN_MS = 5_000;

function member(key: string, bytes: Uint8Array): Member {
  return {
    key, bytes,
    json() {
      try {
        return JSON.parse(text(bytes)) as unknown;
      } catch {
        return null;
      }
    },
  };
}

export class Presence extends Emitter<PresenceEvents> {
  readonly #members = new Map<string, Member>();
  #bytes: Uint8Array;
  #cancel: (() => void) | null = null;
  #stopWatching: () => void;
  #ended = false;

  constructor(
    private readonly cache: Cache,
    private readonly options: PresenceOptions,
    private readonly upstream: PresenceUpstream,
  ) {
    super();
    checkName(options.key, "key");
    this.#bytes = encode(options.data);
    this.#stopWatching = cache.onChange((change) => {
      if (change.bytes === null) this.#left(change.key);
      else this.#seen(change.key, change.bytes);
    });
    options.signal?.addEventListener("abort", () => void this.leave(), { once: true });
    this.enter();
  }

  /** Everybody here, this member too, in the order of their keys. */
  get members(): readonly Member[] {
    return [...this.#members.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
  }

  /** Changes this member's data. */
  update(data: Payload): void {
    this.#bytes = encode(data);
    this.enter();
  }

  /** Says that we are here: now, and again before the entry expires. Called by the client at each new connection. */
  enter(): void {
    this.#cancel?.();
    this.#cancel = null;
    if (this.#ended || !this.upstream.connected()) return;
    this.cache.put(this.options.key, this.#bytes).catch(() => undefined);
    const ttl = this.upstream.ttlMs();
    this.#cancel = this.upstream.host.after(ttl === null ? AGAIN_MS : Math.max(500, Math.floor(ttl / 3)), () => this.enter());
  }

  /** Says good-bye over the connection and ends this object. */
  async leave(): Promise<void> {
    if (this.#ended) return;
    const connected = this.upstream.connected();
    this.end();
    if (connected) await this.cache.delete(this.options.key).catch(() => undefined);
  }

  /** The page goes: whatever comes of the connection, the beacon deletes the key. It may come back, so nothing ends here. */
  leaving(): void {
    if (!this.#ended && this.upstream.connected()) this.upstream.beacon(this.options.key);
  }

  end(): void {
    this.#ended = true;
    this.#cancel?.();
    this.#stopWatching();
    this.#members.clear();
    this.upstream.ended(this);
  }

  #seen(key: string, bytes: Uint8Array): void {
    const known = this.#members.has(key);
    const now = member(key, bytes);
    this.#members.set(key, now);
    this.emit(known ? "update" : "join", now);
    this.emit("change", this.members);
  }

  #left(key: string): void {
    if (!this.#members.delete(key)) return;
    this.emit("leave", { key });
    this.emit("change", this.members);
  }
}
