/** Lets everything that is ready run: promises, and frames between client and fake gateway. */
export async function settle() {
    const { setImmediate } = globalThis;
    for (let turn = 0; turn < 3; turn += 1) {
        await new Promise((resolve) => (setImmediate === undefined ? setTimeout(resolve, 0) : setImmediate(resolve)));
    }
}
export class ManualClock {
    #now = 0;
    #order = 0;
    #timers = new Set();
    /** Milliseconds since the clock was made. */
    now() {
        return this.#now;
    }
    /** How many timers wait. */
    get waiting() {
        return this.#timers.size;
    }
    after(ms, callback) {
        const timer = { at: this.#now + Math.max(0, ms), order: this.#order++, callback };
        this.#timers.add(timer);
        return () => void this.#timers.delete(timer);
    }
    /** Lets `ms` pass: timers run in their order, and after each whatever it set going. */
    async advance(ms) {
        const until = this.#now + ms;
        await settle();
        for (let next = this.#next(until); next !== null; next = this.#next(until)) {
            this.#timers.delete(next);
            this.#now = Math.max(this.#now, next.at);
            next.callback();
            await settle();
        }
        this.#now = until;
    }
    /** Time passes and nothing runs, as in a tab or a machine that sleeps; what is overdue runs at the next `advance`. */
    sleep(ms) {
        this.#now += ms;
    }
    #next(until) {
        let first = null;
        for (const timer of this.#timers) {
            if (timer.at <= until && (first === null || timer.at < first.at || (timer.at === first.at && timer.order < first.order)))
                first = timer;
        }
        return first;
    }
}
/** A `Host` for tests: pass it as `host`. */
export class FakeHost {
    clock;
    peer;
    #online = true;
    #listeners = new Set();
    #random;
    constructor(clock, peer, 
    /** Seed of the random delays. */
    seed = 1) {
        this.clock = clock;
        this.peer = peer;
        this.#random = seed;
    }
    now() {
        return this.clock.now();
    }
    /** The clock begins at the year 2026. */
    wallClock() {
        return 1_767_225_600_000 + this.clock.now();
    }
    after(ms, callback) {
        return this.clock.after(ms, callback);
    }
    random() {
        this.#random = (Math.imul(this.#random, 1_664_525) + 1_013_904_223) >>> 0;
        return this.#random / 2 ** 32;
    }
    open(url) {
        return this.peer.open(url);
    }
    online() {
        return this.#online;
    }
    listen(callback) {
        this.#listeners.add(callback);
        return () => void this.#listeners.delete(callback);
    }
    beacon(_url, body) {
        return this.peer.beacon(body);
    }
    /** Tells the page's listeners. */
    page(event) {
        if (event === "online" || event === "offline")
            this.#online = event === "online";
        for (const listener of [...this.#listeners])
            listener(event);
    }
}
