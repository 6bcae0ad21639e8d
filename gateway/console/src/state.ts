/** What the whole page knows: who asks, whether he edits, and what the counters were. */

import type { Me, Stream } from "./types.js";

type Listener = () => void;

class State {
  me: Me | null = null;
  /** The person's own switch. It is off on every load: nobody writes by accident. */
  editing = false;
  private readonly listeners = new Set<Listener>();

  get mayWrite(): boolean {
    return this.editing && this.me?.writable === true;
  }

  setEditing(on: boolean): void {
    this.editing = on && this.me?.writable === true;
    for (const listener of this.listeners) listener();
  }

  /** Tells when editing was switched, until the signal aborts. */
  onEditing(listener: Listener, signal: AbortSignal): void {
    this.listeners.add(listener);
    signal.addEventListener("abort", () => this.listeners.delete(listener), { once: true });
  }
}

export const state = new State();

export interface Point {
  at: number;
  value: number;
}

/** Points kept of one line: five minutes at one every two seconds. */
const POINTS_MAX = 150;

/** A line that grows at its end. */
export class Series {
  readonly points: Point[] = [];

  push(at: number, value: number): void {
    this.points.push({ at, value });
    if (this.points.length > POINTS_MAX) this.points.shift();
  }

  get last(): number | null {
    return this.points.at(-1)?.value ?? null;
  }
}

interface Watched {
  incarnation: number;
  at: number;
  end: number;
  bytes: number;
  records: Series;
}

/** Rates from counters that were polled. It outlives views, so that a picture does not begin anew with each of them. */
class Rates {
  private readonly streams = new Map<string, Watched>();
  private readonly totals = new Map<string, Series>();
  readonly shards = new Map<string, Series>();
  private readonly ends = new Map<string, { at: number; end: number }>();

  /** Takes in a listing of a namespace. */
  take(namespace: string, streams: readonly Stream[], at: number): void {
    let sum = 0;
    let known = false;
    for (const stream of streams) {
      const name = `${namespace}/${stream.stream}`;
      const end = stream.shards.reduce((all, shard) => all + shard.end, 0);
      const bytes = stream.shards.reduce((all, shard) => all + shard.bytes, 0);
      const before = this.streams.get(name);
      const same = before !== undefined && before.incarnation === stream.incarnation && at > before.at;
      const records = before?.incarnation === stream.incarnation ? before.records : new Series();
      if (same) {
        const rate = Math.max(0, end - before.end) / ((at - before.at) / 1000);
        records.push(at, rate);
        sum += rate;
        known = true;
      }
      if (before === undefined || before.incarnation !== stream.incarnation || at > before.at) {
        this.streams.set(name, { incarnation: stream.incarnation, at, end, bytes, records });
      }
      for (const shard of stream.shards) this.shard(`${name}#${shard.shard}`, shard.end, at);
    }
    if (known) {
      const total = this.totals.get(namespace) ?? new Series();
      total.push(at, sum);
      this.totals.set(namespace, total);
    }
  }

  private shard(name: string, end: number, at: number): void {
    const before = this.ends.get(name);
    if (before !== undefined && at > before.at) {
      const series = this.shards.get(name) ?? new Series();
      series.push(at, Math.max(0, end - before.end) / ((at - before.at) / 1000));
      this.shards.set(name, series);
    }
    this.ends.set(name, { at, end });
  }

  of(namespace: string, stream: string): Series {
    return this.streams.get(`${namespace}/${stream}`)?.records ?? new Series();
  }

  ofShard(namespace: string, stream: string, shard: number): Series {
    return this.shards.get(`${namespace}/${stream}#${shard}`) ?? new Series();
  }

  total(namespace: string): Series {
    return this.totals.get(namespace) ?? new Series();
  }

  forget(): void {
    for (const map of [this.streams, this.totals, this.shards, this.ends]) map.clear();
  }
}

export const rates = new Rates();

const lags = new Map<string, Series>();

/** The lag of a group over time, by any name. */
export function lagSeries(name: string): Series {
  const series = lags.get(name) ?? new Series();
  lags.set(name, series);
  return series;
}

/** Forgets everything of whoever was here before. */
export function forgetAll(): void {
  rates.forget();
  lags.clear();
  state.me = null;
  state.setEditing(false);
}
