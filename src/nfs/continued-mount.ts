import { readFileSync, writeSync } from 'node:fs';

/** What a mounting process needs to continue the NFS mount of a process that died. */
export interface ContinuedMount {
  /** The exported path: it names the mount in the mount table. */
  readonly path: string;
  /** The key of the file handles that the client holds. */
  readonly key: Buffer;
}

/** The program that continues a mount: the mounting process, with the environment of the first one. */
export interface Successor {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** The descriptor of the listening socket in a successor. */
export const LISTENING_DESCRIPTOR = 3;
/** A pipe to the guard: a successor that writes to it is no failed attempt. */
export const SERVED_DESCRIPTOR = 4;
const VARIABLE = 'CFS_NFS_CONTINUED';
/** The value from a guard that has the pipe. A guard is as old as its mount, and a successor may be of a newer version. */
const WITH_PIPE = 'with pipe';

/** The environment of a successor. The state itself comes by its standard input, because it contains the key. */
export function continuedEnvironment(env: Successor['env']): Successor['env'] {
  return { ...env, [VARIABLE]: WITH_PIPE };
}

export function isContinued(env: Successor['env'] = process.env): boolean {
  return env[VARIABLE] !== undefined;
}

/** The mount that the guard handed to this process; null in a process that mounts. Reads standard input: at most one call succeeds. */
export function readContinuedMount(env: Successor['env'] = process.env): ContinuedMount | null {
  return isContinued(env) ? parseContinuedMount(readFileSync(0, 'utf8')) : null;
}

/** Reports to the guard that this process has served its client for a while. */
export function reportServed(env: Successor['env'] = process.env): void {
  if (env[VARIABLE] !== WITH_PIPE) return;
  try {
    writeSync(SERVED_DESCRIPTOR, 'served\n');
  } catch {
    // The guard was killed.
  }
}

/** One line of text. */
export function writeContinuedMount({ path, key }: ContinuedMount): string {
  return `${path} ${key.toString('hex')}\n`;
}

/** @throws Error for text of another form */
export function parseContinuedMount(text: string): ContinuedMount {
  const [, path, key] = /^(\/\S+) ([0-9a-f]{64})\n$/.exec(text) ?? [];
  if (path === undefined || key === undefined) throw new Error('no NFS mount to continue on standard input');
  return { path, key: Buffer.from(key, 'hex') };
}
