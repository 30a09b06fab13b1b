import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp } from './raw-client.ts';

/** Health and metrics of the server, for its operator. */

test('health and metrics are answered on an address of their own, on loopback unless a host is given', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-admin-'));
  const server = await ReferenceServer.open({ dataDirectory: directory, adminListen: { port: 0 } });
  const { client, email } = await signUp(server, 'a@example.com');
  await client.get('/user');
  const admin = server.adminOrigin as string;

  const health = await fetch(`${admin}/healthz`);
  const metrics = await fetch(`${admin}/metrics`);
  const text = await metrics.text();
  const others = [
    await fetch(`${admin}/user`),
    await fetch(`${admin}/healthz`, { method: 'POST' }),
    await fetch(`${server.origin}/metrics`),
  ];

  expect(admin).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
  expect([health.status, await health.text()]).toEqual([200, 'ok\n']);
  expect(text).toMatch(/^# HELP cfs_serve_requests_total .*\n# TYPE cfs_serve_requests_total counter\n/);
  expect(text).toMatch(/^cfs_serve_requests_total\{status="200"\} 1$/m);
  expect(text).toMatch(/^cfs_serve_accounts 1$/m);
  expect(text).toMatch(/^cfs_serve_disk_spare_bytes \d+$/m);
  expect(text).not.toContain(email);
  expect(others.map(({ status }) => status)).toEqual([404, 405, 404]);
  await server.close();
  await expect(fetch(`${admin}/healthz`)).rejects.toThrow();
  rmSync(directory, { recursive: true });
});

test('without the option there is no such address', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-admin-'));
  const server = await ReferenceServer.open({ dataDirectory: directory });

  expect(server.adminOrigin).toBeNull();
  await server.close();
  rmSync(directory, { recursive: true });
});
