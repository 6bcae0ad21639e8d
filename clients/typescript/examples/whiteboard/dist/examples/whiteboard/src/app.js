/** The whiteboard: one surface, the board of one room, and everything around it. */
import { FelixClient } from "../../../src/index.js";
import { listenToKeys } from "./keys.js";
import { drawLive } from "./live.js";
import { all, boardInAddress, find, preferredTheme, share, showConnection, showPeople, showTheme, toast } from "./page.js";
import { People } from "./people.js";
import { Pointers } from "./pointer.js";
import { Room, randomId } from "./room.js";
import { Scene } from "./scene.js";
import { Surface } from "./surface.js";
import { Timeline } from "./timeline.js";
import { Writing } from "./writing.js";
export class App {
    brush = { tool: "pen", color: 0, size: 4 };
    surface;
    pointers;
    writing;
    timeline;
    /** Called when the token is not accepted any more. */
    onSignedOut = () => undefined;
    #scene = new Scene();
    #now = this.#scene;
    #visitor = null;
    #client = null;
    #room = null;
    #people = null;
    #fitted = false;
    #frame = 0;
    constructor() {
        this.surface = new Surface(find("#stage"), this.#scene);
        this.writing = new Writing(this.surface, (intent) => void this.#room?.do(intent));
        this.pointers = new Pointers(this.surface, {
            brush: this.brush,
            room: () => this.#room,
            scene: () => this.#scene,
            canEdit: () => this.#room?.loaded === true && !this.timeline.open,
            point: (at, sketch) => this.#people?.point(at, sketch),
            write: (at) => this.writing.begin(at, this.brush.color, this.brush.size),
            selected: () => this.#refresh(),
        });
        this.timeline = new Timeline(() => this.#secondClient(), (board) => this.#showMoment(board));
        this.surface.onLive = (context, camera) => drawLive(context, camera, {
            surface: this.surface,
            pointers: this.pointers,
            scene: () => this.#scene,
            sketches: () => (this.timeline.open ? [] : (this.#room?.sketches ?? [])),
            people: () => (this.timeline.open ? null : this.#people),
            known: (id) => this.#room?.board.has(id) ?? false,
        });
        this.surface.onCamera = ({ scale }) => {
            find("#zoom-reset").textContent = `${Math.round(scale * 100)} %`;
            this.writing.place();
        };
        this.#wire();
        this.setTheme(preferredTheme(), false);
        this.setTool("pen");
        this.setColor(0);
        this.setSize(4);
        this.surface.fit(null);
        listenToKeys(this);
        // Cursors fade by themselves.
        setInterval(() => { if ((this.#people?.cursors.size ?? 0) > 0)
            this.surface.live(); }, 250);
    }
    get room() {
        return this.#room;
    }
    get scene() {
        return this.#scene;
    }
    /** Opens the board of the address for this person. */
    enter(visitor) {
        this.leave();
        this.#visitor = visitor;
        const board = boardInAddress();
        find("#board-name").textContent = board;
        document.title = `${board} · Whiteboard`;
        const client = new FelixClient({ ...visitor.client, scope: { field: "board", value: board } });
        this.#client = client;
        client.on("unauthorized", (error) => this.onSignedOut(error));
        client.on("state", () => this.#refresh());
        this.#room = new Room(client, {
            board: (whole) => this.#showBoard(whole),
            change: (change) => {
                const damaged = this.#now.change(change);
                if (this.timeline.open)
                    return this.#refresh();
                if (change.added !== null)
                    this.surface.added(change.added);
                this.surface.damaged(damaged);
                this.#refresh();
            },
            pending: (edit, sign) => {
                this.surface.damaged(this.#now.expect(edit, sign));
                this.surface.live();
                this.#refresh();
            },
            status: () => this.#refresh(),
            failed: (message) => toast(message, 7_000),
        });
        this.#now.show(this.#room.board);
        this.#people = new People(client, visitor.name, () => {
            showPeople(this.#people?.everybody ?? []);
            this.surface.live();
        }, () => this.surface.live());
        client.connect();
        this.#refresh();
    }
    /** Tells the gateway that the person goes, and leaves. */
    signOut() {
        this.#client?.signOut();
        this.leave();
    }
    /** Leaves the board; nothing of the person is left on the page. */
    leave() {
        this.writing.finish();
        this.timeline.close();
        this.#people?.close();
        this.#room?.close();
        this.#client?.close();
        this.#people = null;
        this.#room = null;
        this.#client = null;
        this.#visitor = null;
        this.#fitted = false;
        this.#scene = this.#now = new Scene();
        this.pointers.select([]);
        this.surface.show(this.#scene);
        showPeople([]);
        this.#refresh();
    }
    setTool(tool) {
        this.writing.finish();
        this.brush.tool = tool;
        if (tool !== "select")
            this.pointers.select([]);
        find("#stage").dataset["tool"] = tool;
        for (const button of all(".tool"))
            button.setAttribute("aria-pressed", String(button.dataset["tool"] === tool));
    }
    setColor(color) {
        this.brush.color = color;
        for (const button of all(".color"))
            button.setAttribute("aria-pressed", String(button.dataset["color"] === String(color)));
    }
    setSize(size) {
        this.brush.size = size;
        for (const button of all(".size"))
            button.setAttribute("aria-pressed", String(button.dataset["size"] === String(size)));
    }
    setTheme(theme, chosen) {
        this.surface.theme = theme;
        showTheme(theme, chosen);
        this.surface.redraw();
        this.writing.place();
    }
    undo() {
        if (!this.timeline.open)
            this.#room?.undo();
    }
    redo() {
        if (!this.timeline.open)
            this.#room?.redo();
    }
    eraseSelection() {
        const ids = [...this.pointers.selection].filter((id) => {
            const item = this.#scene.item(id);
            return item !== undefined && this.#scene.isShown(item);
        });
        for (let at = 0; at < ids.length; at += 500)
            this.#room?.do({ kind: "erase", id: randomId(), ids: ids.slice(at, at + 500) });
        this.pointers.select([]);
    }
    selectAll() {
        this.setTool("select");
        const items = [...(this.#room?.board.items.values() ?? [])].filter((item) => this.#scene.isShown(item));
        this.pointers.select(items.map((item) => item.edit.id));
    }
    fit() {
        this.surface.fit(this.#scene.bounds());
    }
    openBoard(name) {
        const visitor = this.#visitor;
        const here = new URL(location.href);
        here.searchParams.set("board", name);
        history.pushState(null, "", here);
        if (visitor !== null)
            this.enter(visitor);
    }
    // ---- inside
    #secondClient() {
        const visitor = this.#visitor;
        if (visitor === null)
            throw new Error("nobody is signed in");
        return new FelixClient({ ...visitor.client, scope: { field: "board", value: boardInAddress() } });
    }
    #showBoard(board) {
        this.#now.show(board);
        if (!this.timeline.open)
            this.surface.show(this.#now);
        this.#refresh();
    }
    #showMoment(board) {
        find("#stage").dataset["reading"] = String(board !== null);
        if (board === null)
            this.#scene = this.#now;
        else {
            this.#scene = new Scene();
            this.#scene.show(board);
        }
        this.pointers.select([]);
        this.surface.show(this.#scene);
        this.#refresh();
    }
    /** Everything that shows a state, once for each frame however much happened in it. */
    #refresh() {
        this.#frame ||= requestAnimationFrame(() => {
            this.#frame = 0;
            const room = this.#room;
            const state = this.#client?.state ?? "idle";
            showConnection(state, room?.outbox.pending.length ?? 0, state === "connected" && room?.catchingUp === true);
            find("#undo").disabled = room?.canUndo !== true;
            find("#redo").disabled = room?.canRedo !== true;
            find("#history").toggleAttribute("disabled", room === null);
            this.#showFacts(room);
            if (room !== null && room.loaded && !room.catchingUp && !this.#fitted) {
                this.#fitted = true;
                if (room.board.visible > 0)
                    this.fit();
            }
        });
    }
    #showFacts(room) {
        const { dataset } = document.documentElement;
        dataset["stateHash"] = room === null ? "" : room.board.hash;
        dataset["offset"] = String(room?.board.next ?? 0);
        dataset["pending"] = String(room?.outbox.pending.length ?? 0);
        dataset["loaded"] = String(room?.loaded === true && !room.catchingUp);
        const visible = room?.board.visible ?? 0;
        dataset["visible"] = String(visible);
        find("#empty").hidden = !(room?.loaded === true && visible === 0 && room.sketches.length === 0) || this.timeline.open;
        find("#facts").textContent = room === null || room.board.edits === 0 ? "" : `${room.board.edits} edits · ${room.board.hash.slice(0, 8)}`;
    }
    #wire() {
        const click = (selector, work) => find(selector).addEventListener("click", work);
        for (const button of all(".tool"))
            button.addEventListener("click", () => this.setTool(button.dataset["tool"]));
        for (const button of all(".color"))
            button.addEventListener("click", () => this.setColor(Number(button.dataset["color"])));
        for (const button of all(".size"))
            button.addEventListener("click", () => this.setSize(Number(button.dataset["size"])));
        click("#undo", () => this.undo());
        click("#redo", () => this.redo());
        click("#zoom-in", () => this.surface.zoom(1.25));
        click("#zoom-out", () => this.surface.zoom(0.8));
        click("#zoom-reset", () => this.surface.zoom(1 / this.surface.camera.scale));
        click("#zoom-fit", () => this.fit());
        click("#theme", () => this.setTheme(this.surface.theme === "dark" ? "light" : "dark", true));
        click("#share", () => void share());
        click("#retry", () => this.#client?.connect());
        click("#history", () => { if (this.#room !== null)
            this.timeline.toggle(); });
        click("#help-button", () => find("#help").showModal());
        const open = find("#open");
        click("#board", () => {
            find("#open-name").value = boardInAddress();
            open.showModal();
        });
        click("#open-cancel", () => open.close());
        find("#open-form").addEventListener("submit", (event) => {
            event.preventDefault();
            open.close();
            this.openBoard(find("#open-name").value);
        });
        window.addEventListener("popstate", () => { if (this.#visitor !== null)
            this.enter(this.#visitor); });
    }
}
