import { expect, test } from 'vitest';
import { signed, type UnsignedRequest } from '../../../src/server/s3/s3-signature.ts';

/**
 * The examples of "Signature Calculations for the Authorization Header: Transferring Payload in a Single Chunk" (Amazon S3 API
 * Reference), with the keys, the time and the signatures that stand there.
 */

const signing = {
  credentials: {
    accessKeyId: 'AKIAIOSFODNN7EXAMPLE',
    secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
  },
  region: 'us-east-1',
  nowMs: Date.UTC(2013, 4, 24),
};

const authorizationOf = (request: Partial<UnsignedRequest>): string | undefined =>
  signed(
    {
      method: 'GET',
      host: 'examplebucket.s3.amazonaws.com',
      path: '/',
      query: {},
      headers: {},
      body: Buffer.of(),
      ...request,
    },
    signing,
  ).headers.authorization;

test('the signature of a GET of a range is that of the published example', () => {
  const authorization = authorizationOf({ path: '/test.txt', headers: { range: 'bytes=0-9' } });

  expect(authorization).toBe(
    'AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,' +
      'SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,' +
      'Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41',
  );
});

test.each([
  [
    'a PUT with a body and an encoded path',
    {
      method: 'PUT',
      path: '/test$file.text',
      headers: { date: 'Fri, 24 May 2013 00:00:00 GMT', 'x-amz-storage-class': 'REDUCED_REDUNDANCY' },
      body: Buffer.from('Welcome to Amazon S3.'),
    },
    '98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd',
  ],
  [
    'a parameter without a value',
    { query: { lifecycle: '' } },
    'fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543',
  ],
  [
    'several parameters',
    { query: { prefix: 'J', 'max-keys': '2' } },
    '34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7',
  ],
])('the signature of %s is that of the published example', (_what, request, signature) => {
  expect(authorizationOf(request)).toMatch(new RegExp(`,Signature=${signature}$`));
});

test('a session token is sent, and signed', () => {
  const credentials = { ...signing.credentials, sessionToken: 'a token' };
  const { headers } = signed(
    { method: 'GET', host: 'store.example.com', path: '/bucket/key', query: {}, headers: {}, body: Buffer.of() },
    { ...signing, credentials },
  );

  expect(headers['x-amz-security-token']).toBe('a token');
  expect(headers.authorization).toContain('x-amz-date;x-amz-security-token,');
});
