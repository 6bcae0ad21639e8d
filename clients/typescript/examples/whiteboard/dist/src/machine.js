/**
 * The connection as a machine: inputs and the time go in, a new machine and effects come out. Nothing here waits, opens
 * or rolls dice; `client.ts` carries the effects out. Each try to connect has a number, and whatever arrives with another
 * one is about a connection that is gone, and changes nothing.
 *
 *     idle --connect--> connecting --hello--> connected --lost--> waiting --retry--> connecting
 *                           |                                        |  ^
 *                           +--signed_out, forbidden--> unauthorized |  |
 *     (offline) waiting --offline--> suspended --online--> connecting +--+     any --close--> closed
 */
import { CLOSE } from "./protocol.js";
export const TIMING = {
    openMs: 15_000,
    quietMs: 10_000,
    probeMs: 5_000,
    wakeProbeMs: 2_000,
    backoffMs: 250,
    backoffMaxMs: 20_000,
    suspendedMs: 30_000,
    stableMs: 5_000,
    departMs: 3_000,
};
/** A session that lives shorter than a second is not renewed in a frenzy. */
const REFRESH_LEAST_MS = 1_000;
/** A machine that was never connected. */
export function idle(tokens, online, timing = TIMING) {
    return {
        state: "idle", timing, tokens, attempt: 0, fetching: false, failures: 0, online, since: 0, heardAt: 0,
        probing: false, renewed: false, departing: null,
    };
}
/** Whether requests may be sent now: not before `hello`, not to a gateway that said good-bye. */
export function sends(machine) {
    return machine.state === "connected" && machine.departing === null;
}
/** One input at the time `now`; `random` is at least 0 and under 1. */
export function step(machine, input, now, random) {
    if ("attempt" in input && input.attempt !== machine.attempt)
        return still(machine);
    switch (input.type) {
        case "connect":
            return connect(machine, now);
        case "close":
            return close(machine);
        case "tokenSet":
            return tokenSet(machine, input.tokens, now);
        case "online":
        case "visible":
            return wake({ ...machine, online: input.type === "online" || machine.online }, input.type, now);
        case "offline":
            return offline(machine);
        case "token":
            return tokenCame(machine);
        case "tokenFailed":
            return tokenFailed(machine, input, now, random);
        case "opened":
            return machine.state === "connecting" ? { machine, effects: [{ do: "join", attempt: machine.attempt }] } : still(machine);
        case "hello":
            return hello(machine, input.expiresInMs, now);
        case "heard":
            return still({ ...machine, heardAt: now, probing: false });
        case "refused":
            return refused(machine, input, now, random);
        case "lost":
            return lost(machine, input, now, random);
        case "malformed":
            return drop(machine, 1000, `protocol error: ${input.message}`, now, random);
        case "goingAway":
            return goingAway(machine, input.afterMs);
        case "refreshed":
            return machine.state === "connected" ? { machine, effects: refreshIn(machine, input.expiresInMs) } : still(machine);
        case "refreshRefused":
            return machine.state === "connected" ? refreshRefused(machine, input.final, now) : still(machine);
        case "timer":
            return timer(machine, input.timer, now, random);
    }
}
function still(machine) {
    return { machine, effects: [] };
}
function live(machine) {
    return machine.state === "connecting" || machine.state === "connected";
}
function move(machine, to, reason, retryInMs, effects) {
    const state = { do: "state", from: machine.state, to, reason, retryInMs };
    return { machine: { ...machine, state: to, probing: false, departing: null, fetching: false }, effects: [...effects, state] };
}
/** Everything that ends with a connection, in the order in which it must end. */
function leave(machine, code, reason) {
    const effects = [
        { do: "disarm", timer: "open" }, { do: "disarm", timer: "retry" }, { do: "disarm", timer: "heartbeat" },
        { do: "disarm", timer: "refresh" }, { do: "disarm", timer: "depart" },
    ];
    if (live(machine))
        effects.push({ do: "drop", attempt: machine.attempt, code, reason }, { do: "cut" });
    return effects;
}
function begin(machine, reason, now) {
    const attempt = machine.attempt + 1;
    const left = leave(machine, 1000, "connecting anew");
    const moved = move(machine, "connecting", reason, null, left);
    return {
        machine: { ...moved.machine, attempt, since: now, fetching: true },
        effects: [...moved.effects, { do: "token", attempt, reason }],
    };
}
function close(machine) {
    if (machine.state === "closed")
        return still(machine);
    const moved = move(machine, "closed", "closed", null, [...leave(machine, 1000, "closed"), { do: "forget" }]);
    // Whatever is still on its way (a token, a timer, a frame) belongs to a number that is gone.
    return { machine: { ...moved.machine, attempt: machine.attempt + 1, failures: 0, renewed: false }, effects: moved.effects };
}
/** Somebody asks for it: whoever waits tries now, and whoever was refused is asked for a token once more. */
function connect(machine, now) {
    if (live(machine) || (machine.state === "unauthorized" && machine.tokens === "static"))
        return still(machine);
    return begin({ ...machine, failures: 0 }, "connect", now);
}
function tokenSet(machine, tokens, now) {
    const renewed = { ...machine, tokens, renewed: false };
    if (machine.state === "unauthorized")
        return move({ ...renewed, failures: 0 }, "idle", "a token was set", null, []);
    if (machine.state === "connected") {
        return { machine: renewed, effects: [{ do: "token", attempt: machine.attempt, reason: "refresh" }] };
    }
    // What is on its way would come in under the token before.
    return machine.state === "connecting" ? begin(renewed, "connect", now) : still(renewed);
}
function wake(machine, reason, now) {
    if (machine.state === "waiting" || machine.state === "suspended")
        return begin({ ...machine, failures: 0 }, "reconnect", now);
    if (machine.state === "connected")
        return probe(machine, machine.timing.wakeProbeMs);
    // A try that began on the network before may hang until its deadline.
    if (machine.state === "connecting" && reason === "online" && !machine.fetching && now - machine.since > machine.timing.wakeProbeMs) {
        return begin(machine, "reconnect", now);
    }
    return still(machine);
}
function offline(machine) {
    const seen = { ...machine, online: false };
    if (machine.state === "connected")
        return probe(seen, machine.timing.wakeProbeMs);
    return machine.state === "waiting" ? suspend(seen, "the network is gone", []) : still(seen);
}
function suspend(machine, reason, effects) {
    const afterMs = machine.timing.suspendedMs;
    const armed = { do: "arm", timer: "retry", attempt: machine.attempt, afterMs };
    return move(machine, "suspended", reason, afterMs, [...effects, armed]);
}
function probe(machine, withinMs) {
    const { attempt } = machine;
    return {
        machine: { ...machine, probing: true },
        effects: [{ do: "probe", attempt }, { do: "arm", timer: "heartbeat", attempt, afterMs: withinMs }],
    };
}
function tokenCame(machine) {
    const { attempt } = machine;
    if (machine.state === "connected")
        return { machine, effects: [{ do: "sendRefresh", attempt }] };
    if (machine.state !== "connecting" || !machine.fetching)
        return still(machine);
    return {
        machine: { ...machine, fetching: false },
        effects: [{ do: "arm", timer: "open", attempt, afterMs: machine.timing.openMs }, { do: "open", attempt }],
    };
}
function tokenFailed(machine, input, now, random) {
    if (machine.state === "connected") {
        const afterMs = machine.timing.probeMs;
        return { machine, effects: [{ do: "arm", timer: "refresh", attempt: machine.attempt, afterMs }] };
    }
    if (machine.state !== "connecting" || !machine.fetching)
        return still(machine);
    return input.final ? unauthorized(machine, "no_token", input.message) : retry(machine, `no token: ${input.message}`, 0, [], now, random);
}
/** Whoever set the token means to be that person: what is refused on this connection is tried on one of its own. */
function refreshRefused(machine, final, now) {
    const { attempt } = machine;
    if (!final)
        return { machine, effects: [{ do: "arm", timer: "refresh", attempt, afterMs: machine.timing.probeMs }] };
    if (machine.tokens !== "provider" || machine.renewed)
        return begin(machine, "reconnect", now);
    return { machine: { ...machine, renewed: true }, effects: [{ do: "token", attempt, reason: "rejected" }] };
}
function hello(machine, expiresInMs, now) {
    if (machine.state !== "connecting")
        return still(machine);
    const { attempt } = machine;
    const heartbeat = { do: "arm", timer: "heartbeat", attempt, afterMs: machine.timing.quietMs };
    const moved = move(machine, "connected", "hello", null, [{ do: "disarm", timer: "open" }, heartbeat, ...refreshIn(machine, expiresInMs)]);
    return { machine: { ...moved.machine, since: now, heardAt: now }, effects: [...moved.effects, { do: "ready", attempt }] };
}
function refreshIn(machine, expiresInMs) {
    if (expiresInMs === null || machine.tokens !== "provider")
        return [];
    return [{ do: "arm", timer: "refresh", attempt: machine.attempt, afterMs: Math.max(REFRESH_LEAST_MS, Math.floor((expiresInMs * 2) / 3)) }];
}
function refused(machine, input, now, random) {
    if (machine.state !== "connecting")
        return still(machine);
    if (input.code === "signed_out")
        return rejected(machine, input.code, input.message, now);
    if (input.code === "unavailable" || input.code === "rate_limited") {
        return retry(machine, input.message, input.retryAfterMs ?? 0, leave(machine, 1000, "refused"), now, random);
    }
    return unauthorized(machine, input.code, input.message);
}
/** The token is not accepted: a provider may make one other, then it is over. */
function rejected(machine, code, message, now) {
    if (machine.tokens !== "provider" || machine.renewed)
        return unauthorized(machine, code, message);
    return begin({ ...machine, renewed: true }, "rejected", now);
}
function unauthorized(machine, code, message) {
    const moved = move(machine, "unauthorized", message, null, leave(machine, 1000, "unauthorized"));
    return {
        machine: { ...moved.machine, attempt: machine.attempt + 1, renewed: false },
        effects: [...moved.effects, { do: "unauthorized", code, message }],
    };
}
function lost(machine, input, now, random) {
    if (!live(machine))
        return still(machine);
    const steady = settled(machine, now);
    if (input.code === CLOSE.signedOut)
        return rejected(steady, "signed_out", input.reason || "the gateway ended the session", now);
    return drop(machine, 1000, input.reason || `the connection closed with ${input.code}`, now, random);
}
/** A machine whose failures are forgotten when the connection stood long enough. */
function settled(machine, now) {
    const stable = machine.state === "connected" && now - machine.since >= machine.timing.stableMs;
    return stable ? { ...machine, failures: 0, renewed: false } : machine;
}
function drop(machine, code, reason, now, random) {
    if (!live(machine))
        return still(machine);
    const steady = settled(machine, now);
    return retry(steady, reason, machine.departing ?? 0, leave(machine, code, reason.slice(0, 60)), now, random);
}
function retry(machine, reason, leastMs, effects, now, random) {
    const gone = { ...machine, attempt: machine.attempt + 1, failures: machine.failures + 1, since: now };
    if (!machine.online)
        return suspend(gone, reason, effects);
    const bound = Math.min(machine.timing.backoffMaxMs, machine.timing.backoffMs * 2 ** Math.min(machine.failures, 20));
    const afterMs = Math.round(leastMs + random * bound);
    return move(gone, "waiting", reason, afterMs, [...effects, { do: "arm", timer: "retry", attempt: gone.attempt, afterMs }]);
}
function goingAway(machine, afterMs) {
    if (machine.state !== "connected" || machine.departing !== null)
        return still(machine);
    const least = Math.min(afterMs, machine.timing.backoffMaxMs);
    return {
        machine: { ...machine, departing: least },
        effects: [
            { do: "goingAway", afterMs },
            { do: "arm", timer: "depart", attempt: machine.attempt, afterMs: machine.timing.departMs },
        ],
    };
}
function timer(machine, name, now, random) {
    const { attempt, timing } = machine;
    switch (name) {
        case "retry":
            return machine.state === "waiting" || machine.state === "suspended" ? begin(machine, "reconnect", now) : still(machine);
        case "open":
            return machine.state === "connecting" ? drop(machine, 1000, `no answer within ${timing.openMs} ms`, now, random) : still(machine);
        case "depart":
            return machine.departing === null ? still(machine) : drop(machine, 1000, "the gateway is going away", now, random);
        case "refresh":
            return machine.state === "connected" ? { machine, effects: [{ do: "token", attempt, reason: "refresh" }] } : still(machine);
        case "heartbeat":
            return machine.state === "connected" ? heartbeat(machine, now, random) : still(machine);
    }
}
function heartbeat(machine, now, random) {
    const { attempt, timing } = machine;
    if (machine.probing)
        return drop(machine, 1000, `the gateway was silent for ${Math.round(now - machine.heardAt)} ms`, now, random);
    const quiet = now - machine.heardAt;
    // A timer that is long overdue ran in a page that slept: the socket has probably not survived that.
    if (quiet >= timing.quietMs)
        return probe(machine, quiet >= 3 * timing.quietMs ? timing.wakeProbeMs : timing.probeMs);
    return { machine, effects: [{ do: "arm", timer: "heartbeat", attempt, afterMs: Math.ceil(timing.quietMs - quiet) }] };
}
