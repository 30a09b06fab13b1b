import { getEventListeners } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { StorageError, UsageError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { callControl, NoMountError } from '../../src/control/client.ts';
import type { ControlHandlers } from '../../src/control/methods.ts';
import { ControlServer } from '../../src/control/server.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { ManualClock } from '../kernel/manual-clock.ts';
import { idleStatus } from './idle-status.ts';

const STATUS = idleStatus();

const HANDLERS: ControlHandlers = {
  status: () => STATUS,
  sync: () => ({ pushed: 0, parked: [], open: 0 }),
  umount: () => ({ pending: 0, parked: 0, left: [], busy: false }),
  refresh: () => ({ held: [] }),
  discard: () => ({ given: [] }),
  pin: () => ({ path: 'a', files: 0, bytes: 0, filesHere: 0, bytesHere: 0, isComplete: true, trouble: null }),
  unpin: () => ({ wasPinned: false }),
  retry: () => ({ retried: 0 }),
  folder: () => ({ entries: [], next: null }),
  locate: () => ({ path: 'a', kind: 'file', sizeBytes: 0, resource: null, isPending: true }),
  paths: () => ({ paths: [] }),
  states: () => ({ directory: '/home/ann/Cloud', states: [] }),
  copyAttributes: () => null,
  unsynced: () => ({ files: [], next: null }),
  unsyncedParts: () => ({ parts: [] }),
  watch: () => ({ seq: 0 }),
  limit: () => ({ up: null, down: null }),
  evict: () => ({ files: 0, bytes: 0, kept: { onlyHere: 0, unnamed: 0, pinned: 0, inUse: 0 } }),
  conflicts: () => ({ conflicts: [], count: 0 }),
  pause: () => ({ waiting: 0 }),
  resume: () => ({ wasPaused: false, waiting: 0 }),
  upgrade: () => null,
  metrics: () => {
    throw new Error('not asked for in these tests');
  },
  logLevel: ({ level }) => ({ level: level ?? 'info' }),
};

const NO_CONTEXT = { signal: new AbortController().signal, progress: () => {} };

let directory: string;
const servers: ControlServer[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-control-'));
});

afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
  rmSync(directory, { recursive: true, force: true });
});

async function listening(
  handlers: Partial<ControlHandlers> = {},
  options: { path?: string; requestMsMax?: number; clock?: Clock } = {},
): Promise<string> {
  const socketPath = options.path ?? join(directory, 'run', 'control.sock');
  const { requestMsMax, clock = systemClock } = options;
  const server = new ControlServer({
    socketPath,
    handlers: { ...HANDLERS, ...handlers },
    clock,
    log: silentLogger,
    ...(requestMsMax === undefined ? {} : { requestMsMax }),
  });
  await server.listen();
  servers.push(server);
  return socketPath;
}

/** A connection that says what it wants, and all that came back until it was closed. */
function rawConnection(path: string): { socket: Socket; closed: Promise<string> } {
  const socket = connect(path);
  let text = '';
  socket.on('data', (chunk) => {
    text += chunk;
  });
  const closed = new Promise<string>((resolve) => {
    socket.on('error', () => {});
    socket.on('close', () => resolve(text));
  });
  return { socket, closed };
}

test('a call is answered by its handler', async () => {
  const path = await listening();

  expect(await callControl(path, 'status', {})).toEqual(STATUS);
});

test('only the owner can connect to the socket, with any umask', async () => {
  mkdirSync(join(directory, 'run'), { mode: 0o755 });
  chmodSync(join(directory, 'run'), 0o755);

  const path = await listening();

  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(statSync(dirname(path)).mode & 0o777).toBe(0o700);
});

test('a mount that ends removes its own socket and not that of the next owner', async () => {
  let finish = (): void => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const path = await listening({ umount: () => finished.then(() => HANDLERS.umount({ timeoutMs: 0 }, NO_CONTEXT)) });
  const [first] = servers as [ControlServer];
  const asked = callControl(path, 'umount', { timeoutMs: 0 });
  await callControl(path, 'status', {});

  first.stopListening();
  expect(existsSync(path)).toBe(false);
  await listening({ status: () => ({ ...STATUS, pid: 2 }) }, { path });
  finish();
  // Who had asked before is answered.
  expect(await asked).toMatchObject({ pending: 0 });
  await first.close();

  expect(await callControl(path, 'status', {})).toMatchObject({ pid: 2 });
});

