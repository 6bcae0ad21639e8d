/** Carries out what the machine decides: one socket at a time, one timer of each kind, one token for each try. */
import { FelixError, ProtocolError, UnauthorizedError } from "./errors.js";
import { readEvent } from "./frame.js";
import type { EventFrame } from "./frame.js";
import type { Host, SocketLike } from "./host.js";
import { idle, sends, step } from "./machine.js";
import type { Effect, Input, Machine, State, Timer, Timing, TokenReason } from "./machine.js";
import { readMessage } from "./protocol.js";
import type { Hello, Inbound, Refusal } from "./protocol.js";
import type { Tokens } from "./token.js";

/** The state, where it came from, and in `retryInMs` when the next try is due. */
export interface StateChange {
  readonly from: State;
  readonly to: State;
  readonly reason: string;
  readonly retryInMs: number | null;
}

/** What the connection tells its client. */
export interface Listener {
  ready(hello: Hello): void;
  message(message: Inbound): void;
  binary(event: EventFrame): void;
  /** What was sent and not answered never will be. */
  cut(): void;
  /** Nothing of this session may be kept. */
  forget(): void;
  state(change: StateChange): void;
  unauthorized(error: UnauthorizedError): void;
  goingAway(afterMs: number): void;
  failed(error: FelixError): void;
}

/** One message may not be larger than this many characters or bytes. */
const FRAME_MAX = 32 * 1024 * 1024;

export class Connection {
  #machine: Machine;
  #socket: SocketLike | null = null;
  #hello: Hello | null = null;
  #token: string | null = null;
  readonly #timers = new Map<Timer, () => void>();
  #unlisten: (() => void) | null = null;

  constructor(
    private readonly host: Host,
    private readonly tokens: Tokens,
    private readonly url: string,
    /** The text of `join` for a token. */
    private readonly join: (token: string | null) => string,
    private readonly listener: Listener,
    timing: Timing,
  ) {
    this.#machine = idle(tokens.kind, host.online(), timing);
  }

  get state(): State {
    return this.#machine.state;
  }

  /** What the gateway granted; `null` while there is no connection. */
  get hello(): Hello | null {
    return this.#hello;
  }

  get sends(): boolean {
    return sends(this.#machine);
  }

  get buffered(): number {
    return this.#socket?.bufferedAmount ?? 0;
  }

  has(feature: string): boolean {
    return this.#hello?.features.includes(feature) ?? false;
  }

  /** Every input goes through here; effects are carried out in their order. */
  input(input: Input): void {
    const taken = step(this.#machine, input, this.host.now(), this.host.random());
    this.#machine = taken.machine;
    for (const effect of taken.effects) this.#carryOut(effect);
  }

  connect(): void {
    this.#unlisten ??= this.host.listen((event) => {
      if (event === "online" || event === "offline" || event === "visible") this.input({ type: event });
      if (event === "returned") this.input({ type: "visible" });
    });
    this.input({ type: "connect" });
  }

  close(): void {
    this.#unlisten?.();
    this.#unlisten = null;
    this.input({ type: "close" });
  }

  tokenSet(): void {
    this.input({ type: "tokenSet", tokens: this.tokens.kind });
  }

  send(frame: string | Uint8Array<ArrayBuffer>): void {
    this.#socket?.send(frame);
  }

  #carryOut(effect: Effect): void {
    // A listener may have closed or reconnected meanwhile: what is left of that try is not begun any more.
    if ("attempt" in effect && effect.do !== "drop" && effect.attempt !== this.#machine.attempt) return;
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

  async #fetch(attempt: number, reason: TokenReason): Promise<void> {
    try {
      const token = await this.tokens.get(reason);
      if (attempt !== this.#machine.attempt) return;
      this.#token = token;
      this.input({ type: "token", attempt });
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      this.input({ type: "tokenFailed", attempt, final: error instanceof UnauthorizedError, message });
    }
  }

  /** A new token for the session that stands, where the gateway can take one. */
  #refresh(): void {
    if (this.has("refresh") && this.#token !== null) this.send(JSON.stringify({ type: "refresh", token: this.#token }));
  }

  #arm(timer: Timer, attempt: number, afterMs: number): void {
    this.#disarm(timer);
    this.#timers.set(timer, this.host.after(afterMs, () => {
      this.#timers.delete(timer);
      this.input({ type: "timer", timer, attempt });
    }));
  }

  #disarm(timer: Timer): void {
    this.#timers.get(timer)?.();
    this.#timers.delete(timer);
  }

  #drop(code: number, reason: string): void {
    const socket = this.#socket;
    this.#socket = null;
    if (socket === null) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    // A socket given up while it opens reports an error later; nobody may be left to throw it at.
    socket.onerror = () => undefined;
    socket.close(code, reason.replace(/[^\x20-\x7e]/g, "?"));
  }

  #open(attempt: number): void {
    let socket: SocketLike;
    try {
      socket = this.host.open(this.url);
    } catch (error) {
      return this.input({ type: "lost", attempt, code: 1006, reason: error instanceof Error ? error.message : String(error) });
    }
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.input({ type: "opened", attempt });
    socket.onmessage = (event: { data: unknown }) => this.#received(attempt, event.data);
    socket.onclose = (event: { code?: number; reason?: string }) => {
      this.input({ type: "lost", attempt, code: event.code ?? 1006, reason: event.reason ?? "" });
    };
    // An error is always followed by a close, which says what there is to say.
    socket.onerror = () => undefined;
  }

  #received(attempt: number, data: unknown): void {
    if (attempt !== this.#machine.attempt) return;
    this.input({ type: "heard", attempt });
    try {
      if (typeof data === "string") this.#text(attempt, data);
      else if (data instanceof ArrayBuffer && data.byteLength <= FRAME_MAX) this.listener.binary(readEvent(new Uint8Array(data)));
      else throw new ProtocolError("a frame that is neither text nor bytes, or too large");
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.listener.failed(error);
      this.input({ type: "malformed", attempt, message: error.message });
    }
  }

  #text(attempt: number, data: string): void {
    if (data.length > FRAME_MAX) throw new ProtocolError(`a text frame of ${data.length} characters`);
    const message = readMessage(data);
    if (message.type === "hello") {
      this.#hello = message;
      return this.input({ type: "hello", attempt, expiresInMs: message.features.includes("refresh") ? message.expiresInMs : null });
    }
    if (this.state === "connecting") {
      if (message.type !== "error") return;
      const { code, retryAfterMs } = message;
      return this.input({ type: "refused", attempt, code, message: message.message, retryAfterMs });
    }
    if (message.type === "going_away") return this.input({ type: "goingAway", attempt, afterMs: message.reconnectAfterMs });
    if (message.type === "refreshed") return this.input({ type: "refreshed", attempt, expiresInMs: message.expiresInMs });
    if (message.type === "error" && isOfRefresh(message)) {
      return this.input({ type: "refreshRefused", attempt, final: message.code === "signed_out" });
    }
    this.listener.message(message);
  }
}

/** A refusal that names nothing it is about, with a code that a token can be refused with. */
function isOfRefresh({ code, id, stream, cache }: Refusal): boolean {
  return (code === "signed_out" || code === "unavailable") && id === null && stream === null && cache === null;
}
