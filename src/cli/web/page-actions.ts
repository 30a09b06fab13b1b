import { execFile } from 'node:child_process';
import { mkdir, readdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UsageError } from '../../base/errors.ts';
import type { ResourceUrl } from '../../base/vocabulary.ts';
import { callControl } from '../../control/client.ts';
import { mountOn } from '../../kernel/mount-table.ts';
import { NO_DASH_O_OPTIONS } from '../../mount/dash-o-options.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { chooseMount, type RunningMount } from '../../mount/running-mounts.ts';
import { settledOptions } from '../../mount/settled-options.ts';
import type { Directories, FolderView, PageActions, Said } from '../../web/page-call.ts';
import type { CommandContext } from '../command-context.ts';
import { CONFLICT_CHOICES } from '../command-table.ts';
import { logoutCommand, unsyncedOfAccount } from '../commands/accounts.ts';
import { type ConflictChoice, conflictsKeepCommand } from '../commands/conflicts.ts';
import { discardCommand } from '../commands/discard.ts';
import { evictCommand } from '../commands/evict.ts';
import { findFileInMount } from '../commands/file-in-mount.ts';
import { loginCommand } from '../commands/login.ts';
import { pauseCommand, resumeCommand } from '../commands/pause.ts';
import { pinCommand, unpinCommand } from '../commands/pin.ts';
import { refreshCommand, retryCommand } from '../commands/refresh.ts';
import { restoreCommand } from '../commands/restore.ts';
import { hasService } from '../commands/service.ts';
import { shareLinkCommand } from '../commands/share.ts';
import { syncCommand } from '../commands/sync.ts';
import { trashEmptyCommand, trashItems, trashRestoreCommand } from '../commands/trash.ts';
import { umountCommand } from '../commands/umount.ts';
import { namedVersions } from '../commands/version-choice.ts';
import { mountCommand } from '../launch/mount-command.ts';
import { DOCUMENTS_MS_MAX, withService } from '../service-access.ts';
import { type Captured, captured } from './captured-output.ts';

type Context = Pick<CommandContext, 'paths' | 'clock' | 'env'>;

/** Limit of pushing pending changes before an unmount by the page. */
const DRAIN_MS_MAX = 60_000;
/** systemd mounts before it answers. */
const SERVICE_MS_MAX = 120_000;
/** Entries of a folder in one answer to the page. */
const ENTRIES_MAX = 1_000;

