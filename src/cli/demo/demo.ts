import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { shellWord } from '../../base/shell-word.ts';
import type { Options } from '../../config/options.ts';
import { homeDirectory, type Paths } from '../../config/paths.ts';
import { mountOn } from '../../kernel/mount-table.ts';
import { type LaunchedMount, launchMount } from '../../mount/launch.ts';
import { visible } from '../../mount/mount-event.ts';
import { checkMountPoint, mountPathOf } from '../../mount/mount-point.ts';
import { checkNotMounted, mountRequest } from '../../mount/mount-preparation.ts';
import { systemBindingOf } from '../../mount/system-binding.ts';
import { SignalRelay } from '../launch/signal-relay.ts';
import { type DemoAccount, knownAccount } from './demo-account.ts';
import { DemoServer } from './demo-server.ts';

interface DemoDeps {
  readonly paths: Paths;
  readonly options: Options;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readonly print: (text: string) => void;
}

/**
 * `cfs demo [DIR]`, which `npm start` runs: mounts an account of an embedded server with a small tree, in the foreground.
 * The data of an earlier start are reused.
 */
export async function demoCommand(deps: DemoDeps, flags: { readonly directory: string | null }): Promise<number> {
  systemBindingOf(deps.options).check();
  const directory = await pointFor(flags.directory ?? join(homeDirectory(deps.env), 'Cloud'), deps.options);
  const known = knownAccount(deps.paths);
  if (known !== null) await checkNotMounted(deps.paths, known.name);

  const signals = new SignalRelay();
  try {
    const { server, mount } = await startBoth(deps, directory, known);
    try {
      deps.print(whatToTry(directory, deps.env.npm_lifecycle_event === 'start'));
      return await signals.passTo(mount);
    } finally {
      await server.stop();
    }
  } finally {
    signals.dispose();
  }
}

/** A known account is mounted while the server still starts: the mount answers from its store. */
async function startBoth(
  deps: DemoDeps,
  directory: string,
  known: DemoAccount | null,
): Promise<{ server: DemoServer; mount: LaunchedMount }> {
  const mountAs = (name: string) => launchMount(mountRequest(deps, { directory, account: name, foreground: true }));
  const [started, mounted] = await Promise.allSettled([
    DemoServer.start(deps.paths.demoServerDirectory),
    known === null ? Promise.resolve(null) : mountAs(known.name),
  ]);
  const early = mounted.status === 'fulfilled' ? mounted.value : null;
  if (started.status === 'rejected') {
    await endMount(early);
    throw started.reason;
  }
  const server = started.value;
  try {
    if (mounted.status === 'rejected') throw mounted.reason;
    if (early !== null && known?.origin === server.origin) return { server, mount: early };
    // The first start, or data of another server.
    await endMount(early);
    const { newAccount } = await import('./demo-account-making.ts');
    return { server, mount: await mountAs(await newAccount(deps, server)) };
  } catch (error) {
    await server.stop();
    throw error;
  }
}

async function endMount(mount: LaunchedMount | null): Promise<void> {
  mount?.signal('SIGTERM');
  await mount?.ended;
}

/** Creates the directory if it is missing. A mount on it is not accessed: it may be dead. */
async function pointFor(wanted: string, options: Options): Promise<string> {
  try {
    if (mountOn(mountPathOf(wanted)) === null) mkdirSync(wanted, { recursive: true });
  } catch {
    // checkMountPoint reports the fault.
  }
  return checkMountPoint(wanted, { allowNonEmpty: options.nonempty });
}

/** At most eight lines, with the one that says *mounted*. `isClone`: started by `npm start`, so that `cfs` may not be on PATH. */
function whatToTry(directory: string, isClone: boolean): string {
  const shown = pasted(directory);
  const status = isClone ? 'node dist/cli/cfs.js status            ' : 'cfs status                             ';
  return [
    'Try, in another terminal:',
    `  ls -R ${shown}`,
    `  echo hello >> ${shown}/Welcome.txt      # a new version: a line appears here`,
    `  cp -r /etc/fonts ${shown}/              # any program, any file`,
    `  ${status} # what the server has, and what not yet`,
    `To stop: Ctrl-C here, or fusermount3 -u ${shown}. The next start finds everything as it was.`,
    '',
  ].join('\n');
}

/** A path as one can paste it into a shell. */
function pasted(path: string): string {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : shellWord(visible(path));
}
