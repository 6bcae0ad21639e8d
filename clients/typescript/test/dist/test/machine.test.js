import assert from "node:assert/strict";
import { test } from "node:test";
import { TIMING, idle, sends, step } from "@felix/web";
/** Drives a machine by hand: time and dice are arguments. */
class Drive {
    machine;
    now = 1_000;
    random = 0.5;
    effects = [];
    constructor(tokens = "provider", online = true) {
        this.machine = idle(tokens, online);
    }
    /** One input; inputs about the newest try may leave the number out. */
    put(input) {
        const full = { attempt: this.machine.attempt, ...input };
        const { machine, effects } = step(this.machine, full, this.now, this.random);
        this.machine = machine;
        this.effects = [...effects];
        return this.effects;
    }
    get did() {
        return this.effects.map((effect) => (effect.do === "arm" || effect.do === "disarm" ? `${effect.do} ${effect.timer}` : effect.do));
    }
    armed(timer) {
        const effect = this.effects.find((one) => one.do === "arm" && one.timer === timer);
        return effect?.do === "arm" ? effect.afterMs : undefined;
    }
    connect(expiresInMs = null) {
        this.put({ type: "connect" });
        this.put({ type: "token" });
        this.put({ type: "opened" });
        this.put({ type: "hello", expiresInMs });
        assert.equal(this.machine.state, "connected");
        return this;
    }
    lose(code = 1006) {
        this.put({ type: "lost", code, reason: "" });
        return this;
    }
}
function inState(state, tokens = "provider") {
    const drive = new Drive(tokens);
    if (state === "idle")
        return drive;
    if (state === "connecting")
        drive.put({ type: "connect" });
    if (state === "connected")
        drive.connect();
    if (state === "waiting")
        drive.connect().lose();
    if (state === "suspended") {
        drive.connect().lose();
        drive.put({ type: "offline" });
    }
    if (state === "closed")
        drive.put({ type: "close" });
    if (state === "unauthorized") {
        drive.put({ type: "connect" });
        drive.put({ type: "token" });
        drive.put({ type: "refused", code: "forbidden", message: "no", retryAfterMs: null });
    }
    assert.equal(drive.machine.state, state);
    return drive;
}
const STATES = ["idle", "connecting", "connected", "waiting", "suspended", "closed", "unauthorized"];
test("connecting asks for a token, opens, joins, and stands with hello", () => {
    const drive = new Drive();
    drive.put({ type: "connect" });
    assert.deepEqual(drive.effects.find((effect) => effect.do === "token"), { do: "token", attempt: 1, reason: "connect" });
    drive.put({ type: "token" });
    assert.deepEqual(drive.did, ["arm open", "open"]);
    drive.put({ type: "opened" });
    assert.deepEqual(drive.did, ["join"]);
    drive.put({ type: "hello", expiresInMs: null });
    assert.deepEqual(drive.did, ["disarm open", "arm heartbeat", "state", "ready"]);
    assert.ok(sends(drive.machine));
});
test("each input leads from each state to the state that the table says", () => {
    const table = {
        connect: { idle: "connecting", closed: "connecting", waiting: "connecting", suspended: "connecting", unauthorized: "connecting" },
        close: { idle: "closed", connecting: "closed", connected: "closed", waiting: "closed", suspended: "closed", unauthorized: "closed" },
        online: { waiting: "connecting", suspended: "connecting" },
        visible: { waiting: "connecting", suspended: "connecting" },
        offline: { waiting: "suspended" },
        tokenSet: { connecting: "connecting", unauthorized: "idle" },
        token: {},
        opened: {},
        hello: { connecting: "connected" },
        heard: {},
        refreshed: {},
        refreshRefused: {},
        goingAway: {},
        lost: { connecting: "waiting", connected: "waiting" },
        malformed: { connecting: "waiting", connected: "waiting" },
        refused: { connecting: "unauthorized" },
        tokenFailed: { connecting: "unauthorized" },
        "timer retry": { waiting: "connecting", suspended: "connecting" },
        "timer open": { connecting: "waiting" },
        "timer heartbeat": {},
        "timer refresh": {},
        "timer depart": {},
    };
    const fields = {
        tokenSet: { tokens: "static" },
        hello: { expiresInMs: null },
        refreshed: { expiresInMs: 1000 },
        lost: { code: 1006, reason: "" },
        malformed: { message: "x" },
        refused: { code: "forbidden", message: "no", retryAfterMs: null },
        tokenFailed: { final: true, message: "no" },
        goingAway: { afterMs: 10 },
    };
    for (const [name, wanted] of Object.entries(table)) {
        for (const state of STATES) {
            const [type = "", timer] = name.split(" ");
            const drive = inState(state);
            drive.put({ type, ...fields[type], ...(timer === undefined ? {} : { timer }) });
            assert.equal(drive.machine.state, wanted[state] ?? state, `${name} in ${state}`);
            const told = drive.effects.filter((effect) => effect.do === "state");
            assert.equal(told.length, wanted[state] === undefined ? 0 : 1, `${name} in ${state} tells its change once`);
        }
    }
});
test("what belongs to an older try changes nothing", () => {
    for (const state of STATES) {
        for (const type of ["token", "opened", "hello", "heard", "lost", "refused", "malformed", "goingAway", "refreshed", "timer"]) {
            const drive = inState(state);
            const before = drive.machine;
            drive.put({ type, attempt: before.attempt - 1, timer: "retry", code: 4001, reason: "", expiresInMs: 1, afterMs: 1, message: "" });
            assert.equal(drive.machine, before);
            assert.deepEqual(drive.effects, []);
        }
    }
});
test("delays grow with failures, are random below a bound, and the bound is never passed", () => {
    const drive = new Drive().connect();
    drive.random = 0.999_999;
    let last = 0;
    for (let failure = 0; failure < 30; failure += 1) {
        drive.lose();
        const delay = drive.armed("retry") ?? -1;
        assert.ok(delay >= last && delay <= TIMING.backoffMaxMs, `${delay} after ${failure} failures`);
        last = delay;
        drive.put({ type: "timer", timer: "retry" });
        drive.put({ type: "token" });
    }
    assert.equal(last, TIMING.backoffMaxMs);
    drive.random = 0;
    drive.lose();
    assert.equal(drive.armed("retry"), 0);
});
test("a connection that stood long enough wipes out the failures before it, a short one does not", () => {
    const drive = new Drive().connect().lose();
    drive.put({ type: "timer", timer: "retry" });
    drive.put({ type: "token" });
    drive.put({ type: "hello", expiresInMs: null });
    drive.now += TIMING.stableMs - 1;
    drive.lose();
    assert.equal(drive.machine.failures, 2);
    drive.put({ type: "timer", timer: "retry" });
    drive.put({ type: "token" });
    drive.put({ type: "hello", expiresInMs: null });
    drive.now += TIMING.stableMs;
    drive.lose();
    assert.equal(drive.machine.failures, 1);
});
test("silence is answered by a probe, and silence after that by a new connection", () => {
    const drive = new Drive().connect();
    drive.now += TIMING.quietMs;
    drive.put({ type: "timer", timer: "heartbeat" });
    assert.deepEqual(drive.did, ["probe", "arm heartbeat"]);
    assert.equal(drive.armed("heartbeat"), TIMING.probeMs);
    drive.now += TIMING.probeMs;
    drive.put({ type: "timer", timer: "heartbeat" });
    assert.equal(drive.machine.state, "waiting");
    assert.ok(drive.did.includes("drop") && drive.did.includes("cut"));
});
test("any message is a sign of life and puts the probe off", () => {
    const drive = new Drive().connect();
    drive.now += TIMING.quietMs - 1;
    drive.put({ type: "heard" });
    drive.now += 1;
    drive.put({ type: "timer", timer: "heartbeat" });
    assert.deepEqual(drive.did, ["arm heartbeat"]);
    assert.equal(drive.armed("heartbeat"), TIMING.quietMs - 1);
});
test("a heartbeat that is long overdue ran in a page that slept, and is given less time", () => {
    const drive = new Drive().connect();
    drive.now += 3 * TIMING.quietMs;
    drive.put({ type: "timer", timer: "heartbeat" });
    assert.equal(drive.armed("heartbeat"), TIMING.wakeProbeMs);
});
test("waking up and losing the network probe a connection that stands instead of trusting it", () => {
    for (const type of ["visible", "online", "offline"]) {
        const drive = new Drive().connect();
        drive.put({ type });
        assert.deepEqual(drive.did, ["probe", "arm heartbeat"], type);
        assert.equal(drive.armed("heartbeat"), TIMING.wakeProbeMs);
    }
});
test("without a network a lost connection waits for it, and looks now and then all the same", () => {
    const drive = new Drive().connect();
    drive.put({ type: "offline" });
    drive.lose();
    assert.equal(drive.machine.state, "suspended");
    assert.equal(drive.armed("retry"), TIMING.suspendedMs);
    drive.put({ type: "online" });
    assert.equal(drive.machine.state, "connecting");
});
test("a try that hangs since before the network came back is begun anew", () => {
    const drive = new Drive();
    drive.put({ type: "connect" });
    drive.put({ type: "token" });
    drive.now += TIMING.wakeProbeMs + 1;
    drive.put({ type: "online" });
    assert.equal(drive.machine.attempt, 2);
    assert.ok(drive.did.includes("drop") && drive.did.includes("token"));
});
test("a refused token of a provider is renewed once, then it is over", () => {
    const drive = new Drive("provider");
    drive.put({ type: "connect" });
    drive.put({ type: "token" });
    drive.put({ type: "refused", code: "signed_out", message: "expired", retryAfterMs: null });
    assert.deepEqual(drive.effects.find((effect) => effect.do === "token"), { do: "token", attempt: 2, reason: "rejected" });
    drive.put({ type: "token" });
    drive.put({ type: "refused", code: "signed_out", message: "expired", retryAfterMs: null });
    assert.equal(drive.machine.state, "unauthorized");
    assert.equal(drive.effects.filter((effect) => effect.do === "unauthorized").length, 1);
});
test("a refused static token, or a refused cookie, is the end at once", () => {
    for (const tokens of ["static", "cookie"]) {
        const drive = new Drive(tokens);
        drive.put({ type: "connect" });
        drive.put({ type: "token" });
        drive.put({ type: "refused", code: "signed_out", message: "expired", retryAfterMs: null });
        assert.equal(drive.machine.state, "unauthorized");
    }
});
test("a session ended by the gateway asks a provider for another token, and a static one is over", () => {
    const provider = new Drive("provider").connect().lose(4001);
    assert.deepEqual(provider.effects.find((effect) => effect.do === "token"), { do: "token", attempt: 2, reason: "rejected" });
    assert.equal(new Drive("static").connect().lose(4001).machine.state, "unauthorized");
});
test("a gateway that is not available, or says when to come back, is tried again no sooner", () => {
    const drive = new Drive();
    drive.random = 0;
    drive.put({ type: "connect" });
    drive.put({ type: "token" });
    drive.put({ type: "refused", code: "rate_limited", message: "later", retryAfterMs: 7_000 });
    assert.equal(drive.machine.state, "waiting");
    assert.equal(drive.armed("retry"), 7_000);
});
test("a token function that fails for now is tried again, one that says never is the end", () => {
    const drive = new Drive();
    drive.put({ type: "connect" });
    drive.put({ type: "tokenFailed", final: false, message: "network" });
    assert.equal(drive.machine.state, "waiting");
});
test("going away holds writes back, waits for answers, then leaves and comes back when it was told", () => {
    const drive = new Drive().connect();
    drive.put({ type: "goingAway", afterMs: 2_000 });
    assert.ok(!sends(drive.machine));
    assert.equal(drive.armed("depart"), TIMING.departMs);
    drive.random = 0;
    drive.put({ type: "timer", timer: "depart" });
    assert.equal(drive.machine.state, "waiting");
    assert.equal(drive.armed("retry"), 2_000);
    drive.put({ type: "timer", timer: "retry" });
    assert.equal(drive.machine.departing, null);
});
test("the refresh of a session comes at two thirds of its life, for providers only", () => {
    const drive = new Drive("provider");
    drive.put({ type: "connect" });
    drive.put({ type: "token" });
    drive.put({ type: "hello", expiresInMs: 900_000 });
    assert.equal(drive.armed("refresh"), 600_000);
    drive.put({ type: "timer", timer: "refresh" });
    assert.deepEqual(drive.effects, [{ do: "token", attempt: 1, reason: "refresh" }]);
    drive.put({ type: "token" });
    assert.deepEqual(drive.did, ["sendRefresh"]);
    drive.put({ type: "refreshed", expiresInMs: 300_000 });
    assert.equal(drive.armed("refresh"), 200_000);
    const fixed = new Drive("static");
    fixed.put({ type: "connect" });
    fixed.put({ type: "token" });
    fixed.put({ type: "hello", expiresInMs: 900_000 });
    assert.equal(fixed.armed("refresh"), undefined);
});
test("a refresh that is refused asks once for another token", () => {
    const drive = new Drive().connect();
    drive.put({ type: "refreshRefused", final: true });
    assert.deepEqual(drive.effects, [{ do: "token", attempt: 1, reason: "rejected" }]);
    drive.put({ type: "refreshRefused", final: true });
    assert.equal(drive.machine.state, "connecting", "and is then tried on a connection of its own");
    drive.put({ type: "token" });
    drive.put({ type: "refused", code: "signed_out", message: "", retryAfterMs: null });
    assert.equal(drive.machine.state, "unauthorized");
});
test("a token that was set and is another person's is tried on a connection of its own", () => {
    const drive = new Drive("static").connect();
    drive.put({ type: "tokenSet", tokens: "static" });
    drive.put({ type: "token" });
    assert.deepEqual(drive.did, ["sendRefresh"]);
    drive.put({ type: "refreshRefused", final: true });
    assert.equal(drive.machine.state, "connecting");
    assert.ok(drive.did.includes("drop"), "nothing more is sent as the person before");
});
test("a refresh that nobody could judge is tried again on the connection that stands", () => {
    for (const tokens of ["static", "provider"]) {
        const drive = new Drive(tokens).connect();
        drive.put({ type: "refreshRefused", final: false });
        assert.equal(drive.armed("refresh"), TIMING.probeMs);
        drive.put({ type: "timer", timer: "refresh" });
        drive.put({ type: "token" });
        assert.deepEqual(drive.did, ["sendRefresh"]);
    }
});
test("closing stops every timer, cuts, forgets, and whatever comes later is ignored", () => {
    const drive = new Drive().connect();
    const { attempt } = drive.machine;
    drive.put({ type: "close" });
    assert.deepEqual(drive.did, [
        "disarm open", "disarm retry", "disarm heartbeat", "disarm refresh", "disarm depart", "drop", "cut", "forget", "state",
    ]);
    drive.put({ type: "timer", timer: "retry", attempt });
    drive.put({ type: "hello", attempt, expiresInMs: null });
    assert.equal(drive.machine.state, "closed");
});
test("no sequence of inputs breaks the machine: one socket at a time, and timers only of the newest try", () => {
    const inputs = [
        { type: "connect" }, { type: "close" }, { type: "online" }, { type: "offline" }, { type: "visible" }, { type: "tokenSet", tokens: "provider" },
        { type: "token" }, { type: "opened" }, { type: "hello", expiresInMs: 60_000 }, { type: "heard" }, { type: "lost", code: 1006, reason: "" },
        { type: "lost", code: 4001, reason: "" }, { type: "malformed", message: "x" }, { type: "goingAway", afterMs: 5 },
        { type: "refused", code: "signed_out", message: "", retryAfterMs: null }, { type: "refused", code: "unavailable", message: "", retryAfterMs: 9 },
        { type: "tokenFailed", final: false, message: "" }, { type: "refreshed", expiresInMs: 10 }, { type: "refreshRefused", final: true },
        ...["open", "retry", "heartbeat", "refresh", "depart"].map((timer) => ({ type: "timer", timer })),
    ];
    let seed = 7;
    const dice = (below) => {
        seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
        return Math.floor((seed / 2 ** 32) * below);
    };
    for (let run = 0; run < 200; run += 1) {
        const drive = new Drive();
        let open = false;
        for (let turn = 0; turn < 200; turn += 1) {
            drive.now += dice(20_000);
            for (const effect of drive.put(inputs[dice(inputs.length)])) {
                if (effect.do === "open") {
                    assert.ok(!open, "a second socket was opened beside one that stands");
                    open = true;
                }
                if (effect.do === "drop")
                    open = false;
                if (effect.do === "arm")
                    assert.equal(effect.attempt, drive.machine.attempt);
            }
            const { state } = drive.machine;
            if (!["connecting", "connected"].includes(state))
                assert.ok(!open, `a socket is left in ${state}`);
        }
    }
});
