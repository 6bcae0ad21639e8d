/**
 * Streams, caches, counters and presence of a Felix gateway, in browsers and in Node.
 *
 * Here live the client and what it is made of: a machine that decides (`machine.ts`, `position.ts`: pure) and shells that
 * carry out (`connection.ts`, `requests.ts`, `subscription.ts`). Never here: a dependency, a server, anything about how
 * people sign in (`sign-in/`), frameworks (`react/`) or tests of applications (`fake/`).
 *
 * Begin with `client.ts`.
 */
export { FelixClient, connect } from "./client.js";
export { asyncDispose } from "./dispose.js";
export { Cache } from "./cache.js";
export { Counter } from "./counter.js";
export { Presence } from "./presence.js";
export { Subscription } from "./subscription.js";
export { ClosedError, FelixError, OutcomeUnknownError, ProtocolError, RateLimitedError, RefusedError, TrimmedError, UnauthorizedError, UsageError, } from "./errors.js";
export { encode, fromBase64, json, text, toBase64, unstamp } from "./bytes.js";
export { browserHost } from "./host.js";
export { TIMING, idle, sends, step } from "./machine.js";
export { FEATURES } from "./protocol.js";
