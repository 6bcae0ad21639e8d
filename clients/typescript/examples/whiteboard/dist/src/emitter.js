/** Typed events: `on` answers with the function that ends the listening. */
export class Emitter {
    #listeners = new Map();
    /** Calls `listener` at each event of that name until the answer is called or `signal` aborts. */
    on(name, listener, options = {}) {
        const listeners = this.#listeners.get(name) ?? new Set();
        this.#listeners.set(name, listeners);
        // A listener of its own each time, so that one function may be registered twice.
        const own = (event) => listener(event);
        const off = () => void listeners.delete(own);
        if (options.signal?.aborted === true)
            return off;
        listeners.add(own);
        options.signal?.addEventListener("abort", off, { once: true });
        return off;
    }
    /** Tells everybody. A listener that throws does not keep the others from hearing: its error is thrown in a task of its own. */
    emit(name, event) {
        for (const listener of [...(this.#listeners.get(name) ?? [])]) {
            try {
                listener(event);
            }
            catch (error) {
                queueMicrotask(() => { throw error; });
            }
        }
    }
    clear() {
        this.#listeners.clear();
    }
}
