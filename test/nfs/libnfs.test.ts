import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { FileSystemOps } from '../../src/kernel/binding.ts';
import { NfsServer } from '../../src/nfs/nfs-server.ts';
import { AssembledMount } from '../harness/assembled-mount.ts';
import { runCommand } from '../harness/command.ts';
import { missingPrograms, titled } from '../harness/requirement.ts';
import { MemoryService } from '../remote/memory-service.ts';

// The client of another project in user space: the tools of libnfs. Each run is a mount of its own.

const missing = missingPrograms('nfs-ls', 'nfs-cp', 'nfs-cat');

let service: MemoryService;
let assembled: AssembledMount;
let folder: string;

beforeEach(async () => {
  service = new MemoryService();
  assembled = await AssembledMount.build(service);
  folder = mkdtempSync(join(tmpdir(), 'cfs-libnfs-'));
});

afterEach(async () => {
  await assembled.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Calls `onCall` before each GETATTR: the first one shows that the client has the root. */
function watched(ops: FileSystemOps, onCall: () => void): FileSystemOps {
  return new Proxy(ops, {
    get(target, name) {
      if (name === 'getattr') onCall();
      const value = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** Runs a tool against a mount. @param words `URL` stands for the exported folder, `URL/x` for a file in it. @returns its output */
async function run(program: string, ...words: string[]): Promise<string> {
  let server: NfsServer | null = null;
  const ops = watched(assembled.parts.mounted, () => server?.admit());
  server = await NfsServer.start(ops, { readOnly: false, allowOther: true }, { log: silentLogger, clock: systemClock });
  const { path, port } = server.exported;
  const url = (word: string): string =>
    word.replace(/^URL(.*)$/, `nfs://127.0.0.1${path}$1?nfsport=${port}&mountport=${port}`);
  try {
    const { stdout } = await runCommand([program, ...words.map(url)], { timeoutMs: 25_000 });
    await server.opens.settle();
    return stdout;
  } finally {
    await server.close();
  }
}

describe.skipIf(missing !== null)(titled('libnfs', missing), () => {
  test('nfs-cp and nfs-cat copy a file in and out, byte for byte, and the service gets it', async () => {
    const bytes = randomBytes(3_000_001);
    writeFileSync(join(folder, 'in'), bytes);
    await run('nfs-cp', join(folder, 'in'), 'URL/copied');
    await run('nfs-cp', 'URL/copied', join(folder, 'out'));

    expect(readFileSync(join(folder, 'out')).equals(bytes)).toBe(true);
    writeFileSync(join(folder, 'text'), 'a line\n'.repeat(30_000));
    await run('nfs-cp', join(folder, 'text'), 'URL/text');
    expect(await run('nfs-cat', 'URL/text')).toBe('a line\n'.repeat(30_000));
    await assembled.converge();
    const entries = await service.list((await service.user()).home);
    expect(entries.map(({ name, kind }) => `${kind} ${name}`).sort()).toEqual(['file copied', 'file text']);
  });

  test('nfs-ls lists a tree with sizes', async () => {
    const { home } = await service.user();
    const inner = await service.createFolder(await service.createFolder(home, 'outer'), 'inner');
    for (let file = 0; file < 200; file++) await service.createFile(inner, `file ${file}`, 'text/plain');
    await assembled.parts.freshness.refresh();
    const lines = (await run('nfs-ls', '-R', 'URL')).split('\n');

    expect(lines.filter((line) => /^d.* outer(\/inner)?$/.test(line)).length, lines.slice(0, 5).join('\n')).toBe(2);
    expect(lines.filter((line) => /^-.* 0 .*file \d+$/.test(line)).length).toBe(200);
  });
});
