/** Carries out what the machine decides: one socket at a time, one timer of each kind, one token for each try. */
import { FelixError, ProtocolError, UnauthorizedError } from "./errors.js";
import { readEvent } from "./frame.js";
import { idle, sends, step } from "./machine.js";
import { readMessage } from "./protocol.js";
/** One message may not be larger than this many characters or bytes. */
const FRAME_MAX = 32 * 1024 * 1024;
export class Connection {
    host;
    tokens;
    url;
    join;
    listener;
    #machine;
    #socket = null;
    #hello = null;
    #token = null;
    #timers = new Map();
    #unlisten = null;
    constructor(host, tokens, url, 
    /** The text of `join` for a token. */
    join, listener, timing) {
        this.host = host;
        this.tokens = tokens;
        this.url = url;
        this.join = join;
        this.listener = listener;
        this.#machine = idle(tokens.kind, host.online(), timing);
    }
    get state() {
        return this.#machine.state;
    }
    /** What the gateway granted; `null` while there is no connection. */
    get hello() {
        return this.#hello;
    }
    get sends() {
        return sends(this.#machine);
    }
    get buffered() {
        return this.#socket?.bufferedAmount ?? 0;
    }
    has(feature) {
        return this.#hello?.features.includes(feature) ?? false;
    }
    /** Every input goes through here; effects are carried out in their order. */
    input(input) {
        const taken = step(this.#machine, input, this.host.now(), this.host.random());
        this.#machine = taken.machine;
        for (const effect of taken.effects)
            this.#carryOut(effect);
    }
    connect() {
        this.#unlisten ??= this.host.listen((event) => {
            if (event === "online" || event === "offline" || event === "visible")
                this.input({ type: event });
            if (event === "returned")
                this.input({ type: "visible" });
        });
        this.input({ type: "connect" });
    }
    close() {
        this.#unlisten?.();
        this.#unlisten = null;
        this.input({ type: "close" });
    }
    tokenSet() {
        this.input({ type: "tokenSet", tokens: this.tokens.kind });
    }
    send(frame) {
        this.#socket?.send(frame);
    }
    #carryOut(effect) {
        // A listener may have closed or reconnected meanwhile: what is left of that try is not begun any more.
        if ("attempt" in effect && effect.do !== "drop" && effect.attempt !== this.#machine.attempt)
            return;
        switch (effect.do) {
            case "token":
                return void this.#fetch(effect.attempt, effect.reason);
            case "open":
                return this.#open(effect.attempt);
            case "join":
                return this.send(this.join(this.#token));
            case "probe":
                // The answer to a type that no gateway knows is an error that costs nothing; any answer is a sign of life.
                return this.send('{"type":"ping"}');
            case "sendRefresh":
                return this.#refresh();
            case "drop":
                return this.#drop(effect.code, effect.reason);
            case "arm":
                return this.#arm(effect.timer, effect.attempt, effect.afterMs);
            case "disarm":
                return this.#disarm(effect.timer);
            case "cut":
                this.#hello = null;
                return this.listener.cut();
            case "forget":
                this.#token = null;
                return this.listener.forget();
            case "ready":
                return this.#hello === null ? undefined : this.listener.ready(this.#hello);
            case "state":
                return this.listener.state({ from: effect.from, to: effect.to, reason: effect.reason, retryInMs: effect.retryInMs });
            case "unauthorized":
                return this.listener.unauthorized(new UnauthorizedError(effect.code, effect.message));
            case "goingAway":
                return this.listener.goingAway(effect.afterMs);
        }
    }
    async #fetch(attempt, reason) {
        try {
            const token = await this.tokens.get(reason);
            if (attempt !== this.#machine.attempt)
                return;
            this.#token = token;
            this.input({ type: "token", attempt });
        }
        catch (error) {
            const message = error instanceof Error ? error.message : String(error);
            this.input({ type: "tokenFailed", attempt, final: error instanceof UnauthorizedError, message });
        }
    }
    /** A new token for the session that stands, where the gateway can take one. */
    #refresh() {
        if (this.has("refresh") && this.#token !== null)
            this.send(JSON.stringify({ type: "refresh", token: this.#token }));
    }
    #arm(timer, attempt, afterMs) {
        this.#disarm(timer);
        this.#timers.set(timer, this.host.after(afterMs, () => {
            this.#timers.delete(timer);
            this.input({ type: "timer", timer, attempt });
        }));
    }
    #disarm(timer) {
        this.#timers.get(timer)?.();
        this.#timers.delete(timer);
    }
    #drop(code, reason) {
        const socket = this.#socket;
        this.#socket = null;
        if (socket === null)
            return;
        socket.onopen = socket.onmessage = socket.onclose = null;
        // A socket given up while it opens reports an error later; nobody may be left to throw it at.
        socket.onerror = () => undefined;
        socket.close(code, reason.replace(/[^\x20-\x7e]/g, "?"));
    }
    #open(attempt) {
        let socket;
        try {
            socket = this.host.open(this.url);
        }
        catch (error) {
            return this.input({ type: "lost", attempt, code: 1006, reason: error instanceof Error ? error.message : String(error) });
        }
        this.#socket = socket;
        socket.binaryType = "arraybuffer";
        socket.onopen = () => this.input({ type: "opened", attempt });
        socket.onmessage = (event) => this.#received(attempt, event.data);
        socket.onclose = (event) => {
            this.input({ type: "lost", attempt, code: event.code ?? 1006, reason: event.reason ?? "" });
        };
        // An error is always followed by a close, which says what there is to say.
        socket.onerror = () => undefined;
    }
    #received(attempt, data) {
        if (attempt !== this.#machine.attempt)
            return;
        this.input({ type: "heard", attempt });
        try {
            if (typeof data === "string")
                this.#text(attempt, data);
            else if (data instanceof ArrayBuffer && data.byteLength <= FRAME_MAX)
                this.listener.binary(readEvent(new Uint8Array(data)));
            else
                throw new ProtocolError("a frame that is neither text nor bytes, or too large");
        }
        catch (error) {
            if (!(error instanceof ProtocolError))
                throw error;
            this.listener.failed(error);
            this.input({ type: "malformed", attempt, message: error.message });
        }
    }
    #text(attempt, data) {
        if (data.length > FRAME_MAX)
            throw new ProtocolError(`a text frame of ${data.length} characters`);
        const message = readMessage(data);
        if (message.type === "hello") {
            this.#hello = message;
            return this.input({ type: "hello", attempt, expiresInMs: message.features.includes("refresh") ? message.expiresInMs : null });
        }
        if (this.state === "connecting") {
            if (message.type !== "error")
                return;
            const { code, retryAfterMs } = message;
            return this.input({ type: "refused", attempt, code, message: message.message, retryAfterMs });
        }
        if (message.type === "going_away")
            return this.input({ type: "goingAway", attempt, afterMs: message.reconnectAfterMs });
        if (message.type === "refreshed")
            return this.input({ type: "refreshed", attempt, expiresInMs: message.expiresInMs });
        if (message.type === "error" && isOfRefresh(message)) {
            return this.input({ type: "refreshRefused", attempt, final: message.code === "signed_out" });
        }
        this.listener.message(message);
    }
}
/** A refusal that names nothing it is about, with a code that a token can be refused with. */
function isOfRefresh({ code, id, stream, cache }) {
    return (code === "signed_out" || code === "unavailable") && id === null && stream === null && cache === null;
}
