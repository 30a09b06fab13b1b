import { writeFile } from 'node:fs/promises';
import { constants } from 'node:os';
import type { Clock } from '../base/clock.ts';
import { FsError, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { errnoOf } from '../base/native.ts';
import type { CallsOfHelper, FileSystemOps, MountedFileSystem, MountOptions } from './binding.ts';
import { callerState } from './caller-signals.ts';
import { HANDOVER_BYTES, HandoverState } from './handover-state.ts';
import { KernelInvalidator } from './invalidate.ts';
import { KEEPER_DEVICE, KEEPER_MEMORY, type Keeper, tellKeeper } from './keeper.ts';
import { type AddonConnection, type KernelAddon, loadKernelAddon, PAYLOAD_BYTES_MAX } from './kernel-addon.ts';
import { LinuxSession } from './linux-session.ts';
import { MOUNT_REFUSAL } from './mount-refusal.ts';
import { mountOn, placeOf } from './mount-table.ts';
import * as MountPoint from './mounting.ts';
import { type Agreement, type MaskableFeature, negotiate } from './negotiation.ts';
import { NodeIds } from './node-ids.ts';
import { OpBoundary, type OpMetrics, type OpName } from './op-boundary.ts';
import { mayWrite } from './open-flags.ts';
import * as P from './protocol.ts';
import { Wire } from './wire.ts';

/** Slots for requests: small ones for all, large ones only for writes of more than 8 KiB. */
const SLOTS = { small: 256, large: 32 };
/** With `--continuity`: where the kernel does not resend requests, each one that waits keeps its slot. Unused slots take no memory. */
const SLOTS_OF_KEEPER = { small: 1024, large: 96 };
/** Where notifications are encoded: the second half of the region's first page, behind the control words. */
const MESSAGE_START = 2048;
/**
 * The limit of pending asynchronous requests (read-ahead, O_DIRECT, write-back of mappings). The default is 12. The limit is high because
 * it applies to the whole mount: reads of some files that wait for the network would block those of all others. Above the second number
 * the kernel stops reading ahead.
 */
const BACKGROUND_MAX = 4096;
const CONGESTION_THRESHOLD = 1024;
/** A mount without INIT in this time has failed. */
const INIT_MS_MAX = 10_000;
/** How long to wait for the end of the connection after an unmount. It comes immediately, or only when another namespace releases the mount. */
const ELSEWHERE_MS_MAX = 3_000;
/** The time limit for a mount that was detached from outside: the kernel may still write back dirty pages. */
const DETACHED_MS_MAX = 10_000;
const DEADLINE_MS = 30_000;
/** A long reply to READ takes 0.1 to 0.2 ms when its pages are resident. It blocks all other requests. */
const SLOW_REPLY_MS = 0.5;
/** Each turn takes half a millisecond at most (connection.c, TURN_NS). */
const DRAIN_TURNS_MAX = 200;
/** The longest wait for pending notifications. */
const FLUSH_MS_MAX = 2_000;

export interface LinuxMount extends MountedFileSystem {
  /** The connection's descriptor number: another thread may `abandonMount` it when this one no longer responds. */
  readonly descriptor: number;
  readonly features: ReadonlySet<MaskableFeature>;
  /** Counters by operation, since the mount. */
  metrics(): ReadonlyMap<OpName, Readonly<OpMetrics>>;
  /** Counters of the binding's pending work. */
  state(): BindingState;
}

export interface BindingState {
  readonly pendingOperations: number;
  readonly notificationsWritten: number;
  /** The kernel had nothing cached for them. */
  readonly notificationsUnknown: number;
  readonly notificationsFailed: number;
  readonly notificationsWaiting: number;
  readonly freeSmallSlots: number;
  readonly freeLargeSlots: number;
  /** Long replies to READ that were left to the pool because they were slow. */
  readonly slowReplies: number;
}

export interface LinuxMountDeps {
  readonly log: Logger;
  readonly clock: Clock;
  /** Deadline of an operation that may wait for the service: longer than the timeouts of its requests. */
  readonly deadlineMs?: number;
  /** When bytes of files last arrived, on the clock of `elapsedMs`: no read times out while some do. */
  readonly bytesCameMs?: () => number;
  /** A long reply to READ that takes this long is slow: the pool sends the next ones. */
  readonly slowReplyMs?: number;
  readonly addon?: KernelAddon;
  readonly helper?: CallsOfHelper | null;
  /** With `--continuity`: the keeper, and the journal by which a successor knows which changes were made. */
  readonly continuity?: { readonly keeper: Keeper; readonly journal: RecordedChanges } | null;
}

/** The journal of changes, as the record of served requests depends on it. */
export interface RecordedChanges {
  /** The number of the last record that the start found. */
  readonly foundRecord: number;
  /** Called around each record. */
  witness: Pick<HandoverState, 'needsInode' | 'writing' | 'refused'> | null;
}

/**
 * Mounts `ops` on `options.directory` and serves it in the loop of the calling thread, which must never access the mount itself. First
 * detaches a dead mount of this program there. Resolves when kernel and binding have agreed and `ops.init` was called.
 *
 * A successor of a process with a keeper continues on the connection of that process instead.
 *
 * @throws UsageError with a message: no device, no fusermount3, a mount point that is missing, a file, not empty or mounted
 */
export async function mountLinux(options: MountOptions, ops: FileSystemOps, deps: LinuxMountDeps): Promise<LinuxMount> {
  const addon = deps.addon ?? loadKernelAddon();
  const directory = MountPoint.canonicalDirectory(options.directory);
  if ((deps.continuity?.keeper.generation ?? 0) > 0) {
    const { maskedFeatures } = options;
    const mount = new Mount({ ...deps, addon, ops, directory, fd: KEEPER_DEVICE, maskedFeatures });
    mount.continues();
    return mount;
  }
  if (await MountPoint.detachDeadMount(directory, options.fsname, { addon, clock: deps.clock })) {
    deps.log.info({ directory }, 'dead mount detached');
  }
  MountPoint.checkMountPoint(directory, options);
  const fd = MountPoint.openMount({ ...options, directory }, { addon, uid: process.geteuid?.() ?? 0 });
  const mount = new Mount({ ...deps, addon, ops, directory, fd, maskedFeatures: options.maskedFeatures });
  await mount.agreed();
  return mount;
}

/** Frees `directory` from a mount of this program whose process is gone. @returns whether there was one */
export function detachDeadMount(
  directory: string,
  fsname: string,
  deps: { clock: Clock; addon?: KernelAddon },
): Promise<boolean> {
  return MountPoint.detachDeadMount(directory, fsname, { addon: deps.addon ?? loadKernelAddon(), clock: deps.clock });
}

class Mount implements LinuxMount {
  readonly directory: string;
  readonly device: string;
  readonly descriptor: number;
  readonly invalidator: KernelInvalidator;
  readonly ended: Promise<'unmounted' | 'aborted'>;
  readonly #ops: FileSystemOps;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #addon: KernelAddon;
  readonly #maskedFeatures: readonly string[];
  readonly #connection: AddonConnection;
  readonly #continuity: Continuity | null;
  readonly #wire: Wire;
  readonly #nodeIds: NodeIds;
  readonly #boundary: OpBoundary;
  readonly #agreement: Promise<Agreement>;
  #features: ReadonlySet<MaskableFeature> = new Set();
  #resolveAgreement!: (agreement: Agreement) => void;
  #rejectAgreement!: (error: Error) => void;
  #resolveEnded!: (how: 'unmounted' | 'aborted') => void;
  #over = false;
  #batches = 0;

  constructor(
    deps: LinuxMountDeps & {
      addon: KernelAddon;
      ops: FileSystemOps;
      directory: string;
      fd: number;
      maskedFeatures: readonly string[];
    },
  ) {
    this.directory = deps.directory;
    this.descriptor = deps.fd;
    this.#ops = deps.ops;
    this.#log = deps.log;
    this.#clock = deps.clock;
    this.#addon = deps.addon;
    this.#maskedFeatures = deps.maskedFeatures;
    this.device = mountOn(deps.directory)?.device ?? '';
    this.#agreement = new Promise((resolve, reject) => {
      this.#resolveAgreement = resolve;
      this.#rejectAgreement = reject;
    });
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    this.#boundary = new OpBoundary({
      log: deps.log,
      clock: deps.clock,
      deadlineMs: deps.deadlineMs ?? DEADLINE_MS,
      bytesCameMs: deps.bytesCameMs,
    });
    const generation = deps.continuity?.keeper.generation ?? 0;
    const slots = deps.continuity == null ? SLOTS : SLOTS_OF_KEEPER;
    let session: LinuxSession | null = null;
    const connection = deps.addon.openConnection(
      deps.fd,
      slots.small,
      slots.large,
      Math.round((deps.slowReplyMs ?? SLOW_REPLY_MS) * 1e6),
      (count) => {
        this.#batches++;
        session?.batch(count);
      },
      (count) => session?.unsent(count),
      (errno) => this.#end(errno),
      ...(deps.continuity == null ? [] : [KEEPER_MEMORY, HANDOVER_BYTES]),
    );
    if (typeof connection === 'number') {
      // The keeper tries again with another process.
      if (generation === 0) {
        deps.addon.closeDescriptor(deps.fd);
        MountPoint.unmountDirectory(deps.directory, 'lazily', deps.addon);
      }
      throw new UsageError(
        `the connection to /dev/fuse cannot be opened: ${errnoOf(connection)}`,
        MOUNT_REFUSAL.noFuse,
      );
    }
    this.#connection = connection;
    this.#wire = new Wire(connection.region);
    this.#continuity =
      deps.continuity == null
        ? null
        : { ...deps.continuity, state: new HandoverState(connection.region, connection.recordsStart, generation) };
    const nodeIds = new NodeIds(generation, this.#continuity?.state.folderIds ?? null);
    this.#nodeIds = nodeIds;
    this.invalidator = new KernelInvalidator({
      connection,
      wire: this.#wire,
      nodeIds,
      clock: deps.clock,
      messageStart: MESSAGE_START,
      canExpire: () => this.#features.has('has-expire-only'),
      rows: this.#continuity?.state.notices ?? null,
    });
    session = new LinuxSession({
      ops: deps.ops,
      helper: deps.helper ?? null,
      boundary: this.#boundary,
      connection,
      invalidator: this.invalidator,
      wire: this.#wire,
      nodeIds,
      smallSlots: slots.small,
      largeSlots: slots.large,
      callerState,
      agree: (body, out) => this.#agree(body, out),
      handover: this.#continuity?.state ?? null,
    });
  }

  get features(): ReadonlySet<MaskableFeature> {
    return this.#features;
  }

  metrics(): ReadonlyMap<OpName, Readonly<OpMetrics>> {
    return this.#boundary.metrics();
  }

  state(): BindingState {
    const [written = 0, unknown = 0, failed = 0, waiting = 0, small = 0, large = 0, slowReplies = 0] =
      this.#connection.counts();
    return {
      pendingOperations: this.#boundary.pendingCount,
      notificationsWritten: written,
      notificationsUnknown: unknown,
      notificationsFailed: failed,
      notificationsWaiting: waiting + this.invalidator.heldCount,
      freeSmallSlots: small,
      freeLargeSlots: large,
      slowReplies,
    };
  }

  /** Waits for INIT. */
  async agreed(): Promise<void> {
    const cancel = this.#clock.after(INIT_MS_MAX, () => {
      this.#rejectAgreement(new UsageError('the kernel sent no INIT request after mounting', MOUNT_REFUSAL.noFuse));
    });
    try {
      const agreement = await this.#agreement;
      if (this.#continuity !== null) this.#continuity.journal.witness = this.#continuity.state;
      this.#ops.init?.(this.invalidator, this.#continuity?.state);
      if (this.#continuity !== null && this.#continuity.state.offer !== null)
        tellKeeper('serves', this.descriptor, this.#addon);
      await this.#raiseReadAhead(agreement.readAheadBytesMax);
    } catch (error) {
      await this.unmount('lazily').catch(() => undefined);
      throw error;
    } finally {
      cancel();
    }
  }

  /**
   * Takes over the connection of an earlier process. Synchronous: no request is read before the state of that process is known.
   *
   * @throws UsageError if that process left no agreement
   */
  continues(): void {
    const { state, journal } = this.#continuity as Continuity;
    const { offer } = state;
    if (offer === null) throw new UsageError('the keeper has no agreement with the kernel', MOUNT_REFUSAL.noFuse);
    const agreement = negotiate(offer, this.#maskedFeatures);
    this.#features = agreement.features;
    state.keepsRequests = !agreement.features.has('resend');
    this.#resolveAgreement(agreement);
    state.judge(journal.foundRecord);
    const notices = state.notices.inherited(journal.foundRecord);
    journal.witness = state;
    for (const { ino, flags } of state.inherited()) if (mayWrite(flags)) this.invalidator.opened(ino, true, false);
    this.#ops.init?.(this.invalidator, state);
    // After the handles of older versions: the name does not lead to them any more.
    for (const { nodeId, ino } of state.nodeIds()) this.#nodeIds.inherit(nodeId, ino);
    this.invalidator.inherit(notices);
    const requests = this.#connection.inherit(!state.keepsRequests);
    this.#log.debug({ requests }, 'unanswered requests inherited');
    if (!state.keepsRequests) {
      const result = this.#connection.resend();
      if (result < 0) this.#log.error({ errno: errnoOf(result) }, 'the kernel does not resend unanswered requests');
    }
    tellKeeper('serves', -1, this.#addon);
  }

  async requestsDrained(): Promise<void> {
    // A whole turn of the loop without a batch found the queue empty. The queue is first in, first out: under continuous load, as many turns
    // as a full queue could need are enough.
    for (let turn = 0, seen = -1; turn < DRAIN_TURNS_MAX && seen !== this.#batches && !this.#over; turn++) {
      seen = this.#batches;
      await nextTurn(); // the end of this turn, which may have polled the device already
      await nextTurn();
    }
  }

  async notificationsFlushed(): Promise<void> {
    const endMs = this.#clock.elapsedMs() + FLUSH_MS_MAX;
    while (!this.#over && this.state().notificationsWaiting > 0 && this.#clock.elapsedMs() < endMs) {
      await new Promise<void>((resume) => this.#clock.after(1, resume));
    }
  }

  async unmount(how: 'orderly' | 'lazily'): Promise<void> {
    const place = this.#over ? null : placeOf(this.device, this.directory);
    if (place !== null) await MountPoint.unmountInBackground(place, how);
    if (this.#continuity !== null) tellKeeper('letsGo', -1, this.#addon);
    // Lazily: open files keep the connection alive. `ended` resolves when the last is closed.
    if (how === 'lazily') return;
    // Orderly: no process here uses it any more. A copied mount namespace (a container, unshare(1)) holds the mount as long as it lives,
    // and is not waited for. Nor are open files in a mount that was detached from outside (umount -l): that counts as in use.
    let cancel = (): void => {};
    const late = new Promise<void>((resolve, reject) => {
      cancel = this.#clock.after(place === null ? DETACHED_MS_MAX : ELSEWHERE_MS_MAX, () => {
        if (place === null) return reject(new FsError('EBUSY', `${this.directory} was detached, but is still in use`));
        this.#log.warn(
          { directory: this.directory },
          'mount still held by another mount namespace: connection aborted',
        );
        // Not as unmounted: every close(2) has been received meanwhile, and files still open there are in use.
        void this.requestsDrained().then(() => {
          this.#end(constants.errno.ECONNABORTED);
          resolve();
        });
      });
    });
    try {
      await Promise.race([this.ended, late]);
    } finally {
      cancel();
    }
  }

  /** struct fuse_init_in → struct fuse_init_out. @throws FsError EPROTO for a kernel that is too old */
  #agree(body: number, out: number): number {
    const wire = this.#wire;
    const flags = wire.u32(body + 12);
    const offer = {
      major: wire.u32(body),
      minor: wire.u32(body + 4),
      readAheadBytesMax: wire.u32(body + 8),
      flags,
      flags2: (flags & (1 << 30)) !== 0 ? wire.u32(body + 16) : 0,
    };
    wire.bytes.fill(0, out, out + P.INIT_OUT_BYTES);
    wire.setU32(out, P.PROTOCOL_MAJOR);
    if (offer.major > P.PROTOCOL_MAJOR) return P.INIT_OUT_BYTES; // it asks again in our version
    if (offer.major < P.PROTOCOL_MAJOR || offer.minor < P.PROTOCOL_MINOR_MIN) {
      this.#rejectAgreement(
        new UsageError(
          `this kernel is too old: it has FUSE ${offer.major}.${offer.minor}, but 7.23 (Linux 4.2) or newer is needed`,
          MOUNT_REFUSAL.noFuse,
        ),
      );
      throw new FsError('EPROTO');
    }
    const agreement = negotiate(offer, this.#maskedFeatures);
    this.#features = agreement.features;
    if (this.#continuity !== null) {
      this.#continuity.state.agreed(offer);
      this.#continuity.state.keepsRequests = !agreement.features.has('resend');
    }
    wire.setU32(out + 4, agreement.minor);
    wire.setU32(out + 8, agreement.readAheadBytesMax);
    wire.setU32(out + 12, agreement.flags);
    wire.setU32(out + 16, BACKGROUND_MAX | (CONGESTION_THRESHOLD << 16));
    wire.setU32(out + 20, agreement.writeBytesMax);
    wire.setU32(out + 24, 1); // time_gran: nanoseconds
    wire.setU32(out + 28, agreement.pagesMax);
    wire.setU32(out + 32, agreement.flags2);
    this.#log.debug({ minor: agreement.minor, features: [...agreement.features] }, 'kernel agreed');
    this.#resolveAgreement(agreement);
    return P.INIT_OUT_BYTES;
  }

  /** Without this the kernel reads 128 KiB at a time, despite INIT; needs privilege, and is optional. */
  async #raiseReadAhead(bytes: number): Promise<void> {
    const file = MountPoint.readAheadFile(this.directory);
    if (file === null) return;
    try {
      await writeFile(file, String(Math.min(bytes, PAYLOAD_BYTES_MAX) / 1024));
    } catch (error) {
      this.#log.debug({ errno: (error as NodeJS.ErrnoException).code }, 'read-ahead not raised');
    }
  }

  #end(errno: number): void {
    if (this.#over) return;
    this.#over = true;
    const how = errno === constants.errno.ENODEV ? 'unmounted' : 'aborted';
    // Before the connection is closed: that releases the mutex by which the keeper knows that this thread answers.
    if (this.#continuity !== null) tellKeeper('letsGo', -1, this.#addon);
    this.#boundary.close();
    this.invalidator.close();
    this.#connection.close();
    this.#rejectAgreement(new UsageError('the directory was unmounted before the mount was ready', 1));
    this.#agreement.catch(() => undefined);
    if (how === 'aborted') {
      this.#log.warn({ errno }, 'kernel connection broken');
      this.#detachQuietly();
    }
    try {
      this.#ops.destroy?.();
    } catch (error) {
      this.#log.error({ err: error }, 'closing the file system failed');
    }
    this.#resolveEnded(how);
  }

  /** An aborted connection leaves a dead mount behind. */
  #detachQuietly(): void {
    try {
      const place = placeOf(this.device, this.directory);
      if (place !== null) MountPoint.unmountDirectory(place, 'lazily', this.#addon);
    } catch (error) {
      this.#log.warn({ err: error, directory: this.directory }, 'dead mount not detached');
    }
  }
}

interface Continuity {
  readonly keeper: Keeper;
  readonly journal: RecordedChanges;
  readonly state: HandoverState;
}

function nextTurn(): Promise<void> {
  return new Promise((resume) => setImmediate(resume));
}
