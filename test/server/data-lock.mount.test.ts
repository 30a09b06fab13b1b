import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { HeldRequest } from './held-request.ts';
import { signUp } from './raw-client.ts';
import { until } from './until.ts';

/** What two containers are to each other that share a directory: a network namespace each (network_namespaces(7)). */

const IN_ANOTHER_NAMESPACE = ['unshare', '--map-root-user', '--net'] as const;
const [program, ...args] = IN_ANOTHER_NAMESPACE;
const isAllowed = spawnSync(program, [...args, 'true']).status === 0;

const STARTS = `
const { ReferenceServer } = await import(process.argv[1]);
const listen = { host: '0.0.0.0', port: 0 };
const outcome = await ReferenceServer.open({ dataDirectory: process.argv[2], listen, insecure: true }).then(
  () => 'serves',
  (error) => error.message,
);
process.stdout.write(outcome, () => process.exit(0));
`;

test.skipIf(!isAllowed)(
  `a second server in another network namespace does not get the directory${isAllowed ? '' : ' (needs: unshare --map-root-user --net)'}`,
  async () => {
    const data = mkdtempSync(join(tmpdir(), 'cfs-namespace-'));
    const server = await ReferenceServer.open({ dataDirectory: data });
    const { client, folder } = await signUp(server, 'a@example.com');
    const file = await client.createFile(folder('2'), 'f');
    const body = Buffer.alloc(60_000, 'bytes that matter ');
    const front = { bodyBytes: body.byteLength, front: body.subarray(0, 40_000) };
    const upload = await HeldRequest.begin(server, client, `${file}/data`, front);
    await until(() => server.bytesArrived > 40_000);

    const dist = new URL('../../dist/server/reference-server.js', import.meta.url).href;
    const other = spawn(program, [...args, process.execPath, '--input-type=module', '-e', STARTS, dist, data], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const outcome = await text(other.stdout);
    await upload.send(body.subarray(40_000));

    expect(outcome).toBe(`another server runs on ${data}`);
    expect(await upload.status()).toBe(204);
    expect((await client.get(`${file}/data`)).bytes.equals(body)).toBe(true);
    upload.cut();
    await server.close();
    rmSync(data, { recursive: true });
  },
);
