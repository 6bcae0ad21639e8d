/** The page as the gateway serves it: sign in with the company's provider, then draw. */
import { FelixError } from "../../../src/index.js";
import { App } from "./app.js";
import { Entrance } from "./entrance.js";
import { boardInAddress, find, toast } from "./page.js";
import { forgetUnsent, keepUnsent, takeUnsent } from "./unsent.js";
const entrance = new Entrance();
const app = new App();
const dialog = find("#sign-in");
let guest = null;
function ask(reason) {
    const error = find("#sign-in-error");
    error.hidden = reason === null;
    error.textContent = reason ?? "";
    find("#sign-out").hidden = true;
    if (!dialog.open)
        dialog.showModal();
}
function words(error) {
    if (error instanceof FelixError)
        return `Signing in did not work: ${error.message}.`;
    return "The gateway or the sign-in provider could not be reached.";
}
function enter(came) {
    guest = came;
    if (came === null)
        return ask(null);
    const { account, client } = came;
    dialog.close();
    find("#sign-out").hidden = false;
    find("#sign-out").title = `Sign out ${account.name}`;
    app.enter({ name: account.name, client });
    const unsent = takeUnsent(boardInAddress(), account.subject);
    app.room?.resume(unsent);
    if (unsent.length > 0)
        toast(`${unsent.length} edits from before you signed in again are being sent.`);
}
// A dialog that signs in is not put away by a key.
dialog.addEventListener("cancel", (event) => event.preventDefault());
find("#sign-in-button").addEventListener("click", () => {
    boardInAddress();
    entrance.begin().catch((error) => ask(words(error)));
});
find("#sign-out").addEventListener("click", () => {
    app.signOut();
    guest = null;
    forgetUnsent();
    ask(null);
    entrance.signOut().catch(() => ask("The gateway could not be told. You may still be signed in: try again, or clear this site's cookies."));
});
app.onSignedOut = ({ reason, message }) => {
    const pending = app.room?.outbox.pending ?? [];
    const kept = guest !== null && keepUnsent(boardInAddress(), guest.account.subject, pending);
    app.leave();
    entrance.forget(reason === "forbidden");
    guest = null;
    const fate = kept ? "are kept in this tab and sent when you sign in again" : "had not been sent and are lost";
    const unsent = pending.length === 0 ? "" : ` ${pending.length} edits ${fate}.`;
    ask(reason === "forbidden" ? `This board is not open to you: ${message}.` : `You were signed out: ${message}.${unsent}`);
};
boardInAddress();
entrance.resume().then(enter, (error) => ask(words(error)));
