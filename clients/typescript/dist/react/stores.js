/**
 * Starts with the first listener, stops with the last; listeners hear of many changes in one turn once. A client that is
 * closed takes what was shown along, for the next person on the page begins with nothing; when he connects it starts anew.
 */
export function store(client, initial, start) {
    const listeners = new Set();
    let value = initial;
    let stop = null;
    let unlisten = null;
    let told = true;
    const begin = () => {
        // What an older start still has to say counts for nothing.
        let current = true;
        const end = start((change) => { if (current)
            set(change); });
        stop = () => {
            current = false;
            end();
        };
    };
    const halt = () => {
        stop?.();
        stop = null;
    };
    const follow = () => client.on("state", ({ from, to }) => {
        if (to === "closed") {
            halt();
            set(() => initial);
        }
        else if (from === "closed" && stop === null)
            begin();
    });
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
            unlisten ??= follow();
            if (stop === null && client.state !== "closed")
                begin();
            return () => {
                if (!listeners.delete(own) || listeners.size > 0)
                    return;
                unlisten?.();
                unlisten = null;
                halt();
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
    return sharedStore(client, `stream ${stream} ${from} ${keep}`, () => store(client, { events: [], error: null }, (set) => {
        let subscription;
        try {
            subscription = client.subscribe(stream, {
                from,
                onEvent: (event) => set(({ events, error }) => ({ events: [...events, event].slice(-keep), error })),
            });
        }
        catch (error) {
            // Another component asks for the same stream otherwise: shown, for an error thrown here takes the whole page down.
            set(({ events }) => ({ events, error }));
            return () => undefined;
        }
        // Nothing is iterated; the promise only says how it ends.
        subscription.next().then(undefined, (error) => set(({ events }) => ({ events, error })));
        return () => subscription.close();
    }));
}
export function cacheStore(client, alias) {
    return sharedStore(client, `cache ${alias}`, () => store(client, new Map(), (set) => {
        const cache = client.cache(alias);
        return cache.onChange(() => set(() => new Map(cache.entries)));
    }));
}
export function presenceStore(client, alias, key, data) {
    return sharedStore(client, `presence ${alias} ${key}`, () => {
        let current = data;
        let entered = null;
        const members = store(client, [], (set) => {
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
