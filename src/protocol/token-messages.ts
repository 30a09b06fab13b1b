import { instant, record, text, word } from './codec.ts';
import { decoderOf, encoderOf } from './xml.ts';

/** Documents of the two token endpoints (docs/service.md 3). */

/** Requests a refresh token. */
export interface AppAuthorizationDocument {
  readonly username: string;
  readonly password: string;
  readonly application: string;
  readonly accessKeyId: string;
  readonly privateAccessKey: string;
}

/** Asks for an access token. */
export interface TokenAuthRequestDocument {
  readonly accessKeyId: string;
  readonly privateAccessKey: string;
  /** The refresh token's URL. */
  readonly refreshToken: string;
}

/** Requests an access token in the older form, without a refresh token. */
export interface AuthRequestDocument {
  readonly username: string;
  readonly password: string;
  readonly accessKeyId: string;
  readonly privateAccessKey: string;
}

/** The response to both; the token itself is in the Location header. */
export interface AuthorizationDocument {
  /** Milliseconds since the epoch, by the service's clock. */
  readonly expiration: number;
  /** URL of the user. */
  readonly user: string;
}

const appAuthorization = record<AppAuthorizationDocument>({
  username: ['username', text],
  password: ['password', text],
  application: ['application', text],
  accessKeyId: ['accessKeyId', text],
  privateAccessKey: ['privateAccessKey', text],
});

const tokenAuthRequest = record<TokenAuthRequestDocument>({
  accessKeyId: ['accessKeyId', text],
  privateAccessKey: ['privateAccessKey', text],
  refreshToken: ['refreshToken', word],
});

const authRequest = record<AuthRequestDocument>({
  username: ['username', text],
  password: ['password', text],
  accessKeyId: ['accessKeyId', text],
  privateAccessKey: ['privateAccessKey', text],
});

const authorization = record<AuthorizationDocument>({
  expiration: ['expiration', instant],
  user: ['user', word],
});

export const decodeAppAuthorization = decoderOf('appAuthorization', appAuthorization);
export const encodeAppAuthorization = encoderOf('appAuthorization', appAuthorization);
export const decodeTokenAuthRequest = decoderOf('tokenAuthRequest', tokenAuthRequest);
export const encodeTokenAuthRequest = encoderOf('tokenAuthRequest', tokenAuthRequest);
export const decodeAuthRequest = decoderOf('authRequest', authRequest);
export const encodeAuthRequest = encoderOf('authRequest', authRequest);
export const decodeAuthorization = decoderOf('authorization', authorization);
export const encodeAuthorization = encoderOf('authorization', authorization);
