import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type Ablation, failuresIn } from './harness/ablation.ts';
import { runCommand } from './harness/command.ts';
import { PROJECT } from './imports.ts';

/** Safeguards that are taken out of the sources one at a time, and the tests that fail then: these prove that the safeguards are needed. */
const ABLATIONS: readonly (Ablation & { readonly fails: readonly string[] })[] = [
  {
    safeguard: 'names that a complete folder called absent are forgotten by its first listing',
    file: 'src/tree/listing-application.ts',
    from: '!wasListed && !this.#wasComplete.has(listing.folder)',
    to: '!wasListed',
    test: 'test/tree/listing-merge.test.ts',
    fails: ['are forgotten one by one by the first listing of a folder that was created here and elsewhere'],
  },
  {
    safeguard: 'a first listing sends one notification for all of its names',
    file: 'src/tree/listing-application.ts',
    from: '!wasListed && !this.#wasComplete.has(listing.folder)',
    to: 'false',
    test: 'test/tree/listing-merge.test.ts',
    fails: ['are none in a first listing: one notification stands for all of its entries'],
  },
  {
    safeguard: 'the kernel does not cache the absence of a name in a folder without a listing',
    file: 'src/fs/node-view.ts',
    from: 'isListed ? this.#entryTimeoutMs : 0',
    to: 'isListed ? this.#entryTimeoutMs : this.#entryTimeoutMs',
    test: 'test/fs/node-view.test.ts',
    fails: ['the kernel caches the absence of a name only in a folder that was listed'],
  },
  {
    safeguard: 'a place that is read again from the service is cached on the disk',
    file: 'src/content/half-blocks.ts',
    from: ' || this.#seen?.has(keyOf(id, start)) === true',
    to: '',
    test: 'test/content/half-blocks.test.ts',
    fails: ['a half that has left the memory comes with its whole block, which then is in the cache'],
  },
  {
    safeguard: 'halves are not fetched from a service that ignores ranges',
    file: 'src/content/fetches.ts',
    from: 'return fetched.isLonger ? null : fetched.bytes;',
    to: 'return fetched.bytes;',
    test: 'test/content/half-blocks.test.ts',
    fails: ['a service that ignores ranges is asked for half a block once, and then for the file'],
  },
  ofBusyWait(
    'a client that thinks between its calls costs no waiting',
    ['busy-wait.ts', 'startedMs - this.#repliedMs < AWAKE_MS', 'startedMs - this.#repliedMs < 1'],
    'a client that thinks for longer than 50 µs never starts it',
  ),
  ofBusyWait(
    'a wait in vain costs more trust than a call earns',
    ['busy-wait.ts', 'this.#trust -= TRUST_LOST', 'this.#trust -= 1'],
    'a wait in vain costs four that succeeded',
    'a long row of calls earns no more than four waits in vain',
  ),
  ofBusyWait(
    'trust has a limit',
    ['busy-wait.ts', 'if (this.#trust < TRUST_MAX) ', ''],
    'a long row of calls earns no more than four waits in vain',
  ),
  ofBusyWait(
    'a turn of the event loop ends while calls come',
    ['busy-wait.ts', ' && this.#repliedMs - startedMs < TURN_MS', ''],
    'after half a millisecond the event loop has its turn',
  ),
  ofBusyWait(
    'each reception has memory of its own',
    ['busy-wait.ts', 'this.#pool = this.#pool.subarray(bytes);', ''],
    'the bytes of a reception stay the same while later ones arrive',
  ),
  ofBusyWait(
    'a pending reply gets the event loop',
    ['rpc-server.ts', 'inFlight === 0 && socket.writableLength === 0', 'socket.writableLength === 0'],
    'does not wait awake while a reply is pending',
  ),
  ofBusyWait(
    'a paused stream is not read past',
    ['direct-socket.ts', 'this.#socket.isPaused() || ', ''],
    'receives nothing past a stream that is paused',
  ),
  ofBusyWait(
    'bytes are received in their order',
    ['direct-socket.ts', ' || this.#socket.readableLength > 0', ''],
    'receives nothing past a stream that has received bytes before',
  ),
];

/** A condition of the NFS server's waiting awake. Without one, the server only loses time, or a reply comes late. */
function ofBusyWait(
  safeguard: string,
  [file, from, to]: readonly [string, string, string],
  ...fails: readonly string[]
) {
  return { safeguard, file: `src/nfs/${file}`, from, to, test: 'test/nfs/busy-wait.test.ts', fails };
}

test.each(ABLATIONS)('without its safeguard a test fails: $safeguard', async ({ fails, ...ablation }) => {
  const folder = mkdtempSync(join(tmpdir(), 'cfs-ablation-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const report = join(folder, 'report.json');
  const words = ['run', '--config', 'test/ablated-run.ts', '--reporter=json', `--outputFile.json=${report}`];
  await runCommand([process.execPath, join(PROJECT, 'node_modules/vitest/vitest.mjs'), '--root', PROJECT, ...words], {
    env: { CFS_ABLATION: JSON.stringify(ablation) },
    anyExitCode: true,
    timeoutMs: 110_000,
  });
  expect(failuresIn(report)).toEqual(fails);
});
