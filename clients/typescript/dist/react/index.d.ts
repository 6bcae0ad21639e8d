import type { ReactElement, ReactNode } from "react";
import type { Payload } from "../bytes.js";
import type { FelixClient } from "../client.js";
import type { State } from "../machine.js";
import type { Member } from "../presence.js";
import type { SubscribeOptions } from "../subscription.js";
import type { StreamView } from "./stores.js";
export type { StreamView } from "./stores.js";
/** Gives `client` to the hooks below it. Who made the client closes it. */
export declare function FelixProvider(props: {
    readonly client: FelixClient;
    readonly children?: ReactNode;
}): ReactElement;
/** The client and its state, kept up to date. */
export declare function useFelix(): {
    readonly client: FelixClient;
    readonly state: State;
};
/** The newest records of a stream (the last `keep`, 1,000 when absent). Components that ask for the same share one subscription. */
export declare function useStream(stream: string, options?: {
    readonly from?: NonNullable<SubscribeOptions["from"]>;
    readonly keep?: number;
}): StreamView;
/** All entries of a cache, watched. */
export declare function useCache(alias: string): ReadonlyMap<string, Uint8Array>;
/** Enters as `key` while the component is mounted, and gives everybody who is there. */
export declare function usePresence(alias: string, key: string, data: Payload): readonly Member[];
/** A sum: `null` until `add` was answered (`add(0)` asks). */
export declare function useCounter(alias: string, key: string): {
    readonly value: number | null;
    readonly add: (delta?: number) => Promise<number>;
};
