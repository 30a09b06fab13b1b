import type { EndpointKind } from '../protocol/endpoints.ts';
import {
  decodeAppAuthorization,
  decodeAuthRequest,
  decodeTokenAuthRequest,
  encodeAuthorization,
} from '../protocol/messages.ts';
import type { IssuedToken } from './accounts.ts';
import { decodedOr400, type Exchange, rootOr400 } from './exchange.ts';
import type { Call, HandlerTable, Service } from './handler-table.ts';
import { malformed, Refusal } from './refusal.ts';
import type { Sender } from './sign-in.ts';

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
      POST: async (call) => {
        const { exchange, endpoint } = call;
        refuseMember(endpoint.token);
        const request = await exchange.decoded(decodeAppAuthorization);
        const { secret } = await accounts.createRefreshToken(request, senderOf(call));
        await exchange.sendEmpty(201, { Location: documents.url({ kind: 'appAuthorization', token: secret }) });
      },
    },
    authorization: {
      POST: async (call) => {
        const { exchange, endpoint } = call;
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
            return sendAccessToken(exchange, await accounts.createAccessTokenByPassword(request, senderOf(call)));
          }
          default:
            throw malformed();
        }
      },
    },
  };
}

function senderOf({ exchange, network }: Call<EndpointKind>): Sender {
  return { network, isGone: () => exchange.request.socket.destroyed };
}

/** A token can be neither read nor deleted. ASSUMED (docs/service.md 3.2) */
function refuseMember(token: string | null): void {
  if (token !== null) throw new Refusal(405, 'Method not allowed');
}
