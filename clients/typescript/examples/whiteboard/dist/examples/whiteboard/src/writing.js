/** Text is written in a text field that lies where the text will be. */
import { TEXT_MAX } from "./edits.js";
import { FONT, PALETTE } from "./paint.js";
import { randomId } from "./room.js";
/** Height of letters in world pixels for each width of the brush. */
const LETTERS = { 2: 16, 4: 22, 8: 34, 16: 56 };
export class Writing {
    surface;
    done;
    #field = null;
    #at = { x: 0, y: 0 };
    #size = 22;
    #color = 0;
    constructor(surface, done) {
        this.surface = surface;
        this.done = done;
    }
    get open() {
        return this.#field !== null;
    }
    begin(at, color, brush) {
        this.finish();
        const field = document.createElement("textarea");
        field.className = "writing";
        field.maxLength = TEXT_MAX;
        field.rows = 1;
        field.spellcheck = false;
        field.setAttribute("aria-label", "Text");
        this.#field = field;
        this.#size = LETTERS[brush] ?? 22;
        this.#at = { x: at.x, y: at.y - this.#size * 0.6 };
        this.#color = color;
        field.addEventListener("input", () => this.place());
        field.addEventListener("blur", () => this.finish());
        field.addEventListener("pointerdown", (event) => event.stopPropagation());
        field.addEventListener("keydown", (event) => {
            event.stopPropagation();
            if (event.key === "Escape" || (event.key === "Enter" && (event.ctrlKey || event.metaKey)))
                this.finish();
        });
        this.surface.host.append(field);
        this.place();
        // The click that asked for the field takes the focus first.
        setTimeout(() => field.focus(), 0);
    }
    /** Follows the camera. */
    place() {
        const field = this.#field;
        if (field === null)
            return;
        const { x, y } = this.surface.toScreen(this.#at);
        const { scale } = this.surface.camera;
        field.style.left = `${x}px`;
        field.style.top = `${y}px`;
        field.style.fontSize = `${this.#size * scale}px`;
        field.style.fontFamily = FONT;
        field.style.color = PALETTE[this.surface.theme][this.#color] ?? "";
        field.style.width = "1px";
        field.style.height = "1px";
        field.style.width = `${Math.max(field.scrollWidth + 4, 8)}px`;
        field.style.height = `${field.scrollHeight}px`;
    }
    finish() {
        const field = this.#field;
        if (field === null)
            return;
        this.#field = null;
        const text = field.value.replace(/\s+$/u, "").slice(0, TEXT_MAX);
        field.remove();
        if (text === "")
            return;
        const [x, y] = [Math.round(this.#at.x * 10), Math.round(this.#at.y * 10)];
        this.done({ kind: "text", id: randomId(), color: this.#color, size: Math.round(this.#size * 10), x, y, text });
    }
}
