/**
 * Snapshots: the board as of an offset, in chunks under keys of their own, and a head that names them. The head is
 * written under a condition, so of two pages that write at once one wins and the other takes its chunks away.
 */
import { RateLimitedError, text } from "../../../src/index.js";
import { Board } from "./board.js";
const HEAD = "head";
/** Bytes of one chunk: with the frame around it under every gateway's default limit of 64 KiB. */
const CHUNK_BYTES = 40_000;
/** Larger boards have no snapshot; joining them reads the log. */
const CHUNKS_MAX = 128;
const TRIES = 20;
function readHead(bytes) {
    try {
        const { rev, next, chunks, before } = JSON.parse(text(bytes));
        if (typeof rev !== "string" || !/^[A-Za-z0-9_-]{1,24}$/.test(rev) || !Number.isSafeInteger(next))
            return null;
        if (!Number.isSafeInteger(chunks) || chunks < 1 || chunks > CHUNKS_MAX)
            return null;
        return { rev, next: next, chunks: chunks, before: before ?? null };
    }
    catch {
        return null;
    }
}
function key(rev, chunk) {
    return `${rev}-${chunk}`;
}
async function patiently(write) {
    for (let left = TRIES;; left -= 1) {
        try {
            return await write();
        }
        catch (error) {
            if (!(error instanceof RateLimitedError) || left === 0)
                throw error;
            await new Promise((resolve) => setTimeout(resolve, error.retryAfterMs + 50));
        }
    }
}
/** The newest snapshot; `null` when there is none that is whole. */
export async function loadSnapshot(cache, signal) {
    const head = readHead((await cache.get(HEAD, { signal })) ?? new Uint8Array());
    if (head === null)
        return null;
    const chunks = await Promise.all(Array.from({ length: head.chunks }, (_, at) => cache.get(key(head.rev, at), { signal })));
    const whole = chunks.filter((chunk) => chunk !== null);
    if (whole.length !== head.chunks)
        return null;
    const bytes = new Uint8Array(whole.reduce((sum, chunk) => sum + chunk.length, 0));
    let at = 0;
    for (const chunk of whole) {
        bytes.set(chunk, at);
        at += chunk.length;
    }
    const board = Board.read(text(bytes));
    return board !== null && board.next === head.next ? board : null;
}
/** Where the newest snapshot stands; 0 without one. */
export async function snapshotOffset(cache) {
    return readHead((await cache.get(HEAD)) ?? new Uint8Array())?.next ?? 0;
}
/** Writes a snapshot unless there is one as new; whether it did. */
export async function storeSnapshot(cache, board, rev) {
    const bytes = new TextEncoder().encode(board.write());
    const { next } = board;
    const count = Math.ceil(bytes.length / CHUNK_BYTES);
    if (count > CHUNKS_MAX)
        return false;
    const held = await cache.getVersioned(HEAD);
    const head = held.bytes === null ? null : readHead(held.bytes);
    if (head !== null && head.next >= next)
        return false;
    for (let at = 0; at < count; at += 1) {
        await patiently(() => cache.putIf(key(rev, at), bytes.subarray(at * CHUNK_BYTES, (at + 1) * CHUNK_BYTES), "absent"));
    }
    const mine = { rev, next, chunks: count, before: head === null ? null : { rev: head.rev, chunks: head.chunks } };
    const condition = held.version === null || held.bytes === null ? "absent" : { version: held.version };
    const { applied } = await patiently(() => cache.putIf(HEAD, JSON.stringify(mine), condition));
    const gone = applied ? (head?.before ?? null) : { rev, chunks: count };
    for (let at = 0; gone !== null && at < Math.min(gone.chunks, CHUNKS_MAX); at += 1)
        await cache.delete(key(gone.rev, at));
    return applied;
}
