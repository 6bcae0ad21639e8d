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
  fetch(url: string, init: SignInRequest): Promise<{ status: number; body: unknown }>;
  random(bytes: number): Uint8Array;
  sha256(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array>;
  /** Milliseconds since 1970. */
  now(): number;
}

export function browserPage(): SignInPage {
  return {
    href: () => location.href,
    replace: (path) => history.replaceState(null, "", path),
    go: (url) => location.assign(url),
    storage: sessionStorage,
    async fetch(url, init) {
      const response = await fetch(url, { credentials: "omit", ...init, cache: "no-store", referrerPolicy: "no-referrer" });
      return { status: response.status, body: (await response.json().catch(() => ({}))) as unknown };
    },
    random: (bytes) => crypto.getRandomValues(new Uint8Array(bytes)),
    sha256: async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)),
    now: () => Date.now(),
  };
}

function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** 256 random bits as text. */
export function randomText(page: SignInPage): string {
  return base64url(page.random(32));
}

/** The S256 challenge of a verifier. */
export async function digest(page: SignInPage, verifier: string): Promise<string> {
  return base64url(await page.sha256(new TextEncoder().encode(verifier) as Uint8Array<ArrayBuffer>));
}
