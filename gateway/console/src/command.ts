/** The same thing on the command line: every view and every action can be done with felixctl. */

import { h, icon, ICONS } from "./dom.js";
import { toast } from "./overlay.js";

/** A word of a POSIX shell. */
export function quote(word: string): string {
  if (/^[A-Za-z0-9_./:=@%+,-]+$/.test(word)) return word;
  return `'${word.replace(/'/g, "'\\''")}'`;
}

/** An option of a command, with its value if it has one. */
export interface Option {
  readonly option: string;
  readonly value: string | number | null;
}

export function option(name: string, value: string | number | null = null): Option {
  return { option: name, value };
}

/** A value that begins with a dash would be taken for another option, so it is tied to its own. */
function written({ option: name, value }: Option): string {
  if (value === null) return name;
  const word = quote(String(value));
  return String(value).startsWith("-") ? `${name}=${word}` : `${name} ${word}`;
}

/**
 * A line for a shell. Words that are null are left out; the namespace is said when it is not the default one. What begins
 * with a dash and is no option goes to the end, after `--`, with all that follow it.
 */
export function felixctl(namespace: string | null, ...words: (string | number | null | Option)[]): string {
  const line = ["felixctl"];
  const last: string[] = [];
  for (const word of words) {
    if (word === null) continue;
    if (typeof word === "object") line.push(written(word));
    else (last.length > 0 || String(word).startsWith("-") ? last : line).push(quote(String(word)));
  }
  if (namespace !== null && namespace !== "default") line.push(written(option("-n", namespace)));
  if (last.length > 0) line.push("--", ...last);
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
