/** What the hooks show, without React: each store is shared by all who look at the same thing, and lives while one does. */
import type { FelixClient } from "../client.js";
import type { Member } from "../presence.js";
import type { Payload } from "../bytes.js";
import type { Event, SubscribeOptions } from "../subscription.js";
/** A value that changes, in the shape of `useSyncExternalStore`. */
export interface Store<T> {
    readonly subscribe: (listener: () => void) => () => void;
    readonly snapshot: () => T;
}
/**
 * Starts with the first listener, stops with the last; listeners hear of many changes in one turn once. A client that is
 * closed takes what was shown along, for the next person on the page begins with nothing; when he connects it starts anew.
 */
export declare function store<T>(client: FelixClient, initial: T, start: (set: (change: (before: T) => T) => void) => () => void): Store<T>;
/** The one store of that name for this client. */
export declare function sharedStore<S>(client: FelixClient, name: string, make: () => S): S;
/** The newest records of a stream, and the error that ended it. */
export interface StreamView {
    readonly events: readonly Event[];
    readonly error: unknown;
}
export declare function streamStore(client: FelixClient, stream: string, from: NonNullable<SubscribeOptions["from"]>, keep: number): Store<StreamView>;
export declare function cacheStore(client: FelixClient, alias: string): Store<ReadonlyMap<string, Uint8Array>>;
export interface PresenceStore extends Store<readonly Member[]> {
    update(data: Payload): void;
}
export declare function presenceStore(client: FelixClient, alias: string, key: string, data: Payload): PresenceStore;
export declare function stateStore(client: FelixClient): Store<FelixClient["state"]>;
