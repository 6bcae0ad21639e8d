class State {
    me = null;
    editing = false;
    listeners = new Set();
    get mayWrite() {
        return this.editing && this.me?.writable === true;
    }
    setEditing(on) {
        this.editing = on && this.me?.writable === true;
        for (const listener of this.listeners)
            listener();
    }
    onEditing(listener, signal) {
        this.listeners.add(listener);
        signal.addEventListener("abort", () => this.listeners.delete(listener), { once: true });
    }
}
export const state = new State();
const POINTS_MAX = 150;
export class Series {
    points = [];
    push(at, value) {
        this.points.push({ at, value });
        if (this.points.length > POINTS_MAX)
            this.points.shift();
    }
    get last() {
        return this.points.at(-1)?.value ?? null;
    }
}
class Rates {
    streams = new Map();
    totals = new Map();
    shards = new Map();
    ends = new Map();
    take(namespace, streams, at) {
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
            for (const shard of stream.shards)
                this.shard(`${name}#${shard.shard}`, shard.end, at);
        }
        if (known) {
            const total = this.totals.get(namespace) ?? new Series();
            total.push(at, sum);
            this.totals.set(namespace, total);
        }
    }
    shard(name, end, at) {
        const before = this.ends.get(name);
        if (before !== undefined && at > before.at) {
            const series = this.shards.get(name) ?? new Series();
            series.push(at, Math.max(0, end - before.end) / ((at - before.at) / 1000));
            this.shards.set(name, series);
        }
        this.ends.set(name, { at, end });
    }
    of(namespace, stream) {
        return this.streams.get(`${namespace}/${stream}`)?.records ?? new Series();
    }
    ofShard(namespace, stream, shard) {
        return this.shards.get(`${namespace}/${stream}#${shard}`) ?? new Series();
    }
    total(namespace) {
        return this.totals.get(namespace) ?? new Series();
    }
    forget() {
        for (const map of [this.streams, this.totals, this.shards, this.ends])
            map.clear();
    }
}
export const rates = new Rates();
const lags = new Map();
export function lagSeries(name) {
    const series = lags.get(name) ?? new Series();
    lags.set(name, series);
    return series;
}
export function forgetAll() {
    rates.forget();
    lags.clear();
    state.me = null;
    state.setEditing(false);
}
