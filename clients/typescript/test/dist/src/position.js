export function begin(from) {
    return { from, next: typeof from === "number" ? from : null, begun: false, gapAt: null };
}
/** What to ask the gateway for now. */
export function wanted(position) {
    if (position.next !== null)
        return position.next;
    return position.from === "earliest" && !position.begun ? 0 : "live";
}
/** The gateway's `subscribed`: the new position, and what an interruption amounted to when there was one. */
export function subscribed(position, startOffset, liveOffset) {
    const next = startOffset ?? null;
    const moved = { ...position, next, begun: true };
    if (!position.begun)
        return { position: moved, resynced: null };
    const missed = next !== null && liveOffset !== null ? Math.max(0, liveOffset - next) : null;
    return { position: moved, resynced: { from: next, to: liveOffset, missed } };
}
/** Decides about one event. */
export function judge(position, offset, skippedBefore) {
    if (offset === null)
        return { kind: "deliver", position, lost: skippedBefore };
    const after = { ...position, next: offset + 1, gapAt: null };
    if (position.next === null)
        return { kind: "deliver", position: after, lost: 0 };
    if (offset < position.next)
        return { kind: "duplicate" };
    const missing = offset - position.next - skippedBefore;
    if (missing <= 0)
        return { kind: "deliver", position: after, lost: 0 };
    if (position.gapAt === position.next)
        return { kind: "deliver", position: after, lost: missing };
    return { kind: "again", position: { ...position, gapAt: position.next } };
}
/** The oldest record that is left is the next one. */
export function trimmed(position, oldest) {
    return { ...position, next: oldest, gapAt: null };
}
