const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export function bytes(count) {
    let value = count;
    let unit = 0;
    while (value >= 1024 && unit < UNITS.length - 1) {
        value /= 1024;
        unit += 1;
    }
    const digits = unit === 0 || value >= 100 ? 0 : 1;
    return `${value.toFixed(digits)} ${UNITS[unit] ?? "B"}`;
}
export function count(value) {
    return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}
export function short(value) {
    const size = Math.abs(value);
    if (size < 10 && size !== Math.round(size))
        return value.toFixed(1);
    if (size < 1000)
        return String(Math.round(value));
    for (const [scale, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
        if (size >= scale)
            return `${(value / scale).toFixed(size / scale < 100 ? 1 : 0)}${unit}`;
    }
    return String(value);
}
export function rate(perSecond) {
    return perSecond === null ? "–" : `${short(perSecond)}/s`;
}
export function duration(ms) {
    const parts = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];
    for (const [size, unit] of parts) {
        if (ms >= size) {
            const value = ms / size;
            return `${value < 10 && value !== Math.round(value) ? value.toFixed(1) : Math.round(value)} ${unit}`;
        }
    }
    return `${Math.round(ms)} ms`;
}
export function time(ms) {
    if (ms === null || ms <= 0)
        return "–";
    const at = new Date(ms);
    const two = (value) => String(value).padStart(2, "0");
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}
export function relative(ms, now = Date.now()) {
    const distance = ms - now;
    const text = duration(Math.abs(distance));
    return distance >= 0 ? `in ${text}` : `${text} ago`;
}
export function plural(value, noun) {
    return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}
