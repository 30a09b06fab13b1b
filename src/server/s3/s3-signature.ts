import { createHmac, hash } from 'node:crypto';
import type { S3Credentials } from './s3-credentials.ts';

/** What AWS Signature Version 4 signs ("Authenticating Requests: Using the Authorization Header", Amazon S3 API). */
export interface UnsignedRequest {
  readonly method: string;
  readonly host: string;
  /** Decoded. */
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  /** Names in lower case. All of them are signed. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  /** Of the body, if it is known. */
  readonly sha256?: string | undefined;
}

/** The request line and headers of a signed request. The hash of the body is part of it: a changed body is refused. */
export interface SignedRequest {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

export function signed(
  request: UnsignedRequest,
  { credentials, region, nowMs }: { credentials: S3Credentials; region: string; nowMs: number },
): SignedRequest {
  const time = new Date(nowMs).toISOString().replace(/[-:]|\.\d{3}/g, '');
  const { sessionToken } = credentials;
  const headers: Record<string, string> = {
    ...request.headers,
    host: request.host,
    'x-amz-content-sha256': request.sha256 ?? hash('sha256', request.body, 'hex'),
    'x-amz-date': time,
    ...(sessionToken === undefined ? {} : { 'x-amz-security-token': sessionToken }),
  };
  const path = request.path.split('/').map(encoded).join('/');
  const query = Object.entries(request.query)
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`)
    .sort()
    .join('&');
  const names = Object.keys(headers).sort();
  const canonical = [
    request.method,
    path,
    query,
    ...names.map((name) => `${name}:${headers[name]?.trim()}`),
    '',
    names.join(';'),
    headers['x-amz-content-sha256'],
  ].join('\n');
  const scope = `${time.slice(0, 8)}/${region}/s3/aws4_request`;
  const text = ['AWS4-HMAC-SHA256', time, scope, hash('sha256', canonical, 'hex')].join('\n');
  const key = scope
    .split('/')
    .reduce<Uint8Array>((secret, part) => mac(secret, part), Buffer.from(`AWS4${credentials.secretAccessKey}`));
  const signature = Buffer.from(mac(key, text)).toString('hex');
  const { accessKeyId } = credentials;
  headers.authorization = `AWS4-HMAC-SHA256 Credential=${accessKeyId}/${scope},SignedHeaders=${names.join(';')},Signature=${signature}`;
  return { path: query === '' ? path : `${path}?${query}`, headers };
}

function mac(key: Uint8Array, text: string): Uint8Array {
  return createHmac('sha256', key).update(text).digest();
}

/** RFC 3986: everything but unreserved characters. */
function encoded(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
