// `npm run soak`: the long runs. The same test files as in `npm test`, given more to do; all of them one after the other, or one.
//
//   npm run soak                    everything: hours
//   npm run soak -- clients         two mounts and the web: 200 seeds
//   npm run soak -- crashes 2000    SIGKILL at every step and at any moment: so many kills, 1,000 unless told
//   npm run soak -- kernel          one mount for a minute: 32 threads of mixed calls, 8 finds
//   npm run soak -- model           1,000,000 operations beside a plain directory
//   npm run soak -- sync            1,000,000 generated histories of two clients and a service that loses requests
//   npm run soak -- programs        cp, tar, rsync and zip of 10,000 files, 500 commits, sqlite3 killed 25 times
//   npm run soak -- disk            a disk that is full at each step of the store that needs room
//   npm run soak -- hanging         saves beside a stopped server and a listing of 100,000 entries
//   npm run soak -- conformance     the conformance suite with 100,000 entries in a folder
//
// Each prints its seeds; CFS_SEED=N repeats one, and a seed that failed goes into the list of its test file.
import { spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

/** `files` of vitest's project `mount`, or a `command` for node; `environment(amount)`: what makes it long. */
const parts = new Map(
  await Promise.all(
    readdirSync(join(root, 'scripts/soak'))
      .filter((name) => name.endsWith('.mjs'))
      .sort()
      .map(async (name) => [name.slice(0, -'.mjs'.length), await import(`./soak/${name}`)]),
  ),
);

const [name, amount] = process.argv.slice(2);
if (name !== undefined && !parts.has(name)) {
  console.error(`no such part: ${name} (there are ${[...parts.keys()].join(', ')})`);
  process.exit(2);
}

function run(command, args, env) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: 'inherit', env: { ...process.env, ...env } });
    child.on('exit', (code) => resolve(code ?? 1));
    child.on('error', () => resolve(1));
  });
}

if ((await run(process.execPath, ['scripts/bootstrap.mjs'], {})) !== 0) process.exit(1);
const failed = [];
for (const [part, { files, environment, command }] of parts) {
  if (name !== undefined && part !== name) continue;
  console.log(`\n== soak: ${part}`);
  const started = performance.now();
  const vitest = ['node_modules/vitest/vitest.mjs', 'run', '--project', 'mount', ...(files ?? [])];
  const code = await run(process.execPath, command ?? vitest, environment(amount));
  console.log(`${part}: ${code === 0 ? 'held' : 'FAILED'} after ${Math.round((performance.now() - started) / 1000)} s`);
  if (code !== 0) failed.push(part);
}
if (failed.length > 0) console.log(`\nfailed: ${failed.join(', ')}`);
process.exit(failed.length === 0 ? 0 : 1);
