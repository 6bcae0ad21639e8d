/** Who is here and where they point: presence by an expiring cache, cursors and strokes under way by a stream in memory. */
import { json, unstamp } from "../../../src/index.js";
import { readEdit, writeEdit } from "./edits.js";
import { ALIAS, randomId } from "./room.js";
/** Milliseconds between two positions of one cursor, and after which a still one fades. */
const EVERY_MS = 50;
export const FADES_AFTER_MS = 8_000;
/** Strokes under way are shown to others up to this many points. */
const SKETCH_POINTS = 900;
/** Cursors that are kept; of tabs that went without a word the one that was still for longest goes first. */
const CURSORS_MAX = 200;
const COLORS = ["#e8590c", "#2f9e44", "#1c7ed6", "#9c36b5", "#c2255c", "#0c8599", "#e67700", "#5f3dc4", "#087f5b", "#a61e4d"];
/** A colour for a person: the same everywhere. */
export function colorOf(name) {
    let hash = 0x811c_9dc5;
    for (const letter of name)
        hash = Math.imul(hash ^ (letter.codePointAt(0) ?? 0), 0x0100_0193);
    return COLORS[((hash ^ (hash >>> 15)) >>> 0) % COLORS.length] ?? "#1c7ed6";
}
export function initials(name) {
    const words = name.split(/[\s._@-]+/u).filter((word) => word !== "");
    const letters = words.length > 1 ? [words[0], words.at(-1)] : [words[0]];
    return letters.map((word) => [...(word ?? "?")][0] ?? "?").join("").toUpperCase();
}
export class People {
    client;
    name;
    changed;
    moved;
    tab = randomId();
    cursors = new Map();
    #presence;
    #ending = new AbortController();
    #everybody = [];
    #byTab = new Map();
    #sent = 0;
    #waiting = null;
    constructor(client, name, changed, moved) {
        this.client = client;
        this.name = name;
        this.changed = changed;
        this.moved = moved;
        this.#presence = client.presence(ALIAS.presence, { key: this.tab, data: { name, color: colorOf(name) } });
        this.#presence.on("change", () => {
            this.#read();
            this.changed();
        });
        this.#presence.on("leave", ({ key }) => {
            this.cursors.delete(key);
            this.moved();
        });
        client.subscribe(ALIAS.cursors, { signal: this.#ending.signal, onEvent: ({ bytes }) => this.#received(bytes) });
    }
    /** Everybody, this person first. */
    get everybody() {
        return this.#everybody;
    }
    person(tab) {
        return this.#byTab.get(tab);
    }
    /** Once for each change, and not for each cursor of each frame. */
    #read() {
        const people = this.#presence.members.map((member) => {
            const data = (member.json() ?? {});
            const name = typeof data.name === "string" ? data.name.slice(0, 60) : "somebody";
            const color = typeof data.color === "string" && /^#[0-9a-f]{6}$/i.test(data.color) ? data.color : colorOf(name);
            return { tab: member.key, name, color, me: member.key === this.tab };
        });
        this.#everybody = people.sort((a, b) => Number(b.me) - Number(a.me) || a.name.localeCompare(b.name));
        this.#byTab.clear();
        for (const person of people)
            this.#byTab.set(person.tab, person);
    }
    /** Where this person points, and what is being drawn. Sent at most every 50 ms, the last one always. */
    point(at, sketch) {
        if (this.client.state !== "connected")
            return;
        const waiting = this.#waiting !== null;
        this.#waiting = () => this.#send(at, sketch);
        if (waiting)
            return;
        setTimeout(() => {
            this.#waiting?.();
            this.#waiting = null;
        }, Math.max(0, this.#sent + EVERY_MS - performance.now()));
    }
    close() {
        this.#ending.abort(new Error("the board was left"));
        void this.#presence.leave();
    }
    #send(at, sketch) {
        if (this.client.state !== "connected")
            return;
        this.#sent = performance.now();
        const shown = sketch?.kind === "stroke" ? { ...sketch, points: sketch.points.slice(-3 * SKETCH_POINTS) } : sketch;
        const message = [this.tab, Math.round(at.x), Math.round(at.y), ...(shown === null ? [] : [writeEdit(shown)])];
        this.client.publish(ALIAS.cursors, message, { ack: false }).catch(() => undefined);
    }
    #received(bytes) {
        let value;
        try {
            value = json(unstamp(bytes)?.payload ?? bytes);
        }
        catch {
            return;
        }
        if (!Array.isArray(value))
            return;
        const [tab, x, y, sketch] = value;
        if (typeof tab !== "string" || tab === this.tab || !Number.isFinite(x) || !Number.isFinite(y))
            return;
        const edit = sketch === undefined ? null : readEdit(sketch);
        const drawn = edit?.kind === "stroke" || edit?.kind === "shape" ? edit : null;
        this.cursors.delete(tab);
        const [stillest] = this.cursors.keys();
        if (this.cursors.size >= CURSORS_MAX && stillest !== undefined)
            this.cursors.delete(stillest);
        this.cursors.set(tab, { tab, at: { x: x, y: y }, seen: performance.now(), sketch: drawn });
        this.moved();
    }
}
