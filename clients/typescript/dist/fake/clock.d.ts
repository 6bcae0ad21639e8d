/** A world whose time only passes when a test says so, and whose page events are called by name. */
import type { Host, PageEvent, SocketLike } from "../host.js";
/** Lets everything that is ready run: promises, and frames between client and fake gateway. */
export declare function settle(): Promise<void>;
export declare class ManualClock {
    #private;
    /** Milliseconds since the clock was made. */
    now(): number;
    /** How many timers wait. */
    get waiting(): number;
    after(ms: number, callback: () => void): () => void;
    /** Lets `ms` pass: timers run in their order, and after each whatever it set going. */
    advance(ms: number): Promise<void>;
    /** Time passes and nothing runs, as in a tab or a machine that sleeps; what is overdue runs at the next `advance`. */
    sleep(ms: number): void;
}
/** What a fake world opens sockets with and sends beacons to. */
export interface FakePeer {
    open(url: string): SocketLike;
    beacon(body: string): boolean;
}
/** A `Host` for tests: pass it as `host`. */
export declare class FakeHost implements Host {
    #private;
    readonly clock: ManualClock;
    private readonly peer;
    constructor(clock: ManualClock, peer: FakePeer, 
    /** Seed of the random delays. */
    seed?: number);
    now(): number;
    /** The clock begins at the year 2026. */
    wallClock(): number;
    after(ms: number, callback: () => void): () => void;
    random(): number;
    open(url: string): SocketLike;
    online(): boolean;
    listen(callback: (event: PageEvent) => void): () => void;
    beacon(_url: string, body: string): boolean;
    /** Tells the page's listeners. */
    page(event: PageEvent): void;
}
