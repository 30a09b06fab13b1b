/**
 * A process that serves a MemoryFileSystem on a directory from a Worker, driven by its parent over IPC: what the mount tests and the
 * bench start. Arguments: one JSON text, `HostOptions`.
 */
import { closeSync, existsSync, openSync, readSync, statSync } from 'node:fs';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { systemClock } from '../../src/base/clock.ts';
import { FsError, UsageError } from '../../src/base/errors.ts';
import { createLogger } from '../../src/base/log.ts';
import type { LogLevel } from '../../src/base/log-level.ts';
import { lowerPriority } from '../../src/base/thread-priority.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { abandonMount } from '../../src/kernel/abandon.ts';
import type { MountOptions } from '../../src/kernel/binding.ts';
import { keeperOf } from '../../src/kernel/keeper.ts';
import { type LinuxMount, mountLinux } from '../../src/kernel/linux.ts';
import { MemoryFileSystem, type MemoryFileSystemOptions } from './memory-file-system.ts';

export interface HostOptions {
  readonly mount: Partial<MountOptions> & { readonly directory: string };
  readonly fileSystem?: Pick<
    MemoryFileSystemOptions,
    'entryTimeoutMs' | 'attributeTimeoutMs' | 'keepCache' | 'directIo' | 'cacheListing'
  >;
  /** So many empty files in a folder `many`, for the bench. */
  readonly plantFiles?: number;
  /** Reads of every file are answered with slices of this one. */
  readonly sliceOf?: string;
  readonly deadlineMs?: number;
  readonly slowReplyMs?: number;
  readonly logLevel?: LogLevel;
}

export type HostCommand =
  | { readonly do: 'plant'; readonly parent: number; readonly name: string; readonly text: string }
  | { readonly do: 'plant-folder'; readonly parent: number; readonly name: string }
  | { readonly do: 'invalidate-entry'; readonly parent: number; readonly name: string }
  /** The names `<prefix>0` and so on. */
  | { readonly do: 'invalidate-entries'; readonly parent: number; readonly prefix: string; readonly count: number }
  | { readonly do: 'invalidate-inode'; readonly ino: number }
  | { readonly do: 'deleted'; readonly parent: number; readonly ino: number; readonly name: string }
  /** From now on every `op` about `name` (or any name) waits for `release`, or fails. */
  | {
      readonly do: 'rule';
      readonly op: string;
      readonly name?: string;
      readonly ino?: number;
      readonly effect: 'hang' | 'throw' | 'reject' | 'later';
    }
  | { readonly do: 'release' }
  /** Slices name a descriptor that is none from now on. */
  | { readonly do: 'close-slices' }
  | { readonly do: 'state' }
  | { readonly do: 'busy-main'; readonly ms: number /** A file that ends it earlier. */; readonly orUntil: string }
  /** Until the channel ends: busy for so long, then free for as long. */
  | { readonly do: 'busy-bursts'; readonly burstMs: number }
  /** The main thread asks its own mount. */
  | { readonly do: 'stat-own'; readonly path: string }
  | { readonly do: 'hang-worker' }
  | { readonly do: 'busy-worker'; readonly ms: number }
  /** How many handles are open when the mount says that it has looked at everything. */
  | { readonly do: 'caught-up' }
  /** Waits; how much the kernel was not told of then. */
  | { readonly do: 'told' }
  | { readonly do: 'abandon' }
  | { readonly do: 'kill-worker' }
  | { readonly do: 'unmount'; readonly how: 'orderly' | 'lazily' };

export interface HostState {
  readonly lookups: number;
  readonly openHandles: number;
  readonly nodes: number;
  readonly hanging: number;
  readonly slices: number;
  readonly binding: ReturnType<LinuxMount['state']>;
  readonly operations: Readonly<Record<string, number>>;
  readonly failures: Readonly<Record<string, number>>;
  /** The most operations that began while one with the effect `later` waited for the next turn of the loop. */
  readonly begunMeanwhile: number;
  readonly features: readonly string[];
}

