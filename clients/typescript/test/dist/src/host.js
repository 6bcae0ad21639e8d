/** What the client needs of the world around it. Tests bring their own; `browserHost` is the real one. */
/** The longest delay that timers of browsers keep. */
const TIMER_MAX_MS = 0x7fff_ffff;
function listenToPage(callback) {
    const ending = new AbortController();
    const { signal } = ending;
    if (typeof globalThis.addEventListener === "function") {
        globalThis.addEventListener("online", () => callback("online"), { signal });
        globalThis.addEventListener("offline", () => callback("offline"), { signal });
        globalThis.addEventListener("pagehide", () => callback("leaving"), { signal });
        globalThis.addEventListener("pageshow", (event) => {
            if (event.persisted)
                callback("returned");
        }, { signal });
    }
    if (typeof document !== "undefined") {
        document.addEventListener("visibilitychange", () => {
            callback(document.visibilityState === "visible" ? "visible" : "hidden");
        }, { signal });
    }
    return () => ending.abort();
}
/** The browser's (or Node's) clock, timers, page events and sockets; `socket` replaces the built-in WebSocket. */
export function browserHost(socket) {
    return {
        now: () => performance.now(),
        wallClock: () => Date.now(),
        after(ms, callback) {
            const timer = setTimeout(callback, Math.min(ms, TIMER_MAX_MS));
            return () => clearTimeout(timer);
        },
        random: () => Math.random(),
        open(url) {
            const Socket = socket ?? globalThis.WebSocket;
            if (Socket === undefined)
                throw new TypeError("there is no WebSocket here; pass `webSocket` (in Node: the package `ws`)");
            return new Socket(url);
        },
        online: () => typeof navigator === "undefined" || navigator.onLine !== false,
        listen: listenToPage,
        beacon: (url, body) => typeof navigator !== "undefined" && typeof navigator.sendBeacon === "function" && navigator.sendBeacon(url, body),
    };
}
