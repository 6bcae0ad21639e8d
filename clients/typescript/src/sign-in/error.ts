import { FelixError } from "../errors.js";

/** Who signed in. Names are the token's claims, for display only. */
export interface Account {
  readonly subject: string;
  readonly name: string;
}

/** Why signing in came to nothing: `state`, `issuer`, `nonce`, `token`, `refused` (the provider said no), `unreachable`. */
export class SignInError extends FelixError {
  override readonly name: string = "SignInError";
}
