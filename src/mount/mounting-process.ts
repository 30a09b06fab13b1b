import { basename, dirname, join } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { collectGarbage } from '../base/collect-garbage.ts';
import { UsageError } from '../base/errors.ts';
import { createLogger, type Logger } from '../base/log.ts';
import { Port } from '../base/port.ts';
import { programVersion } from '../base/program-version.ts';
import { lowerPriority } from '../base/thread-priority.ts';
import type { MountEvent } from '../control/event-model.ts';
import { ControlServer } from '../control/server.ts';
import type { ConnectionStatus, Status, SyncProgress } from '../control/status-model.ts';
import { abandonMount } from '../kernel/abandon.ts';
import { type Keeper, keeperOf } from '../kernel/keeper.ts';
import type { RemoteService } from '../remote/contract.ts';
import { openService } from '../remote/open-service.ts';
import { createTransfer, type Transfer } from '../transfer/transfer.ts';
import { Names } from '../tree/names.ts';
import { type Account, readAccountFile } from './account-file.ts';
import { Activity } from './activity.ts';
import { unmountWhenKilled } from './auto-unmount.ts';
import { BareMountPoint } from './bare-mount-point.ts';
import { capableOptions } from './capable-options.ts';
import { ConnectionWatch } from './connection-watch.ts';
import { Continuity } from './continuity.ts';
import { controlHandlers } from './control-handlers.ts';
import { DesktopNotices } from './desktop-notices.ts';
import { DesktopThumbnails } from './desktop-thumbnails.ts';
import { EventPrinter } from './event-printer.ts';
import { EventStream } from './event-stream.ts';
import { exitCode } from './exit-codes.ts';
import { failureOf } from './failure.ts';
import { afterHandover } from './handover.ts';
import { MountReport } from './mount-report.ts';
import type { MountAnswer, MountRequest } from './mount-request.ts';
import type { MainService, MountCommands, MountService, StopOutcome, WorkerStart } from './mount-seam.ts';
import { QuotaWatch } from './quota-watch.ts';
import { routeTo, type ServiceRoute } from './service-route.ts';
import { offerServiceSide } from './service-side.ts';
import { SignInWatch } from './sign-in-watch.ts';
import { withProgress } from './sync-progress.ts';
import type { UpgradeOffer } from './upgrade.ts';
import { limitV8 } from './v8-limits.ts';
import { fileSystemThread } from './worker-start.ts';
import { WorkerWatch } from './worker-watch.ts';

/**
 * The mounting process, main thread: HTTP, transfers, the control socket and the signals. The Worker (`mount-worker`) answers the
 * kernel and is the only writer of the store. Started by `cfs-mount`, never by hand.
 *
 * @param answer gets the outcome of the start, once
 */
export async function mountMain(
  env: Readonly<Record<string, string | undefined>>,
  request: MountRequest,
  answer: (outcome: MountAnswer) => void,
): Promise<number> {
  // The reader of the events may end (EPIPE), and the disk of the output may be full. The mount continues.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
  const log = createLogger({ level: request.options.logLevel, file: request.logFile });
  try {
    const account = readAccountFile(request.accountFile);
    const route = routeTo(account.origin, { env, options: request.options, known: account });
    const place = request.options.continuity ? keeperOf(env) : null;
    const continuity = place === null ? null : Continuity.of(request, log);
    const mounting = new MountingProcess(request, account, route, log, continuity);
    const keeper = place === 'standby' ? await mounting.turn() : place;
    if (place !== null && keeper === null) return exitCode('ok'); // the mount has ended without this standby
    await mounting.start(keeper);
    const { connection } = mounting;
    answer({ ready: true, directory: request.directory, pid: process.pid, connection });
    return await mounting.ended;
  } catch (error) {
    log.error({ err: error }, 'mount failed');
    const failure = failureOf(error);
    answer({ ready: false, error: failure.sentence, exitCode: failure.exitCode });
    return failure.exitCode;
  }
}

class MountingProcess {
  readonly #request: MountRequest;
  readonly #account: Account;
  readonly #log: Logger;
  /** Read once: an upgrade may replace the file that names it. */
  readonly #version = programVersion();
  #startedMs = systemClock.nowMs();
  readonly #service: RemoteService;
  readonly #transfer: Transfer;
  readonly #watch: WorkerWatch;
  readonly #port: Port;
  readonly #mount: MountService;
  readonly #control: ControlServer;

