import { ApiError, isPassing, ProtocolError, SignInError, TransportError } from '../base/errors.ts';
import {
  decodeAuthorization,
  encodeAppAuthorization,
  encodeTokenAuthRequest,
  type TokenAuthRequestDocument,
} from '../protocol/messages.ts';
import type { IssuedToken } from './access-token.ts';
import type { ApplicationKeys, Credentials } from './account.ts';
import { discarded } from './answer-reading.ts';
import type { Requests } from './requests.ts';

/**
 * A new refresh token: the password is used here and nowhere else.
 * @throws SignInError when the service refuses the password or the keys · ApiError · TransportError
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
 * An access token for a refresh token.
 *
 * @throws SignInError when the service refuses it · ApiError for a refusal that passes · TransportError for any other answer: whoever wants
 * the token asks for something else, of which none of them says anything, least of all that it is not there
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
 * Whether the service gave a refusal of a sign-in, and not a network that refuses everything. Asked is a request for a token in which all is
 * missing: the service calls that malformed (400, docs/service.md 13.3), and says so to nobody else. Another answer than the refusal's shows that whoever
 * refused distinguishes the two.
 *
 * @throws what `Requests.send` throws, but for a refusal
 */
export async function isRefusedByService(
  requests: Requests,
  baseUrl: string,
  refusal: SignInError,
  signal: AbortSignal,
): Promise<boolean> {
  const { cause } = refusal;
  // Nothing was sent: nobody has signed in yet.
  if (!(cause instanceof ApiError)) return true;
  const url = `${baseUrl}/authorization`;
  try {
    await requests.send(
      { method: 'POST', url, repetition: 'always', anonymous: true, body: NO_SIGN_IN, signal },
      discarded,
    );
    return false; // a token for nothing
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
    // 403 is not among the documented answers (docs/service.md 13.3); a service that gives it means the same.
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
      throw new SignInError(`the service refuses the ${what}`, { cause: error });
    }
    throw error;
  }
}
