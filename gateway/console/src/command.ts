/** The same thing on the command line: every view and every action can be done with felixctl. */

import { h, icon, ICONS } from "./dom.js";
import { toast } from "./overlay.js";

/** A word of a POSIX shell. */
export function quote(word: string): string {
  if (word !== "" && /^[A-Za-z0-9_./:=@%+,-]+$/.test(word)) return word;
  return `'${word.replace(/'/g, "'\\''")}'`;
}

/** A line for a shell. Words that are null are left out; the namespace is said when it is not the default one. */
export function felixctl(namespace: string | null, ...words: (string | number | null)[]): string {
  const line = ["felixctl", ...words.filter((word) => word !== null).map((word) => quote(String(word)))];
  if (namespace !== null && namespace !== "default") line.push("-n", quote(namespace));
  return line.join(" ");
}

export async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} copied`);
  } catch {
    toast("the browser does not let this page copy; select the text instead", "bad");
  }
}

/** Shows a command with a button that copies it. `line` is asked when it is needed, so it is never out of date. */
export function commandLine(line: () => string): HTMLElement & { refresh(): void } {
  const text = h("code", { class: "command-text", tabindex: 0, "aria-label": "equivalent felixctl command" }, line());
  const button = h(
    "button",
    { class: "ghost small", type: "button", title: "Copy the felixctl command", "aria-label": "Copy the felixctl command", onclick: () => void copy(line(), "command") },
    icon(ICONS.copy),
  );
  const box = h("div", { class: "command" }, h("span", { class: "prompt", "aria-hidden": "true" }, "$"), text, button);
  return Object.assign(box, {
    refresh: () => {
      text.textContent = line();
    },
  });
}
