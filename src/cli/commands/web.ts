import { spawn } from 'node:child_process';
import type { Clock } from '../../base/clock.ts';
import type { Paths } from '../../config/paths.ts';
import { formatDuration } from '../../config/units.ts';
import { callControl } from '../../control/client.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { OpeningFile } from '../../web/opening-file.ts';
import type { PageFile } from '../../web/page-files.ts';
import { IDLE_MS_MAX, PageServer } from '../../web/page-server.ts';
import type { CommandOutput } from '../command-output.ts';
import { bytesActions } from '../web/bytes-actions.ts';
import { pageActions } from '../web/page-actions.ts';
import { mountAndPath } from './sync.ts';

/** How long the file for the browser exists at most: a browser that starts is slow. The code is nowhere else. */
export const OPENING_MS_MAX = 120_000;

type Deps = CommandOutput & {
  readonly paths: Paths;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly files: ReadonlyMap<string, PageFile>;
};

/**
 * `cfs web`: serves the page on loopback until Ctrl-C, or until no page was open for some time, whether a mount runs or not: the page mounts.
 * A code leads one browser to the page; with `open` the browser gets it in a file, and it is not printed, because the output of a desktop
 * entry ends in a log. If no browser has used it when the file is removed, none can any more.
 */
export async function webCommand(
  deps: Deps,
  flags: {
    readonly port: number;
    readonly hosts: readonly string[];
    readonly open: boolean;
    /** A file or folder in a mount, at which the page begins; null: at the overview. */
    readonly path: string | null;
    /** Aborted when the page is to end. */
    readonly until: AbortSignal;
  },
): Promise<number> {
  const route = flags.path === null ? '' : await routeOf(deps.paths, flags.path);
  const server = await PageServer.listen(
    { ...deps, actions: pageActions(deps), bytes: bytesActions(deps) },
    { port: flags.port, hosts: flags.hosts },
  );
  let opening: OpeningFile | null = null;
  const unopened = new AbortController();
  try {
    deps.print(`the page: ${server.origin}/\n`);
    if (flags.open) opening = openBrowser(deps, server, route, () => unopened.abort());
    else deps.print(`its code, for one browser: ${server.newCode(() => {})}\n`);
    deps.print(`it ends with Ctrl-C, or when no browser has shown it for ${formatDuration(IDLE_MS_MAX)}\n`);
    await aborted(AbortSignal.any([flags.until, server.idle, unopened.signal]));
  } finally {
    opening?.remove();
    await server.close();
  }
  return exitCode('ok');
}

/** The part of the page's address that shows a file or a folder. @throws UsageError (missing, notMounted) */
async function routeOf(paths: Paths, file: string): Promise<string> {
  const { mount, path } = await mountAndPath(paths, { file, account: null });
  const { kind } = await callControl(mount.socketPath, 'locate', { path });
  const names = (path ?? '').split('/').filter((name) => name !== '');
  return ['', kind === 'folder' ? 'files' : 'file', mount.name, ...names].map(encodeURIComponent).join('/');
}

/** The command in $BROWSER, else that of the desktop. Its failure leaves the page usable, until `onUnopened`: no browser came. */
function openBrowser(deps: Deps, server: PageServer, route: string, onUnopened: () => void): OpeningFile {
  const code = server.newCode(() => {
    cancelUnopened();
    opening.remove();
  });
  const opening = new OpeningFile(deps.paths, { origin: server.origin, code, route });
  const cancelUnopened = deps.clock.after(OPENING_MS_MAX, () => {
    deps.warn('no browser has opened the page: run cfs web --open again, or cfs web without --open\n');
    onUnopened();
  });
  const program = deps.env.BROWSER || 'xdg-open';
  const failed = (why: string): void =>
    deps.warn(
      `${visible(program)} ${why}: open ${visible(opening.path)} in a browser, or run cfs web without --open\n`,
    );
  const child = spawn(program, [opening.path], { detached: true, stdio: 'ignore', env: { ...deps.env } });
  child.on('error', (error: NodeJS.ErrnoException) => failed(`cannot be started (${error.code})`));
  child.on('exit', (code) => {
    if (code !== 0 && code !== null) failed(`ended with ${code}`);
  });
  child.unref();
  return opening;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
