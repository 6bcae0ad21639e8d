export function browserPage() {
    return {
        href: () => location.href,
        replace: (path) => history.replaceState(null, "", path),
        go: (url) => location.assign(url),
        storage: sessionStorage,
        async fetch(url, init) {
            const response = await fetch(url, { credentials: "omit", ...init, cache: "no-store", referrerPolicy: "no-referrer" });
            return { status: response.status, body: (await response.json().catch(() => ({}))) };
        },
        random: (bytes) => crypto.getRandomValues(new Uint8Array(bytes)),
        sha256: async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)),
        now: () => Date.now(),
    };
}
function base64url(bytes) {
    return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
/** 256 random bits as text. */
export function randomText(page) {
    return base64url(page.random(32));
}
/** The S256 challenge of a verifier. */
export async function digest(page, verifier) {
    return base64url(await page.sha256(new TextEncoder().encode(verifier)));
}
