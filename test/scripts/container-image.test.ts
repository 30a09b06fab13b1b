import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { missingPrograms, testUnless } from '../harness/requirement.ts';
import { PROJECT, textOf } from '../imports.ts';

/** The image of `cfs serve`, as far as no container engine is needed. */

const directory = mkdtempSync(join(tmpdir(), 'cfs-image-'));
afterAll(() => rmSync(directory, { recursive: true }));

/** The instructions of the Dockerfile in order, continued lines joined. */
const instructions = textOf('Dockerfile')
  .replace(/^#.*\n/gm, '')
  .replace(/\\\n\s*/g, '')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => line.split(/ (.*)/s).slice(0, 2) as [name: string, rest: string]);
const only = (name: string): string => {
  const found = instructions.filter(([each]) => each === name);
  expect(found, name).toHaveLength(1);
  return found[0]?.[1] ?? '';
};

test('the image runs as a numbered user that owns nothing but the data, and keeps all writes in the volume', () => {
  const [uid, gid] = only('USER').split(':').map(Number);

  expect(uid).toBeGreaterThan(9999);
  expect(only('RUN')).toContain(`install -d -o ${uid} -g ${gid} -m 700 /data`);
  expect(only('VOLUME')).toBe('/data');
  expect(only('ENV')).toBe('HOME=/data');
  expect(instructions.findIndex(([name]) => name === 'USER')).toBeGreaterThan(
    instructions.findIndex(([name]) => name === 'RUN'),
  );
});

test('the image starts the packaged server, and has a health check, both without a shell', () => {
  expect(JSON.parse(only('ENTRYPOINT')).slice(0, 2)).toEqual(['/usr/bin/cfs', 'serve']);
  const [, command = ''] = /CMD (\[.*\])$/.exec(only('HEALTHCHECK')) ?? [];
  const [node, health] = JSON.parse(command) as string[];
  expect(node).toBe('/usr/lib/cfs-mount/current/bin/node');
  expect(instructions).toContainEqual(['COPY', `packaging/container/health.mjs ${health}`]);
  expect(only('FROM')).toMatch(/^debian:\d+-slim$/);
});

test('the build context is the package and the health check', () => {
  expect(textOf('.dockerignore').trim().split('\n')).toEqual(['*', '!dist-packages/*.deb', '!packaging/container']);
});

/** @returns the exit code of the health check */
async function health(port: string): Promise<number> {
  const child = spawn(process.execPath, [join(PROJECT, 'packaging/container/health.mjs'), port], { stdio: 'ignore' });
  return (await once(child, 'exit'))[0] as number;
}

test('the health check passes for a server that answers, and fails for a free port and for another program', async () => {
  const server = await ReferenceServer.open({ dataDirectory: join(directory, 'plain') });
  const { port } = new URL(server.origin);
  expect(await health(port)).toBe(0);
  await server.close();
  expect(await health(port)).toBe(1);

  const other = createServer((socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n')).listen(0);
  await once(other, 'listening');
  expect(await health(String((other.address() as { port: number }).port))).toBe(1);
  other.close();
});

testUnless(missingPrograms('openssl'))('the health check passes for a server with TLS', async () => {
  const [key, certificate] = [join(directory, 'key.pem'), join(directory, 'cert.pem')];
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
  execFileSync('openssl', ['req', '-x509', ...kind, '-keyout', key, '-out', certificate, '-subj', '/CN=files'], {
    stdio: 'ignore',
  });
  const tls = { certificate: readFileSync(certificate, 'utf8'), key: readFileSync(key, 'utf8') };
  const server = await ReferenceServer.open({ dataDirectory: join(directory, 'tls'), tls });

  expect(await health(new URL(server.origin).port)).toBe(0);
  await server.close();
});
