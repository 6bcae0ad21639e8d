// The certified provider for pages: npm `oidc-provider`, as it is. Anybody may sign in under any name.
//
// Pages of `origins` may ask for tokens. Accounts called `short-…` get tokens of 30 s, and `short-once` nothing to renew
// them with.
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';

export const CLIENT = 'felix-web';
export const SHORT_S = 30;

const account = (id) => ({ accountId: id, claims: () => ({ sub: id, name: id[0].toUpperCase() + id.slice(1), email: `${id}@example.com`, groups: ['drawers'] }) });

function configuration(origins) {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return {
    jwks: { keys: [{ ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256', kid: 'web-1' }] },
    cookies: { keys: ['a cookie key of a provider that lives for one test'] },
    clients: [{
      client_id: CLIENT,
      // Plain http of this machine is for native programs only; a page of a test is one in this respect.
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      // Where the page signs in itself, and where the gateway does.
      redirect_uris: origins.flatMap((origin) => [`${origin}/`, `${origin}/auth/callback`]),
      post_logout_redirect_uris: origins.map((origin) => `${origin}/`),
    }],
    findAccount: (_context, id) => account(id),
    claims: { openid: ['sub'], email: ['email'], profile: ['name'], groups: ['groups'] },
    conformIdTokenClaims: false,
    clientBasedCORS: (_context, origin) => origins.includes(origin),
    pkce: { required: () => true },
    issueRefreshToken: (_context, _client, code) => code.accountId !== 'short-once',
    ttl: {
      IdToken: (context) => (context.oidc.account?.accountId.startsWith('short-') ? SHORT_S : 600),
      RefreshToken: 3600, AccessToken: 600, Grant: 3600, Session: 3600, Interaction: 600,
    },
  };
}

export class OpenProvider {
  /// Listens, and answers once `allow` said for which pages.
  static async listening() {
    const provider = new OpenProvider();
    await new Promise((listening) => provider.server.listen(0, '127.0.0.1', listening));
    provider.issuer = `http://127.0.0.1:${provider.server.address().port}`;
    return provider;
  }

  constructor() {
    this.server = createServer();
  }

  allow(origins) {
    this.server.on('request', new Provider(this.issuer, configuration(origins)).callback());
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }
}
