import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Logger } from '../../src/base/log.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { RawClient, signUp } from './raw-client.ts';

test('no token of a URL gets into the log, also not of an unknown URL', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-log-secrets-'));
  const lines: string[] = [];
  const keep = (...fields: unknown[]) => void lines.push(JSON.stringify(fields));
  const log = { trace: keep, debug: keep, info: keep, warn: keep, error: keep } as unknown as Logger;
  const server = await ReferenceServer.open({ dataDirectory: directory, log });
  const { client, refreshToken } = await signUp(server, 'a@example.com');
  const secrets = [client.token as string, refreshToken].map((url) => url.split('/').pop() as string);
  lines.length = 0;
  const anonymous = new RawClient(server.origin);

  for (const secret of secrets) {
    for (const word of ['authorization', 'app-authorization', 'pf']) {
      for (const path of [`/${word}/${secret}`, `/${word}/${secret}/x`, `//${word}/${secret}`, `/x/${word}/${secret}`])
        await anonymous.get(path);
      await anonymous.get(`/user?token=${secret}`);
    }
  }
  await client.get('/user');
  await server.close();
  rmSync(directory, { recursive: true });

  expect(lines.length).toBeGreaterThanOrEqual(30);
  expect(lines.join('\n')).toContain('/user');
  for (const secret of secrets) expect(lines.join('\n')).not.toContain(secret);
});
