import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { UsageError } from '../../base/errors.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import type { CommandOutput } from '../command-output.ts';
import { DOCUMENTS_MS_MAX, type ServiceDeps, withService } from '../service-access.ts';
import { CleanupOnSignal } from './cleanup-on-signal.ts';
import { findFileInMount, findInMount } from './file-in-mount.ts';
import { chooseVersion, namedVersions, parseVersionOf } from './version-choice.ts';
import { fetchVersion } from './version-fetch.ts';

export interface DiffFlags {
  /** `FILE@VERSION`, or `FILE` for the present content. */
  readonly before: string;
  readonly after: string;
  /** A shell command; null: CFS_DIFF, or `diff -u`. */
  readonly tool: string | null;
}

const STANDARD_TOOL = 'diff -u';
/** SIGPIPE, as a shell reports it. */
const PIPE_CLOSED = 141;

/** `cfs diff FILE@V1 FILE@V2`: runs the user's program on both. Exit code: ok if the program reports no difference. */
export async function diffCommand(deps: ServiceDeps & CommandOutput, flags: DiffFlags): Promise<number> {
  const directory = await mkdtemp(join(tmpdir(), 'cfs-diff-'));
  const cleanup = new CleanupOnSignal();
  cleanup.add(directory);
  try {
    const before = await onDisk(deps, flags.before, join(directory, 'a'));
    const after = await onDisk(deps, flags.after, join(directory, 'b'));
    return await compare(flags.tool, before, after, deps.env);
  } finally {
    await rm(directory, { recursive: true, force: true });
    cleanup.dispose();
  }
}

/**
 * Hands two files to the user's comparison command.
 *
 * @returns the exit code: ok where that command says that they are the same
 * @throws UsageError if that command fails
 */
export async function compare(
  givenTool: string | null,
  before: string,
  after: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<number> {
  const tool = givenTool ?? (env.CFS_DIFF || STANDARD_TOOL);
  const code = await run(tool, before, after, env);
  if (code === 0) return exitCode('ok');
  // The reader closed the pipe (`cfs diff … | head -1`), so there was output: the versions differ.
  if (code === 1 || code === PIPE_CLOSED) return exitCode('different');
  throw new UsageError(
    `the comparison command (${visible(tool)}) failed with exit code ${code}: see --tool and CFS_DIFF`,
  );
}

/** @param prefix of the path of a temporary copy @returns the path of the bytes */
async function onDisk(deps: ServiceDeps & CommandOutput, what: string, prefix: string): Promise<string> {
  const { file, version: wanted } = parseVersionOf(what, existsSync);
  if (wanted === null) {
    await findInMount(deps, file);
    return resolve(file);
  }
  const { mount, resource } = await findFileInMount(deps, file);
  return withService(deps, mount.name, async (service) => {
    const versions = namedVersions(await service.versions(resource, AbortSignal.timeout(DOCUMENTS_MS_MAX)));
    const chosen = chooseVersion(versions, wanted, file);
    // The program shows this name, so it contains the time, unless the name already has 255 bytes.
    const path = `${prefix}-${chosen.name}-${basename(file).slice(0, 50)}`;
    await fetchVersion({ service, output: deps, wait: deps.wait }, chosen, path);
    return path;
  });
}

function run(
  tool: string,
  before: string,
  after: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<number> {
  return new Promise((resolveCode, reject) => {
    // The paths are arguments, not part of the shell's text: a name may contain any character.
    const child = spawn('sh', ['-c', `${tool} "$1" "$2"`, 'cfs-diff', before, after], { stdio: 'inherit', env });
    child.once('error', reject);
    child.once('exit', (code, signal) => resolveCode(code ?? (signal === 'SIGPIPE' ? PIPE_CLOSED : 129)));
  });
}
