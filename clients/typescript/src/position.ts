/**
 * Where a subscription stands: which offset it asks for next, which events are new, and what was lost. Pure, so that
 * "exactly once, in order" is decided in one place and tested without sockets.
 */
import type { From } from "./protocol.js";

/** The place of a subscription. `next` is the first offset not yet delivered; `null` while unknown or without a log. */
export interface Position {
  readonly from: From | "earliest";
  readonly next: number | null;
  /** Whether the gateway has said `subscribed` before. */
  readonly begun: boolean;
  /** A gap that one resubscription did not close. */
  readonly gapAt: number | null;
}

export type Judgement =
  | { readonly kind: "deliver"; readonly position: Position; readonly lost: number }
  | { readonly kind: "duplicate" }
  /** Offsets are missing that nobody announced: ask for them again. */
  | { readonly kind: "again"; readonly position: Position };

/** What came back after an interruption. `missed` is the number of offsets that passed meanwhile; a durable stream delivers them now. */
export interface Resynced {
  readonly from: number | null;
  readonly to: number | null;
  readonly missed: number | null;
}

export function begin(from: From | "earliest"): Position {
  return { from, next: typeof from === "number" ? from : null, begun: false, gapAt: null };
}

/** What to ask the gateway for now. */
export function wanted(position: Position): From {
  if (position.next !== null) return position.next;
  return position.from === "earliest" && !position.begun ? 0 : "live";
}

/** The gateway's `subscribed`: the new position, and what an interruption amounted to when there was one. */
export function subscribed(
  position: Position,
  startOffset: number | null,
  liveOffset: number | null,
): { readonly position: Position; readonly resynced: Resynced | null } {
  const next = startOffset ?? null;
  const moved = { ...position, next, begun: true };
  if (!position.begun) return { position: moved, resynced: null };
  const missed = next !== null && liveOffset !== null ? Math.max(0, liveOffset - next) : null;
  return { position: moved, resynced: { from: next, to: liveOffset, missed } };
}

/** Decides about one event. */
export function judge(position: Position, offset: number | null, skippedBefore: number): Judgement {
  if (offset === null) return { kind: "deliver", position, lost: skippedBefore };
  const after = { ...position, next: offset + 1, gapAt: null };
  if (position.next === null) return { kind: "deliver", position: after, lost: 0 };
  if (offset < position.next) return { kind: "duplicate" };
  const missing = offset - position.next - skippedBefore;
  if (missing <= 0) return { kind: "deliver", position: after, lost: 0 };
  if (position.gapAt === position.next) return { kind: "deliver", position: after, lost: missing };
  return { kind: "again", position: { ...position, gapAt: position.next } };
}

/** The oldest record that is left is the next one. */
export function trimmed(position: Position, oldest: number): Position {
  return { ...position, next: oldest, gapAt: null };
}