const DEFAULTS: Omit<MountOptions, 'directory'> = {
  fsname: 'cfs-test',
  subtype: 'cfs-test',
  readOnly: false,
  allowOther: false,
  defaultPermissions: false,
  flags: [],
  allowNonEmpty: false,
  maskedFeatures: [],
};

if (isMainThread) {
  const options = JSON.parse(process.argv[2] as string) as HostOptions;
  const tell = (message: object): void => {
    if (process.send) process.send(message);
    else console.error(JSON.stringify(message)); // started by hand
  };
  const worker = new Worker(new URL(import.meta.url), { workerData: options });
  lowerPriority(); // as the main thread of a mount does
  let made = { device: '', descriptor: -1 };
  worker.on('message', (message: { mounted?: typeof made }) => {
    if (message.mounted !== undefined) made = message.mounted;
    tell(message);
  });
  worker.on('exit', () => setImmediate(() => process.connected && process.disconnect()));
  worker.on('error', (error) => {
    tell({ failed: String(error) });
    process.exitCode = 1;
  });
  process.on('message', (message: { id: number; command: HostCommand }) => {
    const { id, command } = message;
    if (command.do === 'busy-main') {
      const end = performance.now() + command.ms;
      while (performance.now() < end && !existsSync(command.orUntil));
      tell({ id, result: null });
    } else if (command.do === 'busy-bursts') {
      const burst = (): void => {
        const end = performance.now() + command.burstMs;
        while (performance.now() < end);
        setTimeout(burst, command.burstMs).unref();
      };
      burst();
      tell({ id, result: null });
    } else if (command.do === 'stat-own') {
      tell({ id, result: statSync(command.path).size });
    } else if (command.do === 'abandon') {
      abandonMount({ directory: options.mount.directory, ...made });
      tell({ id, result: null });
    } else if (command.do === 'kill-worker') {
      void worker.terminate().then(() => tell({ id, result: null }));
    } else {
      worker.postMessage(message);
    }
  });
} else {
  const options = workerData as HostOptions;
  const rules: Extract<HostCommand, { do: 'rule' }>[] = [];
  let hanging: (() => void)[] = [];
  let begun = 0;
  let begunMeanwhile = 0;
  /** Commands without an answer yet; the process ends when the mount is over and all are answered. */
  let running = 0;
  let over = false;
  const sliceFd = options.sliceOf === undefined ? -1 : openSync(options.sliceOf, 'r');
  /** Slices that were handed out and not said to be sent. */
  let slices = 0;
  const taken = (): (() => void) => {
    slices++;
    return () => {
      slices--;
    };
  };
  const fileSystem = new MemoryFileSystem({
    ...options.fileSystem,
    // In two pieces and a buffer between, so that gathering is exercised.
    read: (_ino, offset, length) => {
      if (options.sliceOf === undefined) return null;
      const end = Math.min(offset + length, statSync(options.sliceOf).size);
      if (end - offset < 3) return [{ fd: sliceFd, position: offset, length: Math.max(0, end - offset) }];
      const middle = Math.floor((offset + end) / 2);
      const between = Buffer.alloc(1);
      readSync(sliceFd, between, 0, 1, middle);
      return [
        { fd: sliceFd, position: offset, length: middle - offset, sent: taken() },
        between,
        { fd: sliceFd, position: middle + 1, length: end - middle - 1, sent: taken() },
      ];
    },
    before: (op, ino, name) => {
      begun++;
      const rule = rules.find((one) => one.op === op && (one.name ?? name) === name && (one.ino ?? ino) === ino);
      switch (rule?.effect) {
        case undefined:
          return undefined;
        case 'throw':
          throw new TypeError('a bug of the file system');
        case 'reject':
          return Promise.reject(new TypeError('a bug of the file system, later'));
        case 'later': {
          const from = begun;
          return new Promise((resolve) =>
            setImmediate(() => {
              begunMeanwhile = Math.max(begunMeanwhile, begun - from);
              resolve();
            }),
          );
        }
        case 'hang':
          return new Promise((resolve) => hanging.push(resolve));
      }
    },
  });
  if (options.plantFiles !== undefined) {
    const many = fileSystem.plantFolder(ROOT_INODE, 'many');
    for (let i = 0; i < options.plantFiles; i++) fileSystem.plant(many, `file-${i}`, new Uint8Array(0));
  }
  const reply = (message: unknown): void => parentPort?.postMessage(message);
  const keeper = keeperOf(process.env);
  mountLinux({ ...DEFAULTS, ...options.mount }, fileSystem, {
    // It has no journal, and no successor could continue: for the bench, which measures what the records cost.
    continuity: keeper === null || keeper === 'standby' ? null : { keeper, journal: { foundRecord: 0, witness: null } },
    log: createLogger({ level: options.logLevel ?? 'silent' }),
    clock: systemClock,
    ...(options.deadlineMs !== undefined && { deadlineMs: options.deadlineMs }),
    ...(options.slowReplyMs !== undefined && { slowReplyMs: options.slowReplyMs }),
  }).then(
    (mount) => {
      reply({ mounted: { device: mount.device, descriptor: mount.descriptor } });
      void mount.ended.then((how) => {
        reply({ ended: how, destroyed: fileSystem.destroyed });
        over = true;
        if (running === 0) parentPort?.close();
      });
      parentPort?.on('message', ({ id, command }: { id: number; command: HostCommand }) => {
        running++;
        // Answered before it: who asks goes on when nothing is read any more.
        if (command.do === 'hang-worker') reply({ id, result: null });
        Promise.resolve(run(mount, command))
          .then(
            (result) => reply({ id, result: result ?? null }),
            (error: unknown) => reply({ id, error: error instanceof FsError ? error.errno : String(error) }),
          )
          .finally(() => {
            running--;
            if (over && running === 0) parentPort?.close();
          });
      });
    },
    (error: unknown) => {
      reply({
        failed:
          error instanceof UsageError || error instanceof FsError ? error.message : String((error as Error).stack),
      });
      parentPort?.close();
    },
  );

  const run = (mount: LinuxMount, command: HostCommand): unknown => {
    switch (command.do) {
      case 'plant':
        return fileSystem.plant(command.parent as Inode, command.name, Buffer.from(command.text));
      case 'plant-folder':
        return fileSystem.plantFolder(command.parent as Inode, command.name);
      case 'invalidate-entry':
        return mount.invalidator.entry(command.parent as Inode, command.name);
      case 'invalidate-entries':
        for (let i = 0; i < command.count; i++)
          mount.invalidator.entry(command.parent as Inode, `${command.prefix}${i}`);
        return undefined;
      case 'invalidate-inode':
        return mount.invalidator.inode(command.ino as Inode, 0, 0);
      case 'deleted':
        return mount.invalidator.deleted(command.parent as Inode, command.ino as Inode, command.name);
      case 'rule':
        rules.push(command);
        return undefined;
      case 'release': {
        rules.length = 0;
        const released = hanging;
        hanging = [];
        for (const resolve of released) resolve();
        return undefined;
      }
      case 'close-slices':
        return closeSync(sliceFd);
      case 'busy-worker': {
        const end = performance.now() + command.ms;
        while (performance.now() < end);
        return undefined;
      }
      case 'told':
        return mount.notificationsFlushed().then(() => mount.state().notificationsWaiting);
      case 'caught-up':
        return mount.requestsDrained().then(() => fileSystem.openHandles);
      case 'hang-worker':
        for (;;);
      case 'unmount':
        return mount.unmount(command.how);
      case 'state': {
        const operations: Record<string, number> = {};
        const failures: Record<string, number> = {};
        for (const [op, metrics] of mount.metrics()) {
          operations[op] = metrics.operations;
          failures[op] = metrics.failures;
        }
        const { lookups, openHandles, nodeCount } = fileSystem;
        return {
          ...{
            lookups,
            openHandles,
            nodes: nodeCount,
            hanging: hanging.length,
            slices,
            binding: mount.state(),
            operations,
            failures,
            begunMeanwhile,
          },
          features: [...mount.features],
        } satisfies HostState;
      }
      default:
        throw new Error(`not a command of the Worker: ${command.do}`);
    }
  };
}
