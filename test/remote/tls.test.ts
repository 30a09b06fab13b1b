import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TransportError } from '../../src/base/errors.ts';
import { certificateFaultOf } from '../../src/remote/certificate-failure.ts';
import { Authority } from '../cli/doctor-ground.ts';
import { clientOf } from './client.ts';

/** A service whose certificate does not convince gets no request: no token, no key, no name of a file. */

let directory: string;
let authority: Authority;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-tls-'));
  authority = new Authority(join(directory, 'authority'));
});

afterAll(() => rmSync(directory, { recursive: true }));

async function ask(certificates: string, life?: readonly [string, string], name?: string) {
  const server = await authority.serve(life, name);
  const client = clientOf(server.origin, { certificates: () => certificates });
  try {
    const failure = await client.user(AbortSignal.timeout(10_000)).then(
      () => null,
      (error: unknown) => error,
    );
    return { failure, requests: server.requests() };
  } finally {
    await client.close();
    server.close();
  }
}

test('one that convinces is spoken to', async () => {
  const { requests } = await ask(readFileSync(authority.certificateFile, 'utf8'));

  expect(requests).toBeGreaterThan(0);
});

const EXPIRED = ['20200101000000Z', '20200201000000Z'] as const;
const FUTURE = ['20480101000000Z', '20490101000000Z'] as const;

test.each([
  ['expired', EXPIRED, undefined],
  ['not-yet-valid', FUTURE, undefined],
  ['wrong-host', undefined, 'DNS:other.example.com'],
] as const)('one that is %s is not', async (fault, life, name) => {
  const { failure, requests } = await ask(readFileSync(authority.certificateFile, 'utf8'), life, name);

  expect(failure).toBeInstanceOf(TransportError);
  expect(certificateFaultOf(failure)).toBe(fault);
  expect(requests).toBe(0);
});

test('one of an authority that nobody believes is not', async () => {
  const other = new Authority(join(directory, 'other'));
  const { failure, requests } = await ask(readFileSync(other.certificateFile, 'utf8'));

  expect(failure).toBeInstanceOf(TransportError);
  expect(requests).toBe(0);
});
