/** What the hooks show, without React: each store is shared by all who look at the same thing, and lives while one does. */
import type { FelixClient } from "../client.js";
import type { Member, Presence } from "../presence.js";
import type { Payload } from "../bytes.js";
import type { Event, SubscribeOptions, Subscription } from "../subscription.js";

/** A value that changes, in the shape of `useSyncExternalStore`. */
export interface Store<T> {
  readonly subscribe: (listener: () => void) => () => void;
  readonly snapshot: () => T;
}

/**
 * Starts with the first listener, stops with the last; listeners hear of many changes in one turn once. A client that is
 * closed takes what was shown along, for the next person on the page begins with nothing; when he connects it starts anew.
 */
export function store<T>(client: FelixClient, initial: T, start: (set: (change: (before: T) => T) => void) => () => void): Store<T> {
  const listeners = new Set<() => void>();
  let value = initial;
  let stop: (() => void) | null = null;
  let unlisten: (() => void) | null = null;
  let told = true;
  const begin = (): void => {
    // What an older start still has to say counts for nothing.
    let current = true;
    const end = start((change) => { if (current) set(change); });
    stop = () => {
      current = false;
      end();
    };
  };
  const halt = (): void => {
    stop?.();
    stop = null;
  };
  const follow = (): (() => void) => client.on("state", ({ from, to }) => {
    if (to === "closed") {
      halt();
      set(() => initial);
    } else if (from === "closed" && stop === null) begin();
  });
  const set = (change: (before: T) => T): void => {
    value = change(value);
    if (!told) return;
    told = false;
    queueMicrotask(() => {
      told = true;
      for (const listener of [...listeners]) listener();
    });
  };
  return {
    subscribe(listener) {
      const own = (): void => listener();
      listeners.add(own);
      unlisten ??= follow();
      if (stop === null && client.state !== "closed") begin();
      return () => {
        if (!listeners.delete(own) || listeners.size > 0) return;
        unlisten?.();
        unlisten = null;
        halt();
        value = initial;
      };
    },
    snapshot: () => value,
  };
}

const shared = new WeakMap<FelixClient, Map<string, unknown>>();

/** The one store of that name for this client. */
export function sharedStore<S>(client: FelixClient, name: string, make: () => S): S {
  const stores = shared.get(client) ?? new Map<string, unknown>();
  shared.set(client, stores);
  if (!stores.has(name)) stores.set(name, make());
  return stores.get(name) as S;
}

/** The newest records of a stream, and the error that ended it. */
export interface StreamView {
  readonly events: readonly Event[];
  readonly error: unknown;
}

export function streamStore(client: FelixClient, stream: string, from: NonNullable<SubscribeOptions["from"]>, keep: number): Store<StreamView> {
  return sharedStore(client, `stream ${stream} ${from} ${keep}`, () => store<StreamView>(client, { events: [], error: null }, (set) => {
    let subscription: Subscription;
    try {
      subscription = client.subscribe(stream, {
        from,
        onEvent: (event) => set(({ events, error }) => ({ events: [...events, event].slice(-keep), error })),
      });
    } catch (error) {
      // Another component asks for the same stream otherwise: shown, for an error thrown here takes the whole page down.
      set(({ events }) => ({ events, error }));
      return () => undefined;
    }
    // Nothing is iterated; the promise only says how it ends.
    subscription.next().then(undefined, (error: unknown) => set(({ events }) => ({ events, error })));
    return () => subscription.close();
  }));
}

export function cacheStore(client: FelixClient, alias: string): Store<ReadonlyMap<string, Uint8Array>> {
  return sharedStore(client, `cache ${alias}`, () => store<ReadonlyMap<string, Uint8Array>>(client, new Map(), (set) => {
    const cache = client.cache(alias);
    return cache.onChange(() => set(() => new Map(cache.entries)));
  }));
}

export interface PresenceStore extends Store<readonly Member[]> {
  update(data: Payload): void;
}

export function presenceStore(client: FelixClient, alias: string, key: string, data: Payload): PresenceStore {
  return sharedStore(client, `presence ${alias} ${key}`, () => {
    let current = data;
    let entered: Presence | null = null;
    const members = store<readonly Member[]>(client, [], (set) => {
      const presence = client.presence(alias, { key, data: current });
      entered = presence;
      const off = presence.on("change", (changed) => set(() => changed));
      return () => {
        off();
        entered = null;
        void presence.leave();
      };
    });
    return {
      ...members,
      update(changed: Payload): void {
        current = changed;
        entered?.update(changed);
      },
    };
  });
}

export function stateStore(client: FelixClient): Store<FelixClient["state"]> {
  return {
    subscribe: (listener) => client.on("state", () => listener()),
    snapshot: () => client.state,
  };
}
