/**
 * Edits that were not sent when a sign-in ended. They stay in this tab until the same person is back on the same board;
 * anybody else who signs in here finds nothing of them.
 */
import type { Edit } from "./edits.js";
import { readEdit, writeEdit } from "./edits.js";

const KEY = "felix.whiteboard.unsent";

interface Kept {
  readonly board: string;
  readonly subject: string;
  readonly edits: readonly unknown[];
}

/** Whether they are kept: a tab's storage is bounded. */
export function keepUnsent(board: string, subject: string, edits: readonly Edit[]): boolean {
  if (edits.length === 0) return true;
  const kept: Kept = { board, subject, edits: edits.map(writeEdit) };
  try {
    sessionStorage.setItem(KEY, JSON.stringify(kept));
    return true;
  } catch {
    return false;
  }
}

/** What this person had drawn on this board. */
export function takeUnsent(board: string, subject: string): readonly Edit[] {
  let kept: Partial<Kept>;
  try {
    kept = JSON.parse(sessionStorage.getItem(KEY) ?? "{}") as Partial<Kept>;
  } catch {
    kept = {};
  }
  if (kept.subject === subject && kept.board !== board) return [];
  sessionStorage.removeItem(KEY);
  if (kept.subject !== subject || !Array.isArray(kept.edits)) return [];
  return kept.edits.map(readEdit).filter((edit) => edit !== null);
}

export function forgetUnsent(): void {
  sessionStorage.removeItem(KEY);
}
