import { FelixError } from "../errors.js";
/** Why signing in came to nothing: `state`, `issuer`, `nonce`, `token`, `refused` (the provider said no), `unreachable`. */
export class SignInError extends FelixError {
    name = "SignInError";
}
