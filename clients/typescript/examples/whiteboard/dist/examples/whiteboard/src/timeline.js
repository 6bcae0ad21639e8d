import { History } from "./history.js";
import { find } from "./page.js";
/** A whole history is played in about this many frames. */
const FRAMES = 240;
export class Timeline {
    client;
    show;
    #history = null;
    #playing = 0;
    #follows = true;
    #slider = find("#slider");
    constructor(client, 
    /** The board of a moment, or `null` for now. */
    show) {
        this.client = client;
        this.show = show;
        this.#slider.addEventListener("input", () => {
            this.#follows = this.#position === this.#history?.length;
            this.#stop();
            this.#showMoment();
        });
        find("#play").addEventListener("click", () => this.#play());
        find("#history-close").addEventListener("click", () => this.close());
    }
    get open() {
        return this.#history !== null;
    }
    toggle() {
        if (this.open)
            return this.close();
        this.#follows = true;
        let waiting = false;
        this.#history = new History(this.client(), () => {
            if (waiting)
                return;
            waiting = true;
            requestAnimationFrame(() => {
                waiting = false;
                this.#grown();
            });
        });
        find("#timeline").hidden = false;
        find("#history").setAttribute("aria-pressed", "true");
        find("#moment").textContent = "Reading…";
        this.#slider.focus();
    }
    close() {
        if (this.#history === null)
            return;
        this.#stop();
        this.#history.close();
        this.#history = null;
        find("#timeline").hidden = true;
        find("#history").setAttribute("aria-pressed", "false");
        this.show(null);
    }
    get #position() {
        return Number(this.#slider.value);
    }
    #grown() {
        const history = this.#history;
        if (history === null)
            return;
        this.#slider.max = String(history.length);
        if (this.#follows)
            this.#slider.value = String(history.length);
        this.#showMoment();
    }
    #showMoment() {
        const history = this.#history;
        if (history === null)
            return;
        this.show(history.board(this.#position));
        find("#moment").textContent = this.#words(history);
    }
    #words(history) {
        const at = history.at(this.#position);
        if (at === null)
            return "Before the first edit";
        const time = at.timeMs === null ? "" : ` · ${new Date(at.timeMs).toLocaleString()}`;
        const number = at.n > 0 ? ` (no. ${at.n})` : "";
        return `Edit ${this.#position} of ${history.length}${number}${time}`;
    }
    #play() {
        const history = this.#history;
        if (history === null)
            return;
        if (this.#playing !== 0)
            return this.#stop();
        this.#follows = false;
        if (this.#position >= history.length)
            this.#slider.value = "0";
        const each = Math.max(1, Math.round(history.length / FRAMES));
        find("#play").setAttribute("aria-label", "Pause");
        this.#playing = window.setInterval(() => {
            this.#slider.value = String(Math.min(history.length, this.#position + each));
            this.#showMoment();
            if (this.#position >= history.length)
                this.#stop();
        }, 40);
    }
    #stop() {
        window.clearInterval(this.#playing);
        this.#playing = 0;
        find("#play").setAttribute("aria-label", "Play");
    }
}
