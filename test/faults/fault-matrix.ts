import { expect, vi } from 'vitest';
import type { Fault, FaultRule } from '../../src/server/fault-plan.ts';
import type { RawClient } from '../server/raw-client.ts';
import { texts } from '../server/raw-client.ts';
import type { FaultySide } from './faulty-side.ts';

/** Larger than what is kept with its name. */
const OLD = Buffer.alloc(20_000, 'old bytes ');
/** More than what a mount requests together with the version. */
const LONG = Buffer.alloc(1_100_000, 'long bytes ');
const NEW = Buffer.alloc(21_000, 'new bytes, more of them ');

/** What somebody does, and the request that it takes. */
export interface Request {
  readonly name: string;
  readonly group: 'login' | 'listing' | 'read' | 'write' | 'namespace';
  readonly on: FaultRule['on'];
  readonly path: string;
  /** What the request carries, or else its answer: what a fault at a byte means. */
  readonly body: 'data up' | 'data down' | 'document' | 'none';
  /** What is mounted; a folder, unless said. */
  readonly shows?: 'account';
  /** Trouble of another request that leads to this one. */
  readonly after?: FaultRule;
  /** Limited, bytes pass through the transfer; otherwise they go from the line into the file where the addon can do it (ADR 20). */
  readonly isDownLimited?: boolean;
  /** What becomes of what is deleted; the trash has it, unless said. */
  readonly deletion?: 'forever';
  /** Before the trouble: what there is. */
  prepare?(there: Place): Promise<void>;
  /** During it. @returns what the program that does it is told */
  act(there: Place): Promise<string>;
  /** When it is over, where nothing is done about it by itself in less than `--dir-ttl`. */
  again?(there: Place): Promise<void>;
}

export interface Place {
  readonly side: FaultySide;
  readonly client: RawClient;
  /** The folder that is mounted. */
  readonly folder: string;
  readonly signIn: () => Promise<string>;
}

/** Where there is no trouble, only a busy machine. */
export function eventually<T>(ask: () => Promise<T>): Promise<T> {
  return vi.waitFor(ask, { timeout: 120_000, interval: 10 });
}

async function told(doing: Promise<unknown>): Promise<string> {
  return doing.then(
    () => 'works',
    (error: { errno?: string; name: string }) => error.errno ?? error.name,
  );
}

/** A change that is made here and pushed: the program is told at once, the service in its own time. */
async function pushed(there: Place, doing: Promise<unknown>): Promise<string> {
  const here = await told(doing);
  const push = await there.side.settled();
  return here === 'works' ? push : `${here}; ${push}`;
}

const withFile = async ({ client, folder, side }: Place): Promise<void> => {
  await client.createFilled(folder, 'file', OLD);
  await eventually(() => side.mount.readFile('file'));
};

/** A listing of a whole account, asked for by the folder that shows it; those above it are listed already. */
function accountListing(name: string, path: Request['path'], above: readonly string[], shown: string): Request {
  return {
    name,
    group: 'listing',
    on: 'GET',
    path,
    body: 'document',
    shows: 'account',
    prepare: async ({ side }) => {
      for (const folder of above) await eventually(() => side.mount.readdir(folder));
    },
    act: ({ side }) => told(side.mount.readdir(shown)),
    again: ({ side }) => side.refresh(),
  };
}

const withFolder = async ({ client, folder, side }: Place): Promise<void> => {
  await client.createFolder(folder, 'sub');
  await eventually(() => side.mount.readdir('sub'));
};

const PUBLIC_LINK = 'user.cfs.public_link';

function setLink({ side }: Place): Promise<void> {
  return side.mount.setxattr('file', PUBLIC_LINK, Buffer.from('on'));
}

async function linkOnService({ client, folder }: Place): Promise<string | null> {
  const [file = ''] = texts((await client.get(`${folder}/contents`)).text, 'ref');
  return /<publicLink enabled="true">(.*)<\/publicLink>/.exec((await client.get(file)).text)?.[1] ?? null;
}

/** Where an account shows what the one who shares has given it. */
export const SHARER_SHOWN = 'Shared with me/sharer';

