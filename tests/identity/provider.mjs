// A certified OpenID provider on this machine: npm `oidc-provider`, as it is, with its own pages for signing in.
//
//   node provider.mjs            prints one line of JSON when it listens: {"issuer": "http://127.0.0.1:PORT"}
//
// Every further line is what it gave away at its token endpoint and what it was shown for it, so that a test can look
// for these secrets where they must not be.
//
// Anybody may sign in under any name, with any password; the accounts below are in groups. It speaks http, which is
// accepted by Felix for loopback addresses alone.
import { createServer } from 'node:http';
import { generateKeyPairSync } from 'node:crypto';
import { Provider } from 'oidc-provider';

// Whom access tokens may be for: what a tenant of Felix lists as an audience of this issuer.
export const AUDIENCE = 'https://felix.test/api';

const GROUPS = { ann: ['writers'], carol: ['writers', 'admins'] };

const account = (id) => ({
  accountId: id,
  claims: () => ({ sub: id, email: `${id}@example.com`, name: id, groups: GROUPS[id] ?? [] }),
});

// Where people come back to from signing in, behind a proxy or on this machine; from signing out they come to its neighbour.
const CALLBACK = process.env.GATEWAY_REDIRECT ?? 'http://127.0.0.1/auth/callback';

const signing = () => {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256', kid: 'test-1' };
};

const configuration = {
  jwks: { keys: [signing()] },
  cookies: { keys: ['a cookie key of a provider that lives for one test'] },
  clients: [
    {
      client_id: 'felixctl',
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code', 'urn:ietf:params:oauth:grant-type:device_code'],
      redirect_uris: ['http://127.0.0.1/callback'],
      response_types: ['code'],
    },
    {
      // The browser gateway, as a public client: on any port of this machine, or at the address of a proxy before it.
      client_id: 'gateway',
      application_type: process.env.GATEWAY_REDIRECT ? 'web' : 'native',
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code', 'refresh_token'],
      redirect_uris: [CALLBACK],
      post_logout_redirect_uris: [CALLBACK.replace('/auth/callback', '/auth/logout/done')],
      response_types: ['code'],
    },
  ],
  findAccount: (_context, id) => account(id),
  claims: { openid: ['sub'], email: ['email'], profile: ['name'], groups: ['groups'] },
  // Groups belong into the ID token itself: Felix verifies tokens and asks no userinfo endpoint.
  conformIdTokenClaims: false,
  extraTokenClaims: (_context, token) => ({ groups: GROUPS[token.accountId] ?? [] }),
  pkce: { required: () => true },
  features: {
    deviceFlow: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_context, resource) => {
        if (resource !== AUDIENCE) throw new Error('unknown resource');
        return { scope: '', audience: AUDIENCE, accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } };
      },
    },
  },
};

export async function start() {
  const server = createServer();
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, configuration);
  provider.on('grant.success', ({ body, oidc }) => {
    const { code, code_verifier, device_code } = oidc.params;
    console.log(JSON.stringify({ ...body, code, code_verifier, device_code }));
  });
  server.on('request', provider.callback());
  return { issuer, close: () => { server.closeAllConnections(); server.close(); } };
}

if (process.argv[1] === import.meta.filename) {
  const { issuer } = await start();
  console.log(JSON.stringify({ issuer }));
}