test('the socket of a mount of the other root stays when the one that drained, and still listened, closes', async () => {
  const path = await listening();
  const [first] = servers as [ControlServer];
  await listening({ status: () => ({ ...STATUS, pid: 2 }) }, { path });

  await first.close();

  expect(await callControl(path, 'status', {})).toMatchObject({ pid: 2 });
});

test.each(['control.sock', `${'x'.repeat(100)}/control.sock`])(
  'a socket whose directory was removed (%s) is created again as soon as possible, but not after the end of the mount',
  async (name) => {
    const clock = new ManualClock();
    const path = await listening({}, { path: join(directory, 'session', name), clock });
    const [server] = servers as [ControlServer];
    const session = join(directory, 'session');
    rmSync(session, { recursive: true });
    writeFileSync(session, 'nothing can be made here');
    const ask = async () => {
      clock.advance(5_000);
      return await callControl(path, 'status', {}).catch(() => null);
    };
    expect(await ask()).toBe(null);
    expect(await ask()).toBe(null);

    rmSync(session);
    await expect.poll(ask).toEqual(STATUS);
    // Not once more while it is there.
    const { ino } = statSync(path);
    await ask();
    expect(statSync(path).ino).toBe(ino);

    server.stopListening();
    expect(readdirSync(dirname(path))).toEqual([]);
    clock.advance(10_000);
    expect(readdirSync(dirname(path))).toEqual([]);
  },
);

test('a path that is too long for a socket address works all the same, and is taken away again', async () => {
  const path = join(directory, 'x'.repeat(100), 'y'.repeat(100), 'control.sock');

  await listening({}, { path });
  expect(await callControl(path, 'status', {})).toEqual(STATUS);
  await servers.pop()?.close();

  expect(existsSync(path)).toBe(false);
});

test('a socket that a killed mount left behind is replaced', async () => {
  const path = join(directory, 'run', 'control.sock');
  mkdirSync(dirname(path), { mode: 0o700 });
  writeFileSync(path, '');
  await expect(callControl(path, 'status', {})).rejects.toMatchObject({ name: 'NoMountError', code: 'ECONNREFUSED' });

  await listening({}, { path });

  expect(await callControl(path, 'status', {})).toEqual(STATUS);
});

test('a handler gets the parameters that the types promise, and each of them', async () => {
  const seen: unknown[] = [];
  const path = await listening({
    refresh: (params) => {
      seen.push(params);
      return { held: [] };
    },
    unsynced: (params) => {
      seen.push(params);
      return { files: [], next: null };
    },
  });

  await callControl(path, 'refresh', { path: 'a', accept: true });
  await callControl(path, 'refresh', { path: null });
  await callControl(path, 'unsynced', { after: 17 });

  expect(seen).toEqual([{ path: 'a', accept: true }, { path: null, accept: false }, { after: 17 }]);
  await expect(callControl(path, 'logLevel', { level: 'loud' as never })).rejects.toThrow(/one of error, warn/);
  await expect(callControl(path, 'umount', { timeoutMs: -1 })).rejects.toThrow(/timeoutMs/);
});

test('without a mount the caller is told so', async () => {
  await expect(callControl(join(directory, 'none', 'control.sock'), 'status', {})).rejects.toThrow(NoMountError);
});

test('a socket that does not exist costs no connection', async () => {
  const connecting = vi.spyOn(Socket.prototype, 'connect');
  const calling = callControl(join(directory, 'absent.sock'), 'status', {});

  await expect(calling).rejects.toMatchObject({ name: 'NoMountError', code: 'ENOENT' });
  expect(connecting).not.toHaveBeenCalled();
  connecting.mockRestore();
});

test('a socket directory that cannot be a directory is refused', async () => {
  writeFileSync(join(directory, 'run'), '');

  await expect(listening()).rejects.toThrow(StorageError);
});

