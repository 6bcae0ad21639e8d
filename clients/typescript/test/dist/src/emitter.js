import { guarded, onAbort } from "./errors.js";
/** Typed events: `on` answers with the function that ends the listening. */
export class Emitter {
    #listeners = new Map();
    /** Calls `listener` at each event of that name until the answer is called or `signal` aborts. */
    on(name, listener, options = {}) {
        const { signal } = options;
        if (signal?.aborted === true)
            return () => undefined;
        const listeners = this.#listeners.get(name) ?? new Set();
        this.#listeners.set(name, listeners);
        // A listener of its own each time, so that one function may be registered twice.
        const own = (event) => listener(event);
        const forget = onAbort(signal, () => void listeners.delete(own));
        listeners.add(own);
        return () => {
            listeners.delete(own);
            forget();
        };
    }
    /** Tells everybody. A listener that throws does not keep the others from hearing. */
    emit(name, event) {
        for (const listener of [...(this.#listeners.get(name) ?? [])])
            guarded(() => listener(event));
    }
    clear() {
        this.#listeners.clear();
    }
}
