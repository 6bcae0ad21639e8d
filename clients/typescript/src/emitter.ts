/** Typed events: `on` answers with the function that ends the listening. */
export class Emitter<Events extends object> {
  readonly #listeners = new Map<keyof Events, Set<(event: never) => void>>();

  /** Calls `listener` at each event of that name until the answer is called or `signal` aborts. */
  on<Name extends keyof Events>(name: Name, listener: (event: Events[Name]) => void, options: { signal?: AbortSignal } = {}): () => void {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners);
    // A listener of its own each time, so that one function may be registered twice.
    const own = (event: never): void => listener(event as Events[Name]);
    const off = (): void => void listeners.delete(own);
    if (options.signal?.aborted === true) return off;
    listeners.add(own);
    options.signal?.addEventListener("abort", off, { once: true });
    return off;
  }

  /** Tells everybody. A listener that throws does not keep the others from hearing: its error is thrown in a task of its own. */
  emit<Name extends keyof Events>(name: Name, event: Events[Name]): void {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      try {
        listener(event as never);
      } catch (error) {
        queueMicrotask(() => { throw error; });
      }
    }
  }

  clear(): void {
    this.#listeners.clear();
  }
}