test('progress comes before the result, and an error arrives as what was thrown', async () => {
  const path = await listening({
    sync: (_params, { progress }) => {
      for (const doneChanges of [1, 2])
        progress({ doneChanges, totalChanges: 2, doneBytes: 0, totalBytes: 0, waitsFor: null });
      return { pushed: 2, parked: [], open: 0 };
    },
    retry: ({ path: asked }) => {
      throw new UsageError(`${asked} is not parked`, 8);
    },
  });
  const seen: number[] = [];

  const outcome = await callControl(
    path,
    'sync',
    { path: null, wait: true },
    { onProgress: ({ doneChanges }) => seen.push(doneChanges) },
  );

  expect(outcome).toEqual({ pushed: 2, parked: [], open: 0 });
  expect(seen).toEqual([1, 2]);
  const refusal = callControl(path, 'retry', { path: 'a/b' });
  await expect(refusal).rejects.toMatchObject({ name: 'UsageError', message: 'a/b is not parked', exitCode: 8 });
});

test('what was asked and answered leaves nothing behind with what lives as long as the mount', async () => {
  const longLived: AbortSignal[] = [];
  const Plain = AbortController;
  class Noted extends Plain {
    constructor() {
      super();
      longLived.push(this.signal);
    }
  }
  vi.stubGlobal('AbortController', Noted);
  const socketPath = await listening();
  vi.unstubAllGlobals();

  for (let call = 0; call < 20; call++) await callControl(socketPath, 'status', {});

  expect(longLived).toHaveLength(1);
  for (const signal of longLived)
    expect([getEventListeners(signal, 'abort').length, dependants(signal)]).toEqual([0, 0]);
});

/** How many `AbortSignal.any` has made of it, and keeps with it (Node 20: also those that are long gone). */
function dependants(signal: AbortSignal): number {
  const key = Object.getOwnPropertySymbols(signal).find(({ description }) => description === 'kDependantSignals');
  const kept = key === undefined ? undefined : (signal as unknown as Record<symbol, Set<unknown> | undefined>)[key];
  return kept?.size ?? 0;
}

test('a handler hears that whoever asked is gone', async () => {
  let started = (): void => {};
  const running = new Promise<void>((resolve) => {
    started = resolve;
  });
  let gone = (): void => {};
  const heard = new Promise<void>((resolve) => {
    gone = resolve;
  });
  const path = await listening({
    sync: (_params, { signal }) => {
      signal.addEventListener('abort', gone);
      started();
      return new Promise(() => {});
    },
  });
  const controller = new AbortController();
  const call = callControl(path, 'sync', { path: null, wait: true }, { signal: controller.signal });
  await running;

  controller.abort(new Error('interrupted'));

  await expect(call).rejects.toThrow('interrupted');
  await heard;
});

test('closing answers the call that is just ending, and cuts off the one that is not', async () => {
  let end = (): void => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const path = await listening({
    umount: async () => {
      await ended;
      return { pending: 3, parked: 0, left: [], busy: false };
    },
    sync: () => new Promise(() => {}),
  });
  const umount = callControl(path, 'umount', { timeoutMs: null });
  const sync = callControl(path, 'sync', { path: null, wait: true });
  await callControl(path, 'status', {}); // the others are being served by now

  const closed = servers.pop()?.close();
  end();

  expect(await umount).toEqual({ pending: 3, parked: 0, left: [], busy: false });
  await expect(sync).rejects.toThrow(NoMountError);
  await closed;
});

test('a mount that is killed with the question unread has ended, too', async () => {
  const path = join(directory, 'control.sock');
  // Never read from: what lies there when it is closed resets the connection.
  const dying = createServer({ pauseOnConnect: true }, (socket) => setImmediate(() => socket.destroy()));
  await new Promise<void>((resolve) => dying.listen(path, resolve));
  try {
    await expect(callControl(path, 'status', {})).rejects.toMatchObject({ name: 'NoMountError', code: 'EPIPE' });
  } finally {
    await new Promise((resolve) => dying.close(resolve));
  }
});

