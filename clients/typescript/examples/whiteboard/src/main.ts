/** The page as the gateway serves it: sign in with the company's provider, then draw. */
import { FelixError } from "../../../src/index.js";
import { SignIn } from "../../../src/sign-in/index.js";
import { App } from "./app.js";
import { boardInAddress, find } from "./page.js";

const signIn = new SignIn();
const app = new App();
const dialog = find<HTMLDialogElement>("#sign-in");

function ask(reason: string | null): void {
  const error = find("#sign-in-error");
  error.hidden = reason === null;
  error.textContent = reason ?? "";
  find("#sign-out").hidden = true;
  if (!dialog.open) dialog.showModal();
}

function words(error: unknown): string {
  if (error instanceof FelixError) return `Signing in did not work: ${error.message}.`;
  return "The gateway or the sign-in provider could not be reached.";
}

function enter(): void {
  const { account } = signIn;
  if (account === null) return ask(null);
  dialog.close();
  find("#sign-out").hidden = false;
  find("#sign-out").title = `Sign out ${account.name}`;
  app.enter({ name: account.name, client: { url: "/ws", token: signIn.token } });
}

// A dialog that signs in is not put away by a key.
dialog.addEventListener("cancel", (event) => event.preventDefault());
find("#sign-in-button").addEventListener("click", () => {
  boardInAddress();
  signIn.begin().catch((error: unknown) => ask(words(error)));
});
find("#sign-out").addEventListener("click", () => {
  app.signOut();
  void signIn.signOut({ atProvider: true }).catch(() => undefined);
  ask(null);
});
app.onSignedOut = ({ reason, message }) => {
  // Whoever signs in next may be somebody else: nothing is kept for him.
  void signIn.signOut();
  const unsent = app.room?.outbox.pending.length ?? 0;
  app.leave();
  const lost = unsent === 0 ? "" : ` ${unsent} edits had not been sent and are lost.`;
  ask(reason === "forbidden" ? `This board is not open to you: ${message}.` : `You were signed out: ${message}.${lost}`);
};

boardInAddress();
signIn.resume().then(enter, (error: unknown) => ask(words(error)));
