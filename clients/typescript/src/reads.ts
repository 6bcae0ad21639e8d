/** Reads that change nothing: a range of a log, the state that commits wrote, the offset of a time. Asked again after a cut. */
import { expect } from "./cache.js";
import { FelixError } from "./errors.js";
import type { Answer } from "./protocol.js";
import type { Requests } from "./requests.js";

export interface ReadRecord {
  readonly offset: number;
  readonly bytes: Uint8Array;
}

/** Records in their order; `nextOffset` is where the next read begins. */
export interface Page {
  readonly records: readonly ReadRecord[];
  readonly nextOffset: number;
}

export interface ReadOptions {
  /** First offset wanted. */
  readonly from: number;
  /** First offset not wanted. */
  readonly end?: number;
  /** Records at most; the broker's own bound when absent. */
  readonly max?: number;
  readonly signal?: AbortSignal;
}

/** State under one key, and the commit that wrote it. */
export interface StateValue {
  readonly bytes: Uint8Array | null;
  readonly version: number | null;
  readonly asOf: number | null;
}

export class Reads {
  constructor(
    private readonly requests: Requests,
    private readonly has: (feature: string) => boolean,
  ) {}

  readonly read = (stream: string, options: ReadOptions): Promise<Page> =>
    this.#ask("read", "records", stream, { from: options.from, end: options.end, max: options.max ?? 0 }, options.signal, (answer) => ({
      records: answer.records.map(({ offset, payload }) => ({ offset, bytes: payload })),
      nextOffset: answer.nextOffset,
    }));

  readonly state = (stream: string, key: string, options: { entity?: string; signal?: AbortSignal } = {}): Promise<StateValue> =>
    this.#ask("state_get", "state_value", stream, { key, entity: options.entity }, options.signal, (answer) => ({
      bytes: answer.payload, version: answer.version, asOf: answer.asOf,
    }), "state");

  readonly offsetForTime = (stream: string, at: Date, options: { signal?: AbortSignal } = {}): Promise<number | null> =>
    this.#ask("offset_for_time", "offset", stream, { at_us: at.getTime() * 1000 }, options.signal, (answer) => answer.offset, "time");

  #ask<Type extends Answer["type"], T>(
    type: string, answered: Type, stream: string, fields: object, signal: AbortSignal | undefined,
    take: (answer: Extract<Answer, { type: Type }>) => T, feature = type,
  ): Promise<T> {
    return this.requests.ask({
      name: `${type} ${stream}`, bytes: 128, read: true, answered: true,
      frame: (id) => {
        if (!this.has(feature)) throw new FelixError("unsupported", `this gateway did not grant \`${feature}\``);
        return JSON.stringify({ type, stream, ...fields, id });
      },
      take: (answer) => take(expect(answer, answered)),
    }, signal);
  }
}