  /** Ends with the exit code of the process. */
  readonly ended: Promise<number>;
  #end!: (code: number) => void;
  #stopping: Promise<StopOutcome> | null = null;
  #phase: Status['phase'] = 'running';
  /** Set once: a mount that was unmounted from outside and then stopped would finish twice. */
  #hasFinished = false;
  #isUnmounted = false;
  /** A client of the control socket asked for the stop: it reports what is left, or is the next mount and pushes it. */
  #isStopAnswered = false;
  readonly #notices: DesktopNotices;
  readonly #events: EventStream;
  readonly #activity = new Activity({ clock: systemClock });
  readonly #signIns: SignInWatch;
  readonly #quota: QuotaWatch;
  readonly #connection: ConnectionWatch;
  readonly #commands: MountCommands;
  readonly #report: MountReport;
  #isMounted = false;
  readonly #continuity: Continuity | null;

  constructor(
    request: MountRequest,
    account: Account,
    route: ServiceRoute,
    log: Logger,
    continuity: Continuity | null,
  ) {
    this.#request = request;
    this.#continuity = continuity;
    this.#account = account;
    this.#log = log;
    this.#events = new EventStream({ clock: systemClock, log });
    const printer = request.foreground ? new EventPrinter(systemClock) : null;
    const place = { directory: request.directory, flags: request.flags };
    this.#notices = new DesktopNotices({ clock: systemClock, log, env: process.env, place });
    this.#events.subscribe(({ event }) => {
      printer?.print(event);
      if (event.type !== 'unmounted' || !this.#isStopAnswered) this.#notices.show(event);
    });
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    this.#service = openService({
      baseUrl: account.origin,
      keys: account,
      refreshToken: account.refreshToken,
      userAgent: `cfs-mount/${this.#version}`,
      ...route,
      connections: request.options.connections,
      clock: systemClock,
      log: log.child({ part: 'remote' }),
      onSignInRequired: () => this.#connection.signInRequired(),
      onSignedIn: () => this.#connection.signedIn(),
    });
    const service = this.#service;
    const options = capableOptions(request.options, service);
    this.#signIns = new SignInWatch({
      accountFile: request.accountFile,
      inUse: account,
      clock: systemClock,
      onSignIn: (other) => {
        log.info('another sign-in is tried');
        service.useSignIn(other, other.refreshToken);
        void this.#quota.ask(); // any question shows whether it is accepted
      },
    });
    this.#quota = new QuotaWatch({
      question: async () => (await this.#user()).quota,
      onQuota: ({ limitBytes, usedBytes }) => this.#mount.quota(limitBytes, usedBytes),
      onLow: (quota) => this.#event({ type: 'quota-low', ...quota }),
      clock: systemClock,
      log,
    });
    const names = new Names();
    const shownName = (name: string) => names.toFileName(name);
    this.#transfer = createTransfer({
      service,
      reading: (options.root === 'account' ? service.wholeAccount?.view(shownName) : null) ?? service,
      clock: systemClock,
      log: log.child({ part: 'transfer' }),
      transfers: options.connections,
      uploads: options.transfers,
      limits: {
        upBytesPerSecond: options.upLimitBytes,
        downBytesPerSecond: options.downLimitBytes,
      },
    });

    const start: WorkerStart = {
      request: { ...request, options },
      accountName: `${account.username} (${account.origin})`,
      owner: { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
    };
    const worker = fileSystemThread();
    worker.postMessage(start);
    // Programs wait for the Worker, the service waits for this thread: decoding a listing must not delay a stat(2). The Worker's
    // thread exists already and keeps its priority.
    lowerPriority();
    this.#watch = new WorkerWatch({
      worker,
      clock: systemClock,
      log,
      // A successor continues on the connection.
      abandon: (mount) => {
        if (continuity === null) abandonMount(mount);
      },
      onDeath: (error, isStuck) => this.#workerDied(error, isStuck),
    });
    const port = new Port(worker);
    this.#port = port;
    this.#mount = port.remote<MountService>('mount');
    this.#commands = port.remote<MountCommands>('commands');
    // The interface for the file-system side: here the compiler checks that `transfer` satisfies it.
    offerServiceSide(port, this.#transfer);
    const name = basename(dirname(request.accountFile));
    const thumbnails = new DesktopThumbnails({ directory: request.directory, account: name, env: process.env, log });
    port.offer('thumbnailCache', thumbnails);
    port.offer('main', {
      event: async (event) => this.#event(event),
      stirred: async () => this.#activity.happened(),
      ended: async (outcome) => void this.#finished(outcome),
      draining: async () => {
        this.#phase = 'draining';
      },
      puttingDown: async (outcome) => {
        this.#control.stopListening();
        this.#unmounted(outcome);
      },
      alive: async () => this.#watch.heard(),
    } satisfies MainService);

    this.#connection = new ConnectionWatch({
      service,
      connectivity: this.#transfer.connectivity,
      route,
      signIns: this.#signIns,
      mount: this.#mount,
      onEvent: (event) => this.#event(event),
      onChange: () => this.#activity.happened(),
      clock: systemClock,
    });
    this.#report = new MountReport({
      directory: request.directory,
      version: this.#version,
      account,
      commands: this.#commands,
      service,
      transfer: this.#transfer,
      connection: this.#connection,
      quota: this.#quota,
      continuity,
      phase: () => this.#phase,
      startedMs: () => this.#startedMs,
      clock: systemClock,
    });
    this.#control = new ControlServer({
      socketPath: request.socketPath,
      clock: systemClock,
      log: log.child({ part: 'control' }),
      handlers: controlHandlers({
        directory: request.directory,
        mount: this.#commands,
        events: this.#events,
        publish: (event) => this.#event(event),
        status: () => this.#report.status(),
        activity: this.#activity,
        metrics: () => this.#report.metrics(),
        upgrade: (offer) => this.#upgrade(offer),
        stop: (timeoutMs) => {
          this.#isStopAnswered = true;
          return this.#stop(timeoutMs);
        },
        withProgress: (id, tell, work) => this.#withProgress(id, tell, work),
        limits: this.#transfer,
        clock: systemClock,
        log,
      }),
    });
  }

  /** For a standby: loads the program, and waits. @returns null when the keeper ends */
  async turn(): Promise<Keeper | null> {
    await this.#mount.load();
    collectGarbage();
    return (await this.#continuity?.turn()) ?? null;
  }

  /**
   * @param keeper with `--continuity`: the place of this process among those of the mount
   * @throws UsageError · SignInError · TransportError · StorageError: then nothing is mounted
   */
  async start(keeper: Keeper | null): Promise<void> {
    this.#startedMs = systemClock.nowMs();
    const { socketPath, bootSocketPath } = this.#request;
    const deps = { socketPath, bootSocketPath, clock: systemClock };
    await this.#mount.loaded();
    limitV8(); // both threads have loaded their modules
    const isContinued = keeper !== null && keeper.generation > 0;
    // One request for the folder and the quota. It is under way while the store is opened.
    const asking = isContinued ? null : this.#user();
    asking?.catch(() => {});
    const { hasRoot } = await afterHandover(deps, () => this.#mount.open(keeper));
    this.#events.open(join(this.#request.storeDirectory, 'events.jsonl'));
    if (isContinued) {
      await this.#serve(keeper); // programs wait for it
      this.#signIns.once(); // a standby may have waited for days
    }
    const user = asking ?? this.#user();
    user.catch(() => {});
    if (!hasRoot) {
      const signal = AbortSignal.timeout(30_000);
      const whole = this.#request.options.root === 'account' ? this.#service.wholeAccount : null;
      await this.#mount.createRoot(whole === null ? (await user).home : await whole.top(signal));
    }
    const asked = this.#quota.ask(user.then(({ quota }) => quota));
    const late = systemClock.sleep(FIRST_ANSWER_MS_MAX);
    await this.#control.listen();
    try {
      if (!isContinued) await BareMountPoint.during(this.#request.directory, () => this.#serve(keeper));
    } catch (error) {
      await this.#control.close();
      throw error;
    }
    // A continued mount was there before: the event `mounted` is not for it.
    const pending = isContinued ? 0 : (await this.#commands.metrics()).queue.pending;
    await Promise.race([asked, late]);
    if (this.#hasFinished) return; // unmounted meanwhile
    this.#isMounted = true;
    this.#connection.report();
    if (isContinued) return;
    this.#event({
      type: 'mounted',
      directory: this.#request.directory,
      account: this.#account.username,
      pending,
      connection: this.connection,
      ...((await this.#commands.paused()) !== null && { isPaused: true }),
    });
  }

  async #serve(keeper: Keeper | null): Promise<void> {
    const mounted = await this.#mount.mount();
    this.#watch.mounted(mounted);
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
      process.on(signal, () => void this.#interrupted(signal));
    if (keeper !== null) this.#continuity?.serves(keeper, mounted.doesResend);
    if (this.#request.words.autoUnmount) unmountWhenKilled(this.#request.directory);
    await this.#mount.begin();
  }

  /** @throws UsageError if the offer is refused; this process then continues */
  async #upgrade(offer: UpgradeOffer): Promise<void> {
    if (this.#continuity === null || !this.#isMounted || this.#phase !== 'running')
      throw new UsageError(
        'this mount cannot be upgraded now: run cfs umount, then mount again',
        exitCode('alreadyMounted'),
      );
    await this.#continuity.prepareUpgrade(this.#version, offer);
    setImmediate(() => {
      // After the answer to the caller. If the mount was unmounted from outside meanwhile, nothing is left to continue.
      if (this.#phase === 'running' || this.#stopping !== null) this.#continuity?.handOver();
    });
  }

  /** The first request of a start: its end also shows whether the service is reachable. */
  #user(): ReturnType<RemoteService['user']> {
    return this.#transfer.connectivity.watched(() => this.#service.user(AbortSignal.timeout(30_000)));
  }

  #event(event: MountEvent): void {
    this.#log.info({ event }, 'event');
    this.#events.publish(event);
    this.#activity.happened();
    if (event.type === 'uploaded' || event.type === 'deleted') this.#quota.pushed();
  }

  async #interrupted(signal: NodeJS.Signals): Promise<void> {
    this.#log.info({ signal }, 'stopping');
    await this.#stop(this.#request.options.drainMs).catch((err: unknown) => {
      this.#log.error({ err }, 'stop failed');
      this.#end(exitCode('failure'));
    });
  }

  /** Unmounts and drains; then the process ends. A second call joins the first one, and its limit applies. */
  #stop(timeoutMs: number | null): Promise<StopOutcome> {
    this.#phase = 'draining';
    const stopped = this.#mount.stop(timeoutMs);
    if (this.#stopping !== null) {
      stopped.catch(() => {}); // the first stop reports the failure
      return this.#stopping;
    }
    this.#stopping = stopped.then(
      (outcome) => {
        // The control client gets its answer before the socket is closed.
        setImmediate(() => void this.#finished(outcome));
        return outcome;
      },
      (error: unknown) => {
        this.#stopping = null;
        this.#phase = 'running';
        throw error;
      },
    );
    return this.#stopping;
  }

  async #finished(outcome: StopOutcome): Promise<void> {
    if (this.#hasFinished) return;
    this.#hasFinished = true;
    this.#watch.stop();
    this.#signIns.stop();
    this.#unmounted(outcome);
    await this.#control.close();
    await this.#service.close();
    await this.#notices.settled();
    this.#end(exitCode('ok'));
  }

  /** The next owner of the store continues the history. Reported once. */
  #unmounted({ pending, busy }: StopOutcome): void {
    if (this.#isUnmounted) return;
    this.#isUnmounted = true;
    this.#event({ type: 'unmounted', directory: this.#request.directory, pending, busy });
    this.#events.close();
  }

  #workerDied(error: Error, isStuck: boolean): void {
    // Not an orderly exit: a Worker that died inside LMDB would block process.exit() permanently.
    if (isStuck || this.#continuity !== null) process.kill(process.pid, 'SIGKILL');
    // Pending calls to the Worker (a start, a status) fail immediately.
    this.#port.close(error);
    this.#end(exitCode('failure'));
  }

  get connection(): ConnectionStatus {
    return this.#connection.status;
  }

  #withProgress<T>(id: number, report: (progress: SyncProgress) => void, work: () => Promise<T>): Promise<T> {
    const underWayBytes = (): number =>
      this.#transfer
        .stats()
        .running.reduce((bytes, { kind, bytesDone }) => bytes + (kind === 'upload' ? bytesDone : 0), 0);
    const waitsFor = (): string | null => {
      const { state, reason } = this.connection;
      return state === 'sign-in-needed' ? `${reason} (cfs login URL cures that)` : reason;
    };
    return withProgress(
      { clock: systemClock, left: () => this.#commands.left(id), underWayBytes, waitsFor, report },
      work,
    );
  }
}

/** Longest delay of the first message of a mount, so that it can say whether the service is reachable: longer than three refused retries. */
const FIRST_ANSWER_MS_MAX = 3_000;
