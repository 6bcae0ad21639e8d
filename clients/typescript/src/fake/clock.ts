/** A world whose time only passes when a test says so, and whose page events are called by name. */
import type { Host, PageEvent, SocketLike } from "../host.js";

interface Timer {
  readonly at: number;
  readonly order: number;
  readonly callback: () => void;
}

/** Lets everything that is ready run: promises, and frames between client and fake gateway. */
export async function settle(): Promise<void> {
  const { setImmediate } = globalThis as { setImmediate?: (callback: () => void) => void };
  for (let turn = 0; turn < 3; turn += 1) {
    await new Promise<void>((resolve) => (setImmediate === undefined ? setTimeout(resolve, 0) : setImmediate(resolve)));
  }
}

export class ManualClock {
  #now = 0;
  #order = 0;
  #timers = new Set<Timer>();

  /** Milliseconds since the clock was made. */
  now(): number {
    return this.#now;
  }

  /** How many timers wait. */
  get waiting(): number {
    return this.#timers.size;
  }

  after(ms: number, callback: () => void): () => void {
    const timer = { at: this.#now + Math.max(0, ms), order: this.#order++, callback };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** Lets `ms` pass: timers run in their order, and after each whatever it set going. */
  async advance(ms: number): Promise<void> {
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
  sleep(ms: number): void {
    this.#now += ms;
  }

  #next(until: number): Timer | null {
    let first: Timer | null = null;
    for (const timer of this.#timers) {
      if (timer.at <= until && (first === null || timer.at < first.at || (timer.at === first.at && timer.order < first.order))) first = timer;
    }
    return first;
  }
}

/** What a fake world opens sockets with and sends beacons to. */
export interface FakePeer {
  open(url: string): SocketLike;
  beacon(body: string): boolean;
}

/** A `Host` for tests: pass it as `host`. */
export class FakeHost implements Host {
  #online = true;
  readonly #listeners = new Set<(event: PageEvent) => void>();
  #random: number;

  constructor(
    readonly clock: ManualClock,
    private readonly peer: FakePeer,
    /** Seed of the random delays. */
    seed = 1,
  ) {
    this.#random = seed;
  }

  now(): number {
    return this.clock.now();
  }

  /** The clock begins at the year 2026. */
  wallClock(): number {
    return 1_767_225_600_000 + this.clock.now();
  }

  after(ms: number, callback: () => void): () => void {
    return this.clock.after(ms, callback);
  }

  random(): number {
    this.#random = (Math.imul(this.#random, 1_664_525) + 1_013_904_223) >>> 0;
    return this.#random / 2 ** 32;
  }

  open(url: string): SocketLike {
    return this.peer.open(url);
  }

  online(): boolean {
    return this.#online;
  }

  listen(callback: (event: PageEvent) => void): () => void {
    this.#listeners.add(callback);
    return () => void this.#listeners.delete(callback);
  }

  beacon(_url: string, body: string): boolean {
    return this.peer.beacon(body);
  }

  /** Tells the page's listeners. */
  page(event: PageEvent): void {
    if (event === "online" || event === "offline") this.#online = event === "online";
    for (const listener of [...this.#listeners]) listener(event);
  }
}
