/**
 * A gateway in memory, for tests of applications: the protocol with its errors, offsets and expiries, a clock that a test
 * moves, and the faults (`stop`, `silent`, `cut`, `goAway`). Not for anything but tests: it checks no token.
 */
export { FakeGateway } from "./gateway.js";
export { FakeHost, ManualClock, settle } from "./clock.js";
export { FakeCache, FakeRoom, FakeStream } from "./store.js";
