import type { Payload } from "./bytes.js";
import type { Cache } from "./cache.js";
import { asyncDispose } from "./dispose.js";
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
    leave: {
        readonly key: string;
    };
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
export declare class Presence extends Emitter<PresenceEvents> {
    #private;
    private readonly cache;
    private readonly options;
    private readonly upstream;
    constructor(cache: Cache, options: PresenceOptions, upstream: PresenceUpstream);
    /** Everybody here, this member too, in the order of their keys. */
    get members(): readonly Member[];
    /** Changes this member's data. */
    update(data: Payload): void;
    /** Says that we are here: now, and again before the entry expires. Called by the client at each new connection. */
    enter(): void;
    /** Says good-bye over the connection and ends this object. */
    leave(): Promise<void>;
    [asyncDispose](): Promise<void>;
    /** The page goes: whatever comes of the connection, the beacon deletes the key. It may come back, so nothing ends here. */
    leaving(): void;
    end(): void;
}
