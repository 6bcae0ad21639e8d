/** Typed events: `on` answers with the function that ends the listening. */
export declare class Emitter<Events extends object> {
    #private;
    /** Calls `listener` at each event of that name until the answer is called or `signal` aborts. */
    on<Name extends keyof Events>(name: Name, listener: (event: Events[Name]) => void, options?: {
        signal?: AbortSignal;
    }): () => void;
    /** Tells everybody. A listener that throws does not keep the others from hearing. */
    emit<Name extends keyof Events>(name: Name, event: Events[Name]): void;
    clear(): void;
}
