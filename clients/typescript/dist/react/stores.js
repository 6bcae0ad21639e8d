/** Starts with the first listener, stops with the last; listeners hear of many changes in one turn once. */
export function store(initial, start) {
    const listeners = new Set();
    let value = initial;
    let stop = null;
    let told = true;
    const set = (change) => {
        value = change(value);
        if (!told)
            return;
        told = false;
        queueMicrotask(() => {
            told = true;
            for (const listener of [...listeners])
                listener();
        });
    };
    return {
        subscribe(listener) {
            const own = () => listener();
            listeners.add(own);
            stop ??= start(set);
            return () => {
                listeners.delete(own);
                if (listeners.size > 0)
                    return;
                stop?.();
                stop = null;
                value = initial;
            };
        },
        snapshot: () => value,
    };
}
const shared = new WeakMap();
/** The one store of that name for this client. */
export function sharedStore(client, name, make) {
    const stores = shared.get(client) ?? new Map();
    shared.set(client, stores);
    if (!stores.has(name))
        stores.set(name, make());
    return stores.get(name);
}
export function streamStore(client, stream, from, keep) {
    return sharedStore(client, `stream ${stream} ${from} ${keep}`, () => store({ events: [], error: null }, (set) => {
        const subscription = client.subscribe(stream, {
            from,
            onEvent: (event) => set(({ events, error }) => ({ events: [...events, event].slice(-keep), error })),
        });
        // Nothing is iterated; the promise only says how it ends.
        subscription.next().then(undefined, (error) => set(({ events }) => ({ events, error })));
        return () => subscription.close();
    }));
}
export function cacheStore(client, alias) {
    return sharedStore(client, `cache ${alias}`, () => store(new Map(), (set) => {
        const cache = client.cache(alias);
        return cache.onChange(() => set(() => new Map(cache.entries)));
    }));
}
export function presenceStore(client, alias, key, data) {
    return sharedStore(client, `presence ${alias} ${key}`, () => {
        let current = data;
        let entered = null;
        const members = store([], (set) => {
            const presence = client.presence(alias, { key, data: current });
            entered = presence;
            const off = presence.on("change", (changed) => set(() => changed));
            return () => {
                off();
                entered = null;
                void presence.leave();
            };
        });
        return {
            ...members,
            update(changed) {
                current = changed;
                entered?.update(changed);
            },
        };
    });
}
export function stateStore(client) {
    return {
        subscribe: (listener) => client.on("state", () => listener()),
        snapshot: () => client.state,
    };
}
