import {
  decodeAppAuthorization,
  decodeAuthRequest,
  decodeTokenAuthRequest,
  encodeAuthorization,
} from '../protocol/messages.ts';
import type { IssuedToken } from './accounts.ts';
import { decodedOr400, type Exchange, rootOr400 } from './exchange.ts';
import type { HandlerTable, Service } from './handler-table.ts';
import { malformed, Refusal } from './refusal.ts';

/** The two token endpoints (docs/service.md 3). */
export function tokenHandlers(service: Service): HandlerTable {
  const { accounts, documents } = service;

  const sendAccessToken = (exchange: Exchange, issued: IssuedToken): Promise<void> => {
    const user = documents.url({ kind: 'user', uid: issued.uid });
    const location = documents.url({ kind: 'authorization', token: issued.secret });
    return exchange.sendXml(201, encodeAuthorization({ expiration: issued.expiresMs, user }), { Location: location });
  };

  return {
    appAuthorization: {
      POST: async ({ exchange, endpoint }) => {
        refuseMember(endpoint.token);
        const request = await exchange.decoded(decodeAppAuthorization);
        const { secret } = await accounts.createRefreshToken(request, remoteOf(exchange));
        await exchange.sendEmpty(201, { Location: documents.url({ kind: 'appAuthorization', token: secret }) });
      },
    },
    authorization: {
      POST: async ({ exchange, endpoint }) => {
        refuseMember(endpoint.token);
        const body = await exchange.document();
        switch (rootOr400(body)) {
          case 'tokenAuthRequest': {
            const request = decodedOr400(body, decodeTokenAuthRequest);
            const named = documents.parse(request.refreshToken);
            const secret = named?.kind === 'appAuthorization' ? named.token : null;
            return sendAccessToken(exchange, await accounts.createAccessToken(request, secret));
          }
          case 'authRequest': {
            const request = decodedOr400(body, decodeAuthRequest);
            return sendAccessToken(exchange, await accounts.createAccessTokenByPassword(request, remoteOf(exchange)));
          }
          default:
            throw malformed();
        }
      },
    },
  };
}

function remoteOf(exchange: Exchange): string {
  return exchange.request.socket.remoteAddress ?? '';
}

/** A token can be neither read nor deleted. ASSUMED (docs/service.md 3.2) */
function refuseMember(token: string | null): void {
  if (token !== null) throw new Refusal(405, 'Method not allowed');
}
