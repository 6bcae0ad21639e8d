import { readEdit, writeEdit } from "./edits.js";
const KEY = "felix.whiteboard.unsent";
/** Whether they are kept: a tab's storage is bounded. */
export function keepUnsent(board, subject, edits) {
    if (edits.length === 0)
        return true;
    const kept = { board, subject, edits: edits.map(writeEdit) };
    try {
        sessionStorage.setItem(KEY, JSON.stringify(kept));
        return true;
    }
    catch {
        return false;
    }
}
/** What this person had drawn on this board. */
export function takeUnsent(board, subject) {
    let kept;
    try {
        kept = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
    }
    catch {
        kept = {};
    }
    if (kept.subject === subject && kept.board !== board)
        return [];
    sessionStorage.removeItem(KEY);
    if (kept.subject !== subject || !Array.isArray(kept.edits))
        return [];
    return kept.edits.map(readEdit).filter((edit) => edit !== null);
}
export function forgetUnsent() {
    sessionStorage.removeItem(KEY);
}