describe('nothing that arrives can keep the mount busy', () => {
  test('a request of more than 1 MiB is cut off', async () => {
    const { socket, closed } = rawConnection(await listening());

    socket.write('x'.repeat(1024 ** 2 + 1));

    expect(await closed).toContain('longer than');
  });

  test('what is not a request is answered with an error', async () => {
    const { socket, closed } = rawConnection(await listening());

    socket.write('GET / HTTP/1.1\r\n\r\n');

    expect(await closed).toContain('not JSON');
  });

  test.each([
    ['{"id":1,"method":"constructor","params":{}}', 'no such request: constructor'],
    ['{"id":"1","method":"status"}', 'no such request'],
    ['null', 'error'],
    ['{"id":1,"method":"umount","params":{"timeoutMs":"soon"}}', 'timeoutMs: expected a number'],
    ['{"id":1,"method":"sync","params":{"path":7}}', 'path: expected a string'],
  ])('%s is refused', async (line, reason) => {
    const { socket, closed } = rawConnection(await listening({}, { requestMsMax: 200 }));

    socket.write(`${line}\n`);

    expect(await closed).toContain(reason);
  });

  test('a connection that never completes a request is closed', async () => {
    const { socket, closed } = rawConnection(await listening({}, { requestMsMax: 50 }));

    socket.write('{"id":1,');

    expect(await closed).toBe('');
  });

  test('a connection without a complete request is closed after ten seconds', async () => {
    const clock = new ManualClock();
    const path = await listening({}, { clock });
    const others = clock.timers;
    const { socket, closed } = rawConnection(path);
    socket.write('{"id":1,');
    await expect.poll(() => clock.timers).toBe(others + 1);

    clock.advance(9_999);
    expect(await callControl(path, 'status', {})).toEqual(STATUS);
    expect(socket.destroyed).toBe(false);
    clock.advance(1);

    expect(await closed).toBe('');
  });

  test('any number of calls that wait for the service leave status and unmount requests unaffected', async () => {
    let waiting = 0;
    const sync: ControlHandlers['sync'] = (_, { signal }) =>
      new Promise((_resolve, reject) => {
        waiting++;
        signal.addEventListener('abort', () => {
          waiting--;
          reject(signal.reason);
        });
      });
    const path = await listening({ sync });
    const gone = new AbortController();
    const asked = Array.from({ length: 60 }, () =>
      callControl(path, 'sync', { path: null, wait: true }, { signal: gone.signal }).then(
        () => 'pushed',
        (error: unknown) => (error instanceof UsageError ? `${error.exitCode}: ${error.message}` : 'gave up'),
      ),
    );
    const refused = `${exitCode('pending')}: 48 commands wait for this mount already: try again later`;
    await expect.poll(() => waiting).toBe(48);

    expect(await callControl(path, 'status', {})).toEqual(STATUS);
    expect(await callControl(path, 'umount', { timeoutMs: 0 })).toMatchObject({ pending: 0 });
    gone.abort(new Error('gave up'));
    const outcomes = await Promise.all(asked);
    expect(outcomes.filter((outcome) => outcome === refused)).toHaveLength(12);

    // As soon as the mount has seen them go others may wait. A child that another thread starts just now holds their connections until its exec.
    await expect.poll(() => waiting).toBe(0);
    const next = callControl(path, 'sync', { path: null, wait: true }).catch(() => 'ended');
    await expect.poll(() => waiting).toBe(1);
    for (const server of servers) await server.close();
    await next;
  });

  test('the 65th connection is turned away, and the 64 still work', async () => {
    const path = await listening();
    const held = Array.from({ length: 64 }, () => rawConnection(path));
    await Promise.all(held.map(({ socket }) => new Promise((resolve) => socket.on('connect', resolve))));

    expect(await rawConnection(path).closed).toBe('');

    held[0]?.socket.destroy();
    await held[0]?.closed;
    await expect.poll(() => callControl(path, 'status', {}).catch(() => null)).toEqual(STATUS);
    for (const { socket } of held) socket.destroy();
  });
});
