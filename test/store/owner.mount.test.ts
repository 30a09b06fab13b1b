import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { TemporaryStores } from './temporary-store.ts';

/** What a container and its host are to each other that share a directory: pids of their own (pid_namespaces(7)). */

const IN_ANOTHER_NAMESPACE = ['--map-root-user', '--pid', '--fork', '--mount-proc'];
const isAllowed = spawnSync('unshare', [...IN_ANOTHER_NAMESPACE, 'true']).status === 0;
const stores = new TemporaryStores();

const OPENS = `
const { Store } = await import(process.argv[1] + '/store/environment.js');
const { systemClock: clock } = await import(process.argv[1] + '/base/clock.js');
const { silentLogger: log } = await import(process.argv[1] + '/base/log.js');
const outcome = await Store.open({ directory: process.argv[2], clock, log }).then(
  () => 'has it',
  (error) => error.message,
);
process.stdout.write(outcome, () => process.exit(0));
`;

function openedInAnotherNamespace(directory: string): string {
  const dist = new URL('../../dist', import.meta.url).href;
  const args = [...IN_ANOTHER_NAMESPACE, process.execPath, '--input-type=module', '-e', OPENS, dist, directory];
  return spawnSync('unshare', args, { encoding: 'utf8', timeout: 20_000 }).stdout;
}

test.skipIf(!isAllowed)(
  `a store has one owner even across containers${isAllowed ? '' : ' (needs: unshare --map-root-user --pid)'}`,
  async () => {
    const directory = stores.directory();
    const store = await stores.open(directory);
    expect(openedInAnotherNamespace(directory)).toBe(`the store in ${directory} is in use by process ${process.pid}`);

    await store.close();
    expect(openedInAnotherNamespace(directory)).toBe('has it');
    // Nor does what one that was killed left behind keep anybody away.
    await stores.open(directory);
  },
);
