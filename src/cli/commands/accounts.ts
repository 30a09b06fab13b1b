import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { StorageError, UsageError } from '../../base/errors.ts';
import { silentLogger } from '../../base/log.ts';
import { type AccountPaths, accountPaths, type Paths, storeDirectories } from '../../config/paths.ts';
import { chooseAccount } from '../../mount/account-file.ts';
import { removeThumbnails } from '../../mount/desktop-thumbnails.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { localFiles } from '../../mount/pending-changes.ts';
import { type AccountState, accountStates } from '../../mount/running-mounts.ts';
import { Store } from '../../store/environment.ts';
import type { CommandOutput } from '../command-output.ts';

/** The number of local-only files that a message names. */
const NAMED_MAX = 10;

/** `cfs accounts`: the signed-in accounts, their names for `--account`, and their mount points. */
export async function accountsCommand(
  deps: { readonly paths: Paths; readonly print: (text: string) => void },
  flags: { readonly json: boolean },
): Promise<number> {
  const states = await accountStates(deps.paths);
  if (flags.json) deps.print(`${JSON.stringify({ schema: 1, accounts: states.map(accountRecord) }, null, 2)}\n`);
  else for (const line of accountLines(states)) deps.print(`${line}\n`);
  return exitCode('ok');
}

/** Two lines per account. */
export function accountLines(states: readonly AccountState[]): readonly string[] {
  if (states.length === 0) return ['not signed in: run cfs login URL'];
  return states.flatMap(({ name, username, origin, status, silent }) => {
    const where =
      status !== null ? `mounted at ${visible(status.directory)}` : silent ? 'mounted, does not answer' : 'not mounted';
    return [`${visible(username)} at ${origin}, ${where}`, `  --account ${visible(name)}`];
  });
}

function accountRecord({ name, username, origin, status }: AccountState) {
  return { name, username, origin, directory: status?.directory ?? null };
}

/**
 * `cfs logout`: removes token and keys from this machine. The store stays, so that unpushed changes are pushed after the next sign-in.
 * `forget` removes the store too, if nothing is lost by that.
 *
 * @throws UsageError (alreadyMounted) while it is mounted · (pending) if `forget` would lose data
 */
export async function logoutCommand(
  deps: CommandOutput & {
    readonly paths: Paths;
    readonly clock: Clock;
    readonly env: Readonly<Record<string, string | undefined>>;
  },
  flags: { readonly account: string | null; readonly forget: boolean },
): Promise<number> {
  const { name, account } = chooseAccount(deps.paths, flags.account);
  const state = (await accountStates(deps.paths)).find((known) => known.name === name);
  if (state !== undefined && (state.status !== null || state.silent)) {
    const where = state.status === null ? '' : ` at ${visible(state.status.directory)}`;
    throw new UsageError(`the account is mounted${where}: run cfs umount first`, exitCode('alreadyMounted'));
  }
  const files = accountPaths(deps.paths, name);
  // Held to the end: otherwise a mount that starts meanwhile would lose its store.
  const held: Store[] = [];
  let unsynced = 0;
  try {
    await openStores(files, deps.clock, held);
    const { pending, local, named } = onlyHere(held);
    unsynced = pending;
    if (flags.forget && unsynced > 0) {
      throw new UsageError(
        `${unsynced} ${unsynced === 1 ? 'change is' : 'changes are'} only on this machine: first mount and run cfs sync --wait, or run cfs export DIR`,
        exitCode('pending'),
      );
    }
    if (flags.forget && local > 0) {
      const more = local > named.length ? ` and ${local - named.length} more` : '';
      throw new UsageError(
        `${local} ${local === 1 ? 'file stays' : 'files stay'} only on this machine because of their names: ${named.map(visible).join(', ')}${more}: copy them with cfs export DIR, then mount and delete them`,
        exitCode('pending'),
      );
    }
    rmSync(files.accountFile);
    if (flags.forget) {
      rmSync(files.directory, { recursive: true, force: true });
      await removeThumbnails(deps.env, name);
    }
  } finally {
    for (const store of held) await store.close();
  }
  deps.print(`signed out ${visible(account.username)} of ${account.origin}\n`);
  if (unsynced > 0) deps.warn(`${unsynced} not pushed yet: kept here, and pushed after the next cfs login and mount\n`);
  return exitCode('ok');
}

/** What would be lost with the local copies of an account that is not mounted: numbers of changes and of local-only files. */
export async function unsyncedOfAccount(
  deps: { readonly paths: Paths; readonly clock: Clock },
  account: string,
): Promise<{ readonly pending: number; readonly localOnly: number }> {
  const held: Store[] = [];
  try {
    await openStores(accountPaths(deps.paths, account), deps.clock, held);
    const { pending, local } = onlyHere(held);
    return { pending, localOnly: local };
  } finally {
    for (const store of held) await store.close();
  }
}

/** Opens the stores that exist, into `held`: the caller closes them, also after a failure. */
async function openStores(files: AccountPaths, clock: Clock, held: Store[]): Promise<void> {
  for (const directory of storeDirectories(files)) {
    // Opening a store that was never mounted would create it.
    if (existsSync(join(directory, 'index'))) held.push(await openStore(directory, clock));
  }
}

function onlyHere(stores: readonly Store[]): { pending: number; local: number; named: readonly string[] } {
  let pending = 0;
  let local = 0;
  const named: string[] = [];
  for (const store of stores) {
    for (const _ of store.all('dirty')) pending++;
    const { count, paths } = localFiles(store, NAMED_MAX - named.length);
    local += count;
    named.push(...paths);
  }
  return { pending, local, named };
}

/** The store of an account that is not mounted. @throws UsageError with its owner · StorageError */
export async function openStore(directory: string, clock: Clock): Promise<Store> {
  try {
    return await Store.open({ directory, clock, log: silentLogger });
  } catch (error) {
    if (error instanceof UsageError || error instanceof StorageError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new StorageError(`the store in ${visible(directory)} cannot be opened: ${reason}`, { cause: error });
  }
}
