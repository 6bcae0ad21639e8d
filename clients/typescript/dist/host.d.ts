/** What the client needs of the world around it. Tests bring their own; `browserHost` is the real one. */
/** The part of a WebSocket that is used; the browser's own and `ws` both have it. */
export interface SocketLike {
    binaryType: string;
    readonly bufferedAmount: number;
    onopen: ((event: never) => unknown) | null;
    onmessage: ((event: never) => unknown) | null;
    onclose: ((event: never) => unknown) | null;
    onerror: ((event: never) => unknown) | null;
    send(data: string | Uint8Array<ArrayBuffer>): void;
    close(code?: number, reason?: string): void;
}
/** A constructor of such sockets. */
export type SocketConstructor = new (url: string) => SocketLike;
/** What happens to the page. `leaving` may be its end; `returned` is a page taken back from the browser's memory. */
export type PageEvent = "online" | "offline" | "visible" | "hidden" | "leaving" | "returned";
export interface Host {
    /** Milliseconds that never go back while the page runs. */
    now(): number;
    /** Milliseconds since 1970, to read the end of a token's life. */
    wallClock(): number;
    /** Calls back once after `ms`; the answer cancels it. */
    after(ms: number, callback: () => void): () => void;
    /** At least 0 and under 1. */
    random(): number;
    open(url: string): SocketLike;
    online(): boolean;
    /** Calls back at each event of the page; the answer ends that. */
    listen(callback: (event: PageEvent) => void): () => void;
    /** Sends `body` even though the page is going; false when it cannot. */
    beacon(url: string, body: string): boolean;
}
/** The browser's (or Node's) clock, timers, page events and sockets; `socket` replaces the built-in WebSocket. */
export declare function browserHost(socket?: SocketConstructor): Host;
