import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import { silentLogger } from '../base/log.ts';
import type { Options } from '../config/options.ts';
import { accountPaths, type Paths } from '../config/paths.ts';
import { HttpService } from '../remote/http-service.ts';
import { readAccountFile } from './account-file.ts';
import { DemoServer } from './demo-server.ts';
import { demoTree, plantTree } from './demo-tree.ts';
import { launchMount } from './launch.ts';
import { signIn } from './login.ts';
import { checkNotMounted, endInForeground, mountRequest } from './mount-command.ts';
import { visible } from './mount-event.ts';
import { checkFuse, checkMountPoint } from './mount-point.ts';

const EMAIL = 'demo@example.com';

/** Kept beside the server's data once the demo account is complete. */
interface DemoState {
  readonly origin: string;
  readonly account: string;
}

/**
 * `cfs demo [DIR]`, behind `npm start`: an embedded server with an account that holds a small tree, mounted in the foreground.
 * What is there from an earlier start is used as it is.
 */
export async function demoCommand(
  deps: {
    paths: Paths;
    options: Options;
    env: Readonly<Record<string, string | undefined>>;
    clock: Clock;
    print: (text: string) => void;
  },
  flags: { readonly directory: string | null },
): Promise<number> {
  checkFuse(deps.env);
  const wanted = flags.directory ?? join(deps.env.HOME ?? homedir(), 'Cloud');
  const directory = pointFor(wanted, deps.options);
  const server = await DemoServer.start(deps.paths.demoServerDirectory);
  try {
    const account = knownAccount(deps.paths, server.origin) ?? (await newAccount(deps, server));
    await checkNotMounted(deps.paths, account);
    const mount = await launchMount(mountRequest(deps, { directory, account, foreground: true }));
    deps.print(whatToTry(directory));
    return await endInForeground(mount);
  } finally {
    await server.stop();
  }
}

/** Makes the directory where it is missing; a dead mount on it is not missing. */
function pointFor(wanted: string, options: Options): string {
  try {
    mkdirSync(wanted, { recursive: true });
  } catch {
    // checkMountPoint says what is wrong, or takes the dead mount away.
  }
  return checkMountPoint(wanted, { allowNonEmpty: options.nonempty });
}

function stateFile(paths: Paths): string {
  return join(paths.demoServerDirectory, 'demo.json');
}

/** The account of an earlier start; null where that one did not come so far, or what it left is gone. */
function knownAccount(paths: Paths, origin: string): string | null {
  try {
    const state = JSON.parse(readFileSync(stateFile(paths), 'utf8')) as Partial<DemoState>;
    if (state.origin !== origin || typeof state.account !== 'string') return null;
    readAccountFile(accountPaths(paths, state.account).accountFile);
    return state.account;
  } catch {
    return null;
  }
}

/** Each step may have happened in a start that was killed: all of them can be repeated. */
async function newAccount(deps: { paths: Paths; clock: Clock }, server: DemoServer): Promise<string> {
  const password = randomBytes(18).toString('base64url'); // used once, kept by nobody
  const keys = await server.prepareUser(EMAIL, password);
  const how = { origin: server.origin, inputs: { username: EMAIL, password, ...keys }, insecure: false };
  const { name, account } = await signIn({ ...deps, log: silentLogger }, how);
  const { application, accessKeyId, privateAccessKey, refreshToken } = account;
  const service = new HttpService({
    baseUrl: server.origin,
    userAgent: 'cfs-mount',
    keys: { application, accessKeyId, privateAccessKey },
    refreshToken,
    clock: deps.clock,
    log: silentLogger,
  });
  try {
    await plantTree(service, (await service.user()).magicBriefcase, demoTree());
  } finally {
    await service.close();
  }
  const state: DemoState = { origin: server.origin, account: name };
  writeFileSync(`${stateFile(deps.paths)}.new`, JSON.stringify(state), { mode: 0o600 });
  renameSync(`${stateFile(deps.paths)}.new`, stateFile(deps.paths));
  return name;
}

/** At most eight lines, with the one that says *mounted*. */
function whatToTry(directory: string): string {
  const shown = shellWord(directory);
  return [
    'Try, in another terminal:',
    `  ls -R ${shown}`,
    `  echo hello >> ${shown}/Welcome.txt      # a new version: a line appears here`,
    `  cp -r /etc/fonts ${shown}/              # any program, any file`,
    `  node dist/cli/cfs.js status             # what the server has, and what not yet`,
    `To stop: Ctrl-C here, or fusermount3 -u ${shown}. The next start finds everything as it was.`,
    '',
  ].join('\n');
}

/** A path as one can paste it into a shell. */
function shellWord(path: string): string {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${visible(path).replaceAll("'", "'\\''")}'`;
}
