import { grow, overlaps } from "./geometry.js";
import { PAPER, paint } from "./paint.js";
export const SCALE_MIN = 0.05;
export const SCALE_MAX = 8;
/** Screen pixels of ink around the window. */
const MARGIN = 200;
/** Milliseconds of one frame that go into drawing ink anew. */
const SLICE_MS = 7;
/** A camera that has not moved for so many milliseconds rests. */
const REST_MS = 120;
function contextOf(canvas) {
    const context = canvas.getContext("2d");
    if (context === null)
        throw new Error("this browser has no canvas");
    return context;
}
export class Surface {
    host;
    scene;
    camera = { x: 0, y: 0, scale: 1 };
    theme = "light";
    /** Draws what moves, in world pixels. */
    onLive = () => undefined;
    onCamera = () => undefined;
    #paper;
    #ink;
    #live;
    #front;
    #back;
    #job = null;
    #width = 1;
    #height = 1;
    #ratio = 1;
    #frame = 0;
    #movedAt = -Infinity;
    #stale = { paper: true, ink: true, live: true, picture: true };
    constructor(host, scene) {
        this.host = host;
        this.scene = scene;
        const layer = (name) => {
            const canvas = document.createElement("canvas");
            canvas.className = `layer ${name}`;
            canvas.setAttribute("aria-hidden", "true");
            host.append(canvas);
            return contextOf(canvas);
        };
        [this.#paper, this.#ink, this.#live] = [layer("paper"), layer("ink"), layer("live")];
        this.#front = this.#picture();
        this.#back = this.#picture();
        new ResizeObserver(() => this.#resize()).observe(host);
        this.#resize();
    }
    /** Screen pixels within the host. */
    get size() {
        return { width: this.#width, height: this.#height };
    }
    toWorld(x, y) {
        return { x: this.camera.x + x / this.camera.scale, y: this.camera.y + y / this.camera.scale };
    }
    toScreen(at) {
        return { x: (at.x - this.camera.x) * this.camera.scale, y: (at.y - this.camera.y) * this.camera.scale };
    }
    show(scene) {
        this.scene = scene;
        this.redraw();
    }
    look(camera) {
        const scale = Math.min(SCALE_MAX, Math.max(SCALE_MIN, camera.scale));
        this.camera = { x: camera.x, y: camera.y, scale };
        this.#movedAt = performance.now();
        this.#mark("paper", "ink", "live", "picture");
        this.onCamera(this.camera);
    }
    /** Zooms so that what is under the screen point stays there. */
    zoom(factor, x = this.#width / 2, y = this.#height / 2) {
        const scale = Math.min(SCALE_MAX, Math.max(SCALE_MIN, this.camera.scale * factor));
        const at = this.toWorld(x, y);
        this.look({ x: at.x - x / scale, y: at.y - y / scale, scale });
    }
    /** Shows the whole of a box. */
    fit(box) {
        if (box === null)
            return this.look({ x: -this.#width / 2, y: -this.#height / 2, scale: 1 });
        const scale = Math.min(1.5, Math.max(SCALE_MIN, 0.86 * Math.min(this.#width / (box.x1 - box.x0), this.#height / (box.y1 - box.y0))));
        const [cx, cy] = [(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2];
        this.look({ x: cx - this.#width / 2 / scale, y: cy - this.#height / 2 / scale, scale });
    }
    /** Something lies on top now: drawing it is all there is to do. */
    added(item) {
        if (!this.scene.isShown(item))
            return;
        this.#paintItem(this.#front, item);
        this.#job?.items.push(item);
        this.#mark("ink");
    }
    /** What is in these boxes looks different now. */
    damaged(boxes) {
        if (boxes.length > 64)
            return this.redraw();
        for (const box of boxes)
            this.#repaint(this.#front, box);
        // A picture that is being drawn may have these in it as they were.
        if (boxes.length > 0 && this.#job !== null)
            this.#again();
        this.#mark("ink");
    }
    redraw() {
        this.#again();
        this.#mark("paper", "ink", "live", "picture");
    }
    live() {
        this.#mark("live");
    }
    #picture() {
        const canvas = document.createElement("canvas");
        return { canvas, context: contextOf(canvas), camera: this.camera };
    }
    #resize() {
        const { width, height } = this.host.getBoundingClientRect();
        this.#ratio = Math.min(2, window.devicePixelRatio || 1);
        [this.#width, this.#height] = [Math.max(1, width), Math.max(1, height)];
        for (const { canvas } of [this.#paper, this.#ink, this.#live]) {
            canvas.width = Math.round(this.#width * this.#ratio);
            canvas.height = Math.round(this.#height * this.#ratio);
        }
        this.#front = this.#sized(this.#picture());
        this.#back = this.#sized(this.#picture());
        this.#job = null;
        // A window that is resized shows a picture at once, not an empty board.
        this.#begin();
        this.#work(Infinity);
        this.#stale.picture = false;
        this.#mark("paper", "ink", "live");
        this.#draw();
    }
    #sized(picture) {
        picture.canvas.width = Math.round((this.#width + 2 * MARGIN) * this.#ratio);
        picture.canvas.height = Math.round((this.#height + 2 * MARGIN) * this.#ratio);
        return picture;
    }
    #mark(...layers) {
        for (const layer of layers)
            this.#stale[layer] = true;
        this.#frame ||= requestAnimationFrame(() => {
            this.#frame = 0;
            // While the camera moves the old picture does, as long as it covers the window.
            const moves = performance.now() - this.#movedAt < REST_MS;
            if (this.#stale.picture && this.#job === null && !(moves && this.#covers())) {
                this.#stale.picture = false;
                this.#begin();
            }
            if (this.#job !== null && this.#work(SLICE_MS))
                this.#stale.ink = true;
            this.#draw();
            if (this.#job !== null || this.#stale.picture)
                this.#mark();
        });
    }
    /** The picture that is being drawn is of no use any more. */
    #again() {
        this.#job = null;
        this.#stale.picture = true;
        this.#movedAt = -Infinity;
    }
    #covers() {
        const has = this.#boxOf(this.#front.camera);
        const { x, y, scale } = this.camera;
        const wants = { x0: x, y0: y, x1: x + this.#width / scale, y1: y + this.#height / scale };
        return has.x0 <= wants.x0 && has.y0 <= wants.y0 && has.x1 >= wants.x1 && has.y1 >= wants.y1;
    }
    // ---- pictures of ink
    #transform(picture) {
        const { x, y, scale } = picture.camera;
        const k = scale * this.#ratio;
        picture.context.setTransform(k, 0, 0, k, (MARGIN - x * scale) * this.#ratio, (MARGIN - y * scale) * this.#ratio);
    }
    #boxOf(camera) {
        const margin = MARGIN / camera.scale;
        return grow({ x0: camera.x, y0: camera.y, x1: camera.x + this.#width / camera.scale, y1: camera.y + this.#height / camera.scale }, margin);
    }
    #begin() {
        const picture = this.#back;
        picture.camera = this.camera;
        picture.context.setTransform(1, 0, 0, 1, 0, 0);
        picture.context.clearRect(0, 0, picture.canvas.width, picture.canvas.height);
        this.#job = { picture, items: this.scene.find(this.#boxOf(this.camera)), at: 0 };
    }
    /** Goes on drawing for so many milliseconds; true when the picture is whole and shown. */
    #work(ms) {
        const job = this.#job;
        if (job === null)
            return false;
        const until = performance.now() + ms;
        this.#transform(job.picture);
        while (job.at < job.items.length) {
            for (const item of job.items.slice(job.at, job.at + 20))
                this.#paintItem(job.picture, item);
            job.at += 20;
            if (performance.now() > until)
                return false;
        }
        [this.#front, this.#back] = [job.picture, this.#front];
        this.#job = null;
        return true;
    }
    #paintItem(picture, item) {
        this.#transform(picture);
        const { x, y } = this.scene.offsetOf(item);
        picture.context.translate(x, y);
        paint(picture.context, item.edit, this.theme);
    }
    #repaint(picture, box) {
        const view = this.#boxOf(picture.camera);
        if (!overlaps(view, box))
            return;
        const { context } = picture;
        const around = grow(box, 2 / picture.camera.scale);
        context.save();
        this.#transform(picture);
        context.beginPath();
        context.rect(around.x0, around.y0, around.x1 - around.x0, around.y1 - around.y0);
        context.clip();
        context.clearRect(around.x0, around.y0, around.x1 - around.x0, around.y1 - around.y0);
        for (const item of this.scene.find(around))
            this.#paintItem(picture, item);
        context.restore();
    }
    // ---- what is shown
    #draw() {
        const stale = this.#stale;
        if (stale.paper)
            this.#drawPaper();
        if (stale.ink)
            this.#drawInk();
        if (stale.live)
            this.#drawLive();
        stale.paper = stale.ink = stale.live = false;
    }
    #drawPaper() {
        const context = this.#paper;
        const { paper, dots } = PAPER[this.theme];
        const { x, y, scale } = this.camera;
        context.setTransform(this.#ratio, 0, 0, this.#ratio, 0, 0);
        context.fillStyle = paper;
        context.fillRect(0, 0, this.#width, this.#height);
        let step = 24;
        while (step * scale < 18)
            step *= 4;
        while (step * scale > 72)
            step /= 4;
        context.fillStyle = dots;
        const left = Math.floor(x / step) * step;
        const top = Math.floor(y / step) * step;
        for (let wx = left; (wx - x) * scale < this.#width; wx += step) {
            for (let wy = top; (wy - y) * scale < this.#height; wy += step)
                context.fillRect((wx - x) * scale - 0.8, (wy - y) * scale - 0.8, 1.6, 1.6);
        }
    }
    #drawInk() {
        const context = this.#ink;
        const { canvas, camera } = this.#front;
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.clearRect(0, 0, context.canvas.width, context.canvas.height);
        const zoom = this.camera.scale / camera.scale;
        const left = ((camera.x - MARGIN / camera.scale - this.camera.x) * this.camera.scale) * this.#ratio;
        const top = ((camera.y - MARGIN / camera.scale - this.camera.y) * this.camera.scale) * this.#ratio;
        context.drawImage(canvas, left, top, canvas.width * zoom, canvas.height * zoom);
    }
    #drawLive() {
        const context = this.#live;
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.clearRect(0, 0, context.canvas.width, context.canvas.height);
        const k = this.camera.scale * this.#ratio;
        context.setTransform(k, 0, 0, k, -this.camera.x * k, -this.camera.y * k);
        this.onLive(context, this.camera);
    }
}
