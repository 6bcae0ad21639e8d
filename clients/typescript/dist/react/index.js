/** Hooks. React is the application's own; this entry only borrows it. */
import { createContext, createElement, useCallback, useContext, useEffect, useMemo, useState, useSyncExternalStore } from "react";
import { cacheStore, presenceStore, stateStore, streamStore } from "./stores.js";
const Context = createContext(null);
/** Gives `client` to the hooks below it. Who made the client closes it. */
export function FelixProvider(props) {
    return createElement(Context.Provider, { value: props.client }, props.children);
}
function useClient() {
    const client = useContext(Context);
    if (client === null)
        throw new TypeError("there is no <FelixProvider> above this component");
    return client;
}
/** The client and its state, kept up to date. */
export function useFelix() {
    const client = useClient();
    const states = useMemo(() => stateStore(client), [client]);
    return { client, state: useSyncExternalStore(states.subscribe, states.snapshot, states.snapshot) };
}
/** The newest records of a stream (the last `keep`, 1,000 when absent). Components that ask for the same share one subscription. */
export function useStream(stream, options = {}) {
    const client = useClient();
    const { from = "live", keep = 1_000 } = options;
    const view = useMemo(() => streamStore(client, stream, from, keep), [client, stream, from, keep]);
    return useSyncExternalStore(view.subscribe, view.snapshot, view.snapshot);
}
/** All entries of a cache, watched. */
export function useCache(alias) {
    const client = useClient();
    const entries = useMemo(() => cacheStore(client, alias), [client, alias]);
    return useSyncExternalStore(entries.subscribe, entries.snapshot, entries.snapshot);
}
/** Enters as `key` while the component is mounted, and gives everybody who is there. */
export function usePresence(alias, key, data) {
    const client = useClient();
    const text = JSON.stringify(data);
    // The first data enters; later data is an update, not a new member.
    const [first] = useState(data);
    const members = useMemo(() => presenceStore(client, alias, key, first), [client, alias, key, first]);
    useEffect(() => members.update(JSON.parse(text)), [members, text]);
    return useSyncExternalStore(members.subscribe, members.snapshot, members.snapshot);
}
/** A sum: `null` until `add` was answered (`add(0)` asks). */
export function useCounter(alias, key) {
    const client = useClient();
    const [value, setValue] = useState(null);
    const add = useCallback(async (delta = 1) => {
        const sum = await client.counter(alias).add(key, delta);
        setValue(sum);
        return sum;
    }, [client, alias, key]);
    return { value, add };
}
