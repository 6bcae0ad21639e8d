/** Numbers and times for people. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit] ?? "B"}`;
}

/** With thin spaces between thousands. */
export function count(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** Short, for labels: 12.3k. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size < 10 && size !== Math.round(size)) return value.toFixed(1);
  if (size < 1000) return String(Math.round(value));
  for (const [scale, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (size >= scale) return `${(value / scale).toFixed(size / scale < 100 ? 1 : 0)}${unit}`;
  }
  return String(value);
}

export function rate(perSecond: number | null): string {
  return perSecond === null ? "–" : `${short(perSecond)}/s`;
}

export function duration(ms: number): string {
  const parts: [number, string][] = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];
  for (const [size, unit] of parts) {
    if (ms >= size) {
      const value = ms / size;
      return `${value < 10 && value !== Math.round(value) ? value.toFixed(1) : Math.round(value)} ${unit}`;
    }
  }
  return `${Math.round(ms)} ms`;
}

/** Local time to the millisecond, sortable by eye. */
export function time(ms: number | null): string {
  if (ms === null || ms <= 0) return "–";
  const at = new Date(ms);
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** How long ago, or until when. */
export function relative(ms: number, now: number = Date.now()): string {
  const distance = ms - now;
  const text = duration(Math.abs(distance));
  return distance >= 0 ? `in ${text}` : `${text} ago`;
}

export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}