/** What each button of the page does: the same functions as the commands. */
export function pageActions(context: Context): PageActions {
  const say = (run: (deps: Captured) => Promise<number>): Promise<Said> => captured(context, run);
  const mountOf = (account: string): Promise<RunningMount> => chooseMount(context.paths, { directory: null, account });
  const placeOf = async (account: string, path: string): Promise<string> => {
    const { directory } = (await mountOf(account)).status;
    const place = resolve(directory, path);
    if (place === directory || place.startsWith(`${directory}/`)) return place;
    throw new UsageError(`${visible(path)} is not in the mount`);
  };
  const onFile =
    (run: (deps: Captured, file: string) => Promise<number>) =>
    async ({ account, path }: { readonly account: string; readonly path: string }): Promise<Said> => {
      const file = await placeOf(account, path);
      return say((deps) => run(deps, file));
    };
  return {
    signIn: ({ url, insecure, ...given }) =>
      say((deps) => loginCommand({ ...deps, prompt: null }, { url, insecure, given })),
    signOutLoss: ({ account }) => unsyncedOfAccount(context, account),
    signOut: ({ account, forget }) => say((deps) => logoutCommand(deps, { account, forget })),
    directories: ({ path }) => directoriesAt(path ?? homedir()),
    makeDirectory: async ({ path }) => {
      await mkdir(path);
      return { said: `created ${visible(path)}`, isDone: true };
    },
    mount: async ({ account, directory }) => {
      await mkdir(directory).catch(() => {}); // if that was needed and impossible, the mount refuses with the reason
      const options = settledOptions(context.env, context.paths);
      const flags = { directory, account, foreground: false, words: NO_DASH_O_OPTIONS, flags: [] };
      return say((deps) => mountCommand({ ...deps, options }, flags));
    },
    unmount: ({ account }) => say((deps) => umountCommand(deps, { directory: null, account, timeoutMs: DRAIN_MS_MAX })),
    installService: ({ account, directory }) =>
      program(context, ['service', 'install', '--account', account, '--', directory]),
    service: async ({ directory }) => ({ isInstalled: hasService(context, directory) }),
    removeService: ({ directory }) => program(context, ['service', 'remove', '--', directory]),
    pause: ({ account, forMs }) => say((deps) => pauseCommand(deps, { account, forMs })),
    resume: ({ account }) => say((deps) => resumeCommand(deps, { account })),
    push: ({ account }) => say((deps) => syncCommand(deps, { file: null, account, wait: false, timeoutMs: null })),
    refresh: ({ account, accept }) => say((deps) => refreshCommand(deps, { file: null, account, accept })),
    retry: async ({ account, path }) => {
      const file = path === null ? null : await placeOf(account, path);
      return say((deps) => retryCommand(deps, { file, account }));
    },
    discardLoss: async ({ account, path }) => {
      const { socketPath } = await mountOf(account);
      return (await callControl(socketPath, 'discard', { path, isSure: false })).given;
    },
    discard: onFile((deps, file) => discardCommand(deps, { file, account: null, isSure: true })),
    conflicts: async ({ account }) => callControl((await mountOf(account)).socketPath, 'conflicts', { path: null }),
    keep: ({ account, path, side }) => {
      if (!CONFLICT_CHOICES.includes(side as ConflictChoice)) throw new UsageError(`${visible(side)} is no side`);
      return onFile((deps, file) => conflictsKeepCommand(deps, { file, side: side as ConflictChoice }))({
        account,
        path,
      });
    },
    folder: async ({ account, path, after }) => folderView(await mountOf(account), path, after),
    file: async ({ account, path }) => {
      const place = await placeOf(account, path);
      return withWait(context, async (deps) => {
        const { mount, located, resource } = await findFileInMount(deps, place);
        return withService(deps, mount.name, async (service) => {
          const signal = AbortSignal.timeout(DOCUMENTS_MS_MAX);
          const versions = namedVersions(await service.versions(resource as ResourceUrl, signal));
          const link = (await service.links?.publicLink(resource, signal)) ?? null;
          return {
            path,
            isPending: located.isPending,
            link,
            versions: versions.map(({ name, version }) => ({
              name,
              sizeBytes: version.sizeBytes,
              savedMs: version.lastModifiedMs,
            })),
          };
        });
      });
    },
    // The fetch goes on in the mount; the page does not wait for it.
    pin: async ({ account, path }, signal) => {
      const file = await placeOf(account, path);
      const { socketPath } = await mountOf(account);
      const begun = new AbortController();
      const until = AbortSignal.any([signal, begun.signal]);
      const onProgress = (): void => begun.abort();
      try {
        await callControl(socketPath, 'pin', { path }, { onProgress, signal: until });
      } catch (error) {
        if (!begun.signal.aborted) throw error;
        return { said: `${visible(file)} is pinned: it is being fetched`, isDone: true };
      }
      return say((deps) => pinCommand(deps, { file, account: null }));
    },
    unpin: onFile((deps, file) => unpinCommand(deps, { file, account: null })),
    evict: onFile((deps, file) => evictCommand(deps, { file, account: null })),
    link: async ({ account, path, on }) => {
      const file = await placeOf(account, path);
      const { said } = await say((deps) => shareLinkCommand(deps, { file, state: on ? 'on' : 'off' }));
      return { link: on ? (said.split('\n', 1)[0] ?? null) : null };
    },
    restore: ({ account, path, version }) =>
      onFile((deps, file) => restoreCommand(deps, { what: `${file}@${version}`, to: null }))({ account, path }),
    trash: ({ account }) =>
      withWait(context, (deps) =>
        withService(deps, account, async (service) => ({
          items: (await trashItems(service)).map(({ id, entry }) => ({
            id,
            name: entry.name,
            kind: entry.kind,
            sizeBytes: entry.kind === 'file' ? entry.sizeBytes : null,
            savedMs: entry.kind === 'file' ? entry.lastModifiedMs : null,
          })),
        })),
      ),
    trashRestore: ({ account, item }) => say((deps) => trashRestoreCommand(deps, { account, item, to: null })),
    trashEmpty: ({ account }) => say((deps) => trashEmptyCommand({ ...deps, prompt: null }, { account, yes: true })),
  };
}

async function withWait<T>(context: Context, run: (deps: Captured) => Promise<T>): Promise<T> {
  let result: T | undefined;
  await captured(context, async (deps) => {
    result = await run(deps);
    return exitCode('ok');
  });
  return result as T;
}

/** A command that waits synchronously for systemd runs in a process of its own. */
function program({ env }: Context, args: readonly string[]): Promise<Said> {
  const cfs = fileURLToPath(new URL('../cfs.js', import.meta.url));
  return new Promise((settle) => {
    const options = { env: { ...env }, timeout: SERVICE_MS_MAX };
    execFile(process.execPath, [cfs, ...args], options, (error, stdout, stderr) =>
      settle({ said: `${stdout}${stderr}`.replace(/^cfs: /, '').trimEnd(), isDone: error === null }),
    );
  });
}

/** Without hidden ones. A directory in which something is mounted is left out. @throws NodeJS.ErrnoException */
async function directoriesAt(path: string): Promise<Directories> {
  const at = resolve(path);
  const entries = await readdir(at, { withFileTypes: true });
  const names = entries
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.') && mountOn(join(at, entry.name)) === null)
    .map(({ name }) => name)
    .sort((one, other) => one.localeCompare(other));
  return { path: at, parent: at === '/' ? null : dirname(at), names, isEmpty: entries.length === 0 };
}

/** The kernel's question makes the mount list the folder; the rows come from the mount itself, with their states. */
async function folderView(mount: RunningMount, path: string, after: string | null): Promise<FolderView> {
  if (after === null) await readdir(join(mount.status.directory, path));
  const entries = [];
  for (let next = after; ; ) {
    const page = await callControl(mount.socketPath, 'folder', { path, after: next });
    entries.push(...page.entries);
    next = page.next;
    if (next === null || entries.length >= ENTRIES_MAX) return { path, entries, next };
  }
}
