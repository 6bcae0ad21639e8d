/** A request as signing in makes it. Cookies go along only where that is said. */
export interface SignInRequest {
    readonly method?: string;
    readonly headers?: Record<string, string>;
    readonly body?: string;
    readonly credentials?: "same-origin";
    /** A redirect is not followed: its status is 0. */
    readonly redirect?: "manual";
}
/** The part of `sessionStorage` that is used. */
export interface SignInStorage {
    getItem(name: string): string | null;
    setItem(name: string, value: string): void;
    removeItem(name: string): void;
}
/** What signing in needs of the page; tests bring their own. */
export interface SignInPage {
    href(): string;
    /** Another address in the bar, without loading it. */
    replace(path: string): void;
    /** Leaves for another page. */
    go(url: string): void;
    readonly storage: SignInStorage;
    fetch(url: string, init: SignInRequest): Promise<{
        status: number;
        body: unknown;
    }>;
    random(bytes: number): Uint8Array;
    sha256(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array>;
    /** Milliseconds since 1970. */
    now(): number;
}
export declare function browserPage(): SignInPage;
/** 256 random bits as text. */
export declare function randomText(page: SignInPage): string;
/** The S256 challenge of a verifier. */
export declare function digest(page: SignInPage, verifier: string): Promise<string>;