export const REQUESTS: readonly Request[] = [
  {
    name: 'sign in',
    group: 'login',
    on: 'POST',
    path: 'appAuthorization',
    body: 'document',
    act: ({ signIn }) => told(signIn()),
  },
  {
    name: 'get an access token',
    group: 'login',
    on: 'POST',
    path: 'authorization',
    body: 'document',
    act: ({ side }) => told(side.mount.readdir('.')),
  },
  {
    name: 'list a folder',
    group: 'listing',
    on: 'GET',
    path: 'folderContents',
    body: 'document',
    prepare: async ({ client, folder }) => void (await client.createFilled(folder, 'file', OLD)),
    act: ({ side }) => told(side.mount.readdir('.')),
  },
  ...(['file', 'folder'] as const).map(
    (kind): Request => ({
      name: `ask what became of a ${kind}`,
      group: 'listing',
      on: 'GET',
      path: kind,
      body: 'document',
      prepare: async ({ client, folder, side }) => {
        const goes =
          kind === 'file' ? await client.createFilled(folder, 'goes', OLD) : await client.createFolder(folder, 'goes');
        await eventually(() => side.mount.readdir('.'));
        await client.send('DELETE', goes);
      },
      act: ({ side }) => told(side.refresh()),
      again: ({ side }) => side.refresh(),
    }),
  ),
  accountListing('learn what the account has', 'user', [], '.'),
  accountListing('list the sync folders', 'userCollectionContents', [], '.'),
  accountListing('list one of them', 'folderContents', ['.'], 'Documents'),
  accountListing('list the computers', 'userCollectionContents', ['.'], 'Workspaces'),
  accountListing('list what a computer has', 'workspaceContents', ['.', 'Workspaces'], 'Workspaces/Laptop'),
  accountListing('list what others share', 'userCollectionContents', ['.'], 'Shared with me'),
  accountListing('learn who shares it', 'contact', ['.'], 'Shared with me'),
  accountListing(
    'list a share',
    'folderContents',
    ['.', 'Shared with me', SHARER_SHOWN],
    `${SHARER_SHOWN}/Mobile Photos`,
  ),
  {
    name: 'find a version',
    group: 'read',
    on: 'GET',
    path: 'fileVersions',
    body: 'document',
    prepare: async ({ client, folder, side }) => {
      await client.createFilled(folder, 'file', OLD);
      await eventually(() => side.mount.readdir('.'));
    },
    act: ({ side }) => told(side.mount.readFile('file')),
  },
  readingBytes('read its first bytes', { path: 'fileData' }),
  readingBytes('read its bytes', { bytes: LONG }),
  readingBytes('read its bytes, with TLS or --down-limit', { isDownLimited: true }),
  {
    name: 'make a file',
    group: 'write',
    on: 'POST',
    path: 'folder',
    body: 'document',
    prepare: async ({ side }) => void (await eventually(() => side.mount.readdir('.'))),
    act: (there) => pushed(there, there.side.mount.writeFile('made', NEW)),
  },
  {
    name: 'send its first bytes',
    group: 'write',
    on: 'PUT',
    path: 'fileData',
    body: 'data up',
    prepare: async ({ side }) => void (await eventually(() => side.mount.readdir('.'))),
    act: (there) => pushed(there, there.side.mount.writeFile('made', NEW)),
  },
  ...(
    [
      ['begin a version', 'POST', 'fileVersions', 'none'],
      ['send its bytes', 'PUT', 'fileVersionData', 'data up'],
      ['look at the history', 'GET', 'fileVersions', 'document'],
    ] as const
  ).map(
    ([name, on, path, body]): Request => ({
      name,
      group: 'write',
      on,
      path,
      body,
      prepare: withFile,
      act: (there) => pushed(there, there.side.mount.writeFile('file', NEW)),
    }),
  ),
  {
    name: 'ask how much of a version arrived',
    group: 'write',
    on: 'GET',
    path: 'fileVersion',
    body: 'document',
    after: { on: 'PUT', path: 'fileVersionData', then: { status: 500 } },
    prepare: withFile,
    act: (there) => pushed(there, there.side.mount.writeFile('file', NEW)),
  },
  {
    name: 'make a folder',
    group: 'namespace',
    on: 'POST',
    path: 'folder',
    body: 'document',
    prepare: async ({ side }) => void (await eventually(() => side.mount.readdir('.'))),
    act: (there) => pushed(there, there.side.mount.mkdir('made')),
  },
  {
    name: 'rename a file',
    group: 'namespace',
    on: 'PUT',
    path: 'file',
    body: 'document',
    prepare: withFile,
    act: (there) => pushed(there, there.side.mount.rename('file', 'renamed')),
  },
  {
    name: 'rename a folder',
    group: 'namespace',
    on: 'PUT',
    path: 'folder',
    body: 'document',
    prepare: async ({ client, folder, side }) => {
      await client.createFilled(await client.createFolder(folder, 'sub'), 'inside', OLD);
      await eventually(() => side.mount.readdir('sub'));
    },
    act: (there) => pushed(there, there.side.mount.rename('sub', 'renamed')),
  },
  {
    name: 'set a public link',
    group: 'namespace',
    on: 'PUT',
    path: 'file',
    body: 'document',
    prepare: withFile,
    // Done when it returns (S-xattr-3), not later.
    act: async (there) => {
      const outcome = await told(setLink(there));
      return outcome === 'works' && (await linkOnService(there)) === null ? 'NOT DONE' : outcome;
    },
    again: async (there) => {
      await setLink(there);
      const link = await there.side.mount.getxattr('file', PUBLIC_LINK);
      expect(Buffer.from(link).toString(), 'the link').toBe(await linkOnService(there));
    },
  },
  {
    name: 'throw a file away',
    group: 'namespace',
    on: 'PUT',
    path: 'file',
    body: 'document',
    prepare: withFile,
    act: (there) => pushed(there, there.side.mount.unlink('file')),
  },
  {
    name: 'learn where the trash is',
    group: 'namespace',
    on: 'GET',
    path: 'user',
    body: 'document',
    prepare: withFile,
    act: (there) => pushed(there, there.side.mount.unlink('file')),
  },
  ...(
    [
      ['look into a folder that goes', 'GET', 'folderContents'],
      ['throw a folder away', 'PUT', 'folder'],
    ] as const
  ).map(
    ([name, on, path]): Request => ({
      name,
      group: 'namespace',
      on,
      path,
      body: 'document',
      prepare: withFolder,
      act: (there) => pushed(there, there.side.mount.rmdir('sub')),
    }),
  ),
  {
    name: 'delete a file permanently',
    group: 'namespace',
    on: 'DELETE',
    path: 'file',
    body: 'none',
    deletion: 'forever',
    prepare: withFile,
    act: (there) => pushed(there, there.side.mount.unlink('file')),
  },
  {
    name: 'delete a folder permanently',
    group: 'namespace',
    on: 'DELETE',
    path: 'folder',
    body: 'none',
    deletion: 'forever',
    prepare: withFolder,
    act: (there) => pushed(there, there.side.mount.rmdir('sub')),
  },
];

