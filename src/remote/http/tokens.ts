import { ApiError, isPassing, ProtocolError, SignInError, TransportError } from '../../base/errors.ts';
import {
  decodeAuthorization,
  encodeAppAuthorization,
  encodeTokenAuthRequest,
  type TokenAuthRequestDocument,
} from '../../protocol/messages.ts';
import type { ApplicationKeys, Credentials } from '../contract.ts';
import type { IssuedToken } from './access-token.ts';
import { discarded } from './answer-reading.ts';
import type { Requests } from './requests.ts';

/**
 * Requests a new refresh token. The password is used here only.
 * @throws SignInError if the service refuses the password or the keys · ApiError · TransportError
 */
export async function createRefreshToken(
  requests: Requests,
  baseUrl: string,
  asked: Credentials & ApplicationKeys,
  signal: AbortSignal | undefined,
): Promise<string> {
  const body = encodeAppAuthorization({
    username: asked.username,
    password: asked.password,
    application: asked.application,
    accessKeyId: asked.accessKeyId,
    privateAccessKey: asked.privateAccessKey,
  });
  const url = `${baseUrl}/app-authorization`;
  return await refusalAsSignIn('user name, password or keys', () =>
    requests.send({ method: 'POST', url, repetition: 'unseen', anonymous: true, body, signal }, async ({ answer }) => {
      await answer.discard();
      const location = answer.header('location');
      if (location === null) throw new ProtocolError('no refresh token in the answer');
      return location;
    }),
  );
}

/**
 * Requests an access token for a refresh token.
 *
 * @throws SignInError if the service refuses it · ApiError for a temporary refusal · TransportError for any other
 * response. The caller asks for another resource: a 404 here must not be read as its absence.
 */
export async function issueAccessToken(
  requests: Requests,
  baseUrl: string,
  asked: TokenAuthRequestDocument,
  signal: AbortSignal | undefined,
): Promise<IssuedToken> {
  const body = encodeTokenAuthRequest(asked);
  const url = `${baseUrl}/authorization`;
  const ask = () =>
    requests.send({ method: 'POST', url, repetition: 'always', anonymous: true, body, signal }, async ({ answer }) => {
      const document = await decodeAuthorization(answer, { bytesMax: 64 * 1024 });
      const token = answer.header('location');
      if (token === null) throw new ProtocolError('no access token in the answer');
      return { token, expiresMs: document.expiration, serverTimeMs: answer.serverTimeMs, user: document.user };
    });
  try {
    return await refusalAsSignIn('refresh token or keys', ask);
  } catch (error) {
    const isOther = error instanceof ProtocolError || (error instanceof ApiError && !isPassing(error));
    if (!isOther) throw error;
    throw new TransportError(`no access token: ${error.message}`, { neverSent: true, cause: error });
  }
}

/**
 * Whether a refused sign-in comes from the service, not from a network that refuses everything. The probe is an empty
 * token request: the service alone calls it malformed (400, docs/service.md 13.3). A response other than the refusal's shows
 * that the sender distinguishes the two requests.
 *
 * @throws what `Requests.send` throws, except for a refusal
 */
export async function isRefusedByService(
  requests: Requests,
  baseUrl: string,
  refusal: SignInError,
  signal: AbortSignal,
): Promise<boolean> {
  const { cause } = refusal;
  // Nothing was sent: the user is not signed in.
  if (!(cause instanceof ApiError)) return true;
  const url = `${baseUrl}/authorization`;
  try {
    await requests.send(
      { method: 'POST', url, repetition: 'always', anonymous: true, body: NO_SIGN_IN, signal },
      discarded,
    );
    return false; // a token for an empty request
  } catch (error) {
    if (!(error instanceof ApiError) || isPassing(error)) throw error;
    return error.status !== cause.status;
  }
}

const NO_SIGN_IN = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?><tokenAuthRequest/>';

async function refusalAsSignIn<T>(what: string, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    // 403 is not documented here (docs/service.md 13.3); treated like 401.
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
      throw new SignInError(`the service refuses the ${what}`, { cause: error });
    }
    throw error;
  }
}
