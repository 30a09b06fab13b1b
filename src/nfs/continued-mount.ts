import { readFileSync } from 'node:fs';

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
const VARIABLE = 'CFS_NFS_CONTINUED';

/** The environment of a successor. The state itself comes by its standard input, because it contains the key. */
export function continuedEnvironment(env: Successor['env']): Successor['env'] {
  return { ...env, [VARIABLE]: '1' };
}

export function isContinued(env: Successor['env'] = process.env): boolean {
  return env[VARIABLE] !== undefined;
}

/** The mount that the guard handed to this process; null in a process that mounts. Reads standard input: at most one call succeeds. */
export function readContinuedMount(env: Successor['env'] = process.env): ContinuedMount | null {
  return isContinued(env) ? parseContinuedMount(readFileSync(0, 'utf8')) : null;
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
