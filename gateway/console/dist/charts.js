import { h, s } from "./dom.js";
import { short, time } from "./format.js";
export function spark(series, label) {
    const width = 120;
    const height = 26;
    const points = series.points.slice(-60);
    const top = Math.max(1e-9, ...points.map((point) => point.value));
    const step = width / 59;
    const first = 60 - points.length;
    const line = points
        .map((point, index) => `${((first + index) * step).toFixed(1)},${(height - 2 - (point.value / top) * (height - 5)).toFixed(1)}`)
        .join(" ");
    const begin = (first * step).toFixed(1);
    const area = points.length > 1 ? `${begin},${height - 1} ${line} ${width},${height - 1}` : "";
    return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, preserveAspectRatio: "none" }, s("line", { class: "axis", x1: 0, x2: width, y1: height - 1, y2: height - 1 }), area === "" ? null : s("polygon", { class: "area", points: area }), points.length > 1 ? s("polyline", { class: "line", points: line }) : null);
}
function nice(value) {
    if (value <= 0)
        return 1;
    const scale = 10 ** Math.floor(Math.log10(value));
    for (const step of [1, 2, 4, 5, 10])
        if (step * scale >= value)
            return step * scale;
    return 10 * scale;
}
export function chart(series, label, unit) {
    const [width, height, left, bottom] = [640, 180, 44, 22];
    const points = series.points;
    if (points.length < 2) {
        return h("div", { class: "chart-empty" }, "The picture grows while this page is open: the first points come in a few seconds.");
    }
    const until = points.at(-1)?.at ?? 0;
    const span = Math.max(60_000, until - (points[0]?.at ?? until));
    const top = nice(Math.max(...points.map((point) => point.value)));
    const x = (point) => left + (1 - (until - point.at) / span) * (width - left - 6);
    const y = (value) => 8 + (1 - value / top) * (height - bottom - 8);
    const line = points.map((point) => `${x(point).toFixed(1)},${y(point.value).toFixed(1)}`).join(" ");
    const first = points[0];
    const area = first === undefined ? "" : `${x(first).toFixed(1)},${y(0)} ${line} ${width - 6},${y(0)}`;
    const grid = [0, 0.25, 0.5, 0.75, 1].flatMap((part) => [
        s("line", { class: "grid", x1: left, x2: width - 6, y1: y(top * part), y2: y(top * part) }),
        s("text", { class: "tick", x: left - 6, y: y(top * part) + 4, "text-anchor": "end" }, short(top * part)),
    ]);
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => s("text", { class: "tick", x: left + part * (width - left - 6), y: height - 5, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, part === 1 ? "now" : `−${Math.round(((1 - part) * span) / 1000)} s`));
    const cursor = s("line", { class: "cursor", y1: 8, y2: y(0), x1: -9, x2: -9 });
    const dot = s("circle", { class: "dot", r: 3.5, cx: -9, cy: -9 });
    const readout = h("div", { class: "readout", "aria-live": "off" });
    const svg = s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, grid, ticks, s("polygon", { class: "area", points: area }), s("polyline", { class: "line", points: line }), cursor, dot);
    svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect();
        const at = ((event.clientX - box.left) / box.width) * width;
        let near = points[0];
        for (const point of points)
            if (near === undefined || Math.abs(x(point) - at) < Math.abs(x(near) - at))
                near = point;
        if (near === undefined)
            return;
        for (const end of ["x1", "x2"])
            cursor.setAttribute(end, x(near).toFixed(1));
        dot.setAttribute("cx", x(near).toFixed(1));
        dot.setAttribute("cy", y(near.value).toFixed(1));
        readout.textContent = `${short(near.value)} ${unit} · ${time(near.at).slice(11, 19)}`;
    });
    svg.addEventListener("pointerleave", () => {
        for (const end of ["x1", "x2"])
            cursor.setAttribute(end, "-9");
        dot.setAttribute("cx", "-9");
        readout.textContent = "";
    });
    return h("div", { class: "chart-box" }, svg, readout);
}
export function bars(rows, label) {
    const top = Math.max(1, ...rows.map((row) => row.value));
    return h("div", { class: "bars", role: "list", "aria-label": label }, rows.map((row) => h("div", { class: "bar-row", role: "listitem" }, row.href === undefined ? h("span", { class: "bar-name", title: row.name }, row.name) : h("a", { class: "bar-name", href: row.href, title: row.name }, row.name), meter(row.value / top, row.tone, `${row.name}: ${row.text}`), h("span", { class: "bar-text" }, row.text))));
}
export function meter(part, tone, label) {
    const share = Number.isFinite(part) ? Math.min(1, Math.max(0, part)) : 0;
    const width = share === 0 ? 0 : Math.max(1.5, share * 100);
    return s("svg", { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": label }, s("rect", { class: "track", x: 0, y: 0, width: 100, height: 8, rx: 1 }), s("rect", { class: `fill ${tone ?? ""}`, x: 0, y: 0, width: width.toFixed(2), height: 8, rx: 1 }));
}
export function track(start, end, at, target, label) {
    const span = Math.max(1, end - start);
    const place = (offset) => (4 + ((Math.min(end, Math.max(start, offset)) - start) / span) * 192).toFixed(1);
    return s("svg", { class: "track-line", viewBox: "0 0 200 18", role: "img", "aria-label": label }, s("rect", { class: "track", x: 4, y: 7, width: 192, height: 4, rx: 2 }), at === null ? null : s("rect", { class: "fill", x: 4, y: 7, width: Math.max(0, Number(place(at)) - 4), height: 4, rx: 2 }), at === null ? null : s("circle", { class: "now", cx: place(at), cy: 9, r: 4 }), target === null ? null : s("path", { class: "target", d: `M${place(target)} 1v16m-3 -13 3 -3 3 3` }));
}