type Column = readonly [name: string, fault: Fault | ((request: Request) => Fault | null)];

const CUTS = { 20: 'cut at byte 20', half: 'cut in the middle', allButOne: 'cut before the last byte' } as const;

/** The columns. Null: it cannot happen to that request. */
export const FAULTS: readonly Column[] = [
  ['lost before', { hangUpBefore: true }],
  ['lost after', { actButNeverAnswer: true }],
  ...[401, 403, 404, 409, 413, 416, 429, 500, 503].map((status): Column => [String(status), { status }]),
  ['cut in the head', { hangUpInHead: true }],
  ...([20, 'half', 'allButOne'] as const).map(
    (at): Column => [CUTS[at], ({ body }) => (body === 'none' ? null : { hangUpAfterBytes: at })],
  ),
  ['hang', { hang: true }],
  ['garbage', { garbage: true }],
  ['wrong length', ({ body }) => wrongLength(body)],
  ['slow', { bandwidthBytesPerSecond: 200_000 }],
];

function wrongLength(body: Request['body']): Fault | null {
  return body === 'data up' ? { acceptBytes: 10 } : body === 'data down' ? { wrongContentRange: true } : null;
}

export function faultOf([, fault]: Column, request: Request): Fault | null {
  return typeof fault === 'function' ? fault(request) : fault;
}

/** Names and bytes of a folder on the service, read without our client; a file that was never filled has no bytes. */
export async function onService(client: RawClient, folder: string, prefix = ''): Promise<string[]> {
  const { text } = await client.get(`${folder}/contents`);
  const found: string[] = [];
  for (const [, kind, entry = ''] of text.matchAll(/<(collection|file)(?:\s[^>]*)?>(.*?)<\/\1>/gs)) {
    const [name] = texts(entry, 'displayName');
    const [url = ''] = texts(entry, 'ref');
    if (kind === 'collection') found.push(`${prefix}${name}/`, ...(await onService(client, url, `${prefix}${name}/`)));
    else found.push(`${prefix}${name}: ${(await client.get(`${url}/data`)).text}`);
  }
  return found.sort();
}

/** The same of what is here. */
export async function inMount(side: FaultySide, folder = '.', prefix = ''): Promise<string[]> {
  const { mount } = side;
  const found: string[] = [];
  for (const { name } of await mount.readdir(folder)) {
    if (name === '.' || name === '..') continue;
    const path = `${prefix}${name}`;
    const { kind } = await mount.lstat(path);
    if (kind === 'folder') found.push(`${path}/`, ...(await inMount(side, path, `${path}/`)));
    else if (kind === 'symlink') found.push(`${path} -> ${await mount.readlink(path)}`);
    else found.push(`${path}: ${await mount.readFile(path)}`);
  }
  return found.sort();
}

function readingBytes(
  name: string,
  {
    isDownLimited = false,
    path = 'fileVersionData',
    bytes = OLD,
  }: { isDownLimited?: boolean; path?: Request['path']; bytes?: Buffer },
): Request {
  return {
    ...{ name, isDownLimited, group: 'read', on: 'GET', path, body: 'data down' },
    prepare: async ({ client, folder, side }) => {
      await client.createFilled(folder, 'file', bytes);
      await eventually(() => side.mount.readdir('.'));
    },
    act: async ({ side }) => {
      const read = side.mount.readFile('file');
      const answer = await told(read);
      return answer === 'works' && Buffer.compare(await read, bytes) !== 0 ? 'WRONG BYTES' : answer;
    },
  };
}
