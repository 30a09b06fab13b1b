import { readFileSync, writeSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { systemClock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import { createLogger, silentLogger } from '../../base/log.ts';
import type { LogLevel } from '../../base/log-level.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { claimStore } from '../../server/claimed-store.ts';
import type { FaultRule } from '../../server/fault-plan.ts';
import { HOLDING_LIMITS } from '../../server/holdings.ts';
import { checkBlobs } from '../../server/housekeeping.ts';
import { openParts } from '../../server/local-back-end.ts';
import type { ObjectStore } from '../../server/object-store.ts';
import { isSharpInstalled, pictureCommand } from '../../server/picture-library.ts';
import { ReferenceServer } from '../../server/reference-server.ts';
import type { ReferenceServerOptions } from '../../server/server-options.ts';
import type { CheckedVersions } from '../../server/version-check.ts';
import type { Invocation } from '../invocation.ts';
import { databaseUrl } from './database-url.ts';

/** The flags of `cfs serve`; null: not given. */
export interface ServeFlags {
  readonly listen: string;
  readonly tlsCert: string | null;
  readonly tlsKey: string | null;
  readonly insecure: boolean;
  readonly publicOrigin: string | null;
  readonly tokenLifeMs: number;
  readonly versionsKept: number | null;
  readonly uniqueNames: boolean;
  readonly foldCase: boolean;
  readonly pageMax: number | null;
  readonly storageFactor: number | null;
  readonly entriesMax: number | null;
  readonly unfinishedMax: number | null;
  readonly connectionsMax: number | null;
  readonly trustedProxy: string | null;
  readonly adminListen: string | null;
  readonly objects: string | null;
  readonly database: string | null;
  readonly acceptAnyKeys: boolean;
  readonly faultFile: string | null;
  readonly latencyMs: number;
  readonly bandwidthBytes: number | null;
  readonly readyFd: number | null;
  readonly logLevel: string;
}

/** @throws UsageError naming the wrong flag */
export function serveFlags(given: Invocation): ServeFlags {
  return {
    listen: given.text('--listen') ?? '127.0.0.1',
    tlsCert: given.text('--tls-cert'),
    tlsKey: given.text('--tls-key'),
    insecure: given.has('--insecure'),
    publicOrigin: given.text('--public-origin'),
    tokenLifeMs: given.duration('--token-life') ?? 3_600_000,
    versionsKept: given.whole('--versions-kept'),
    uniqueNames: given.has('--unique-names'),
    foldCase: given.has('--fold-case'),
    pageMax: given.whole('--page-max'),
    storageFactor: given.whole('--storage-factor'),
    entriesMax: given.whole('--entries-max'),
    unfinishedMax: given.whole('--unfinished-max'),
    connectionsMax: given.whole('--connections-max'),
    trustedProxy: given.text('--trusted-proxy'),
    adminListen: given.text('--admin-listen'),
    objects: given.text('--objects'),
    database: given.text('--database'),
    acceptAnyKeys: given.has('--accept-any-keys'),
    faultFile: given.text('--fault-file'),
    latencyMs: given.duration('--latency') ?? 0,
    bandwidthBytes: given.bytes('--bandwidth'),
    readyFd: given.whole('--ready-fd'),
    logLevel: given.text('--log-level') ?? 'info',
  };
}

/** The output for messages. */
interface Printer {
  readonly print: (text: string) => void;
}

/** Runs until SIGTERM or SIGINT; a second one does not wait for running requests. */
export async function runServer(dataDirectory: string, flags: ServeFlags, context: Printer): Promise<number> {
  const options = optionsOf(dataDirectory, flags);
  const server = await ReferenceServer.open({
    ...options,
    objects: await openObjects(flags.objects, flags.database !== null),
  });
  const stopped = new Promise<void>((resolve, reject) => {
    let signals = 0;
    const stop = (): void => {
      signals += 1;
      server.close({ graceMs: signals === 1 ? GRACE_MS : 0 }).then(resolve, reject);
    };
    process.once('SIGTERM', stop);
    process.once('SIGINT', stop);
  });
  const { faultFile } = flags;
  if (faultFile !== null) process.on('SIGHUP', () => orderAgain(server, faultFile, context));
  // Without one the terminal's end is the server's, as of any program. Node does not leave it to nohup(1), which is known by where the output goes.
  else if (!process.stdout.isTTY && !process.stderr.isTTY) process.on('SIGHUP', () => {});
  context.print(`listening on ${server.origin}\n`);
  if (server.adminOrigin !== null) context.print(`health and metrics on ${server.adminOrigin}\n`);
  const hint = flags.publicOrigin === null ? addressHint(server.origin) : null;
  if (hint !== null) context.print(`${hint}\n`);
  if (!isSharpInstalled())
    context.print(`pictures are not scaled, because sharp is missing; to install it: ${pictureCommand()}\n`);
  if (flags.readyFd !== null) announce(flags.readyFd, server.origin);
  await stopped;
  return exitCode('ok');
}

/** The hint for a server on all addresses: URLs in responses contain that address, which other machines cannot use. */
export function addressHint(origin: string): string | null {
  if (!ANY_ADDRESS.has(new URL(origin).hostname)) return null;
  return `URLs in responses begin with ${origin}: for clients on other machines set --public-origin`;
}

const ANY_ADDRESS: ReadonlySet<string> = new Set(['0.0.0.0', '[::]']);

/** `kill -HUP`: loads the fault file again. An invalid file keeps the old rules, with a message. */
function orderAgain(server: ReferenceServer, faultFile: string, context: Printer): void {
  try {
    server.faults = faultsOf(faultFile);
    context.print(`fault rules loaded: ${server.faults.length}\n`);
  } catch (error) {
    context.print(`fault rules unchanged: ${(error as Error).message}\n`);
  }
}

/**
 * The client of the object store is loaded only if there is one. @param isShared whether the store is the only place of
 * data, so that it may be a directory
 * @throws UsageError
 */
export async function openObjects(
  location: string | null,
  isShared = false,
  flag = '--objects',
): Promise<ObjectStore | null> {
  if (location === null) return null;
  if (location.startsWith('file:')) {
    if (!isShared) throw new UsageError(`${flag}: a directory is for --database; other data are on the disk anyway`);
    const { DirectoryStore } = await import('../../server/directory-store.ts');
    return new DirectoryStore(directoryOf(location, flag));
  }
  const { openS3 } = await import('../../server/s3/open-s3.ts');
  return openS3(location, process.env, systemClock);
}

function directoryOf(location: string, flag: string): string {
  try {
    return fileURLToPath(location);
  } catch (error) {
    throw new UsageError(`${flag}: "${visible(location)}" is not file:///directory`, 2, { cause: error });
  }
}

/** Verifies every version. @returns the exit code: `store` where anything is damaged */
export async function checkData(
  dataDirectory: string,
  flags: Pick<ServeFlags, 'objects' | 'database'>,
  context: Printer,
): Promise<number> {
  const { damage, versions, bytes } =
    flags.database === null
      ? await checkDirectory(dataDirectory, flags.objects)
      : await checkDatabase(databaseUrl(flags.database), flags.objects);
  for (const { user, file, version, what } of damage) {
    context.print(`user ${user}, file ${file}, version ${version}: ${what}\n`);
  }
  context.print(`checked ${versions} versions, ${bytes} bytes: ${damage.length} damaged\n`);
  return exitCode(damage.length === 0 ? 'ok' : 'store');
}

async function checkDirectory(dataDirectory: string, location: string | null): Promise<CheckedVersions> {
  const objects = await openObjects(location);
  const parts = openParts({ dataDirectory, objects });
  try {
    await claimStore(parts.database, objects, silentLogger);
    return await checkBlobs(parts);
  } finally {
    await parts.database.close();
    await objects?.close();
  }
}

/** The client of the database is loaded only if there is one. */
async function checkDatabase(url: string, location: string | null): Promise<CheckedVersions> {
  const objects = await openObjects(location, true);
  if (objects === null) throw new UsageError('--database needs --objects: the data are there');
  const { PostgresInstallation } = await import('../../server/postgres/postgres-installation.ts');
  const installation = await PostgresInstallation.open(url, objects, { isInUse: true });
  try {
    return await installation.check();
  } finally {
    await installation.close();
  }
}

const GRACE_MS = 2000;
/** Only tests read the request log; here it stays short. */
const REQUESTS_KEPT = 100;

function announce(fd: number, origin: string): void {
  try {
    writeSync(fd, `${JSON.stringify({ origin })}\n`);
  } catch (error) {
    throw new UsageError(`--ready-fd ${fd}: ${(error as Error).message}`, exitCode('usage'), { cause: error });
  }
}

function optionsOf(dataDirectory: string, flags: ServeFlags): ReferenceServerOptions {
  const { tlsCert, tlsKey } = flags;
  if ((tlsCert === null) !== (tlsKey === null)) throw new UsageError('--tls-cert and --tls-key must be used together');
  return {
    dataDirectory,
    listen: addressOf(flags.listen, '--listen'),
    ...(tlsCert === null || tlsKey === null
      ? {}
      : { tls: { certificate: textOf(tlsCert, '--tls-cert'), key: textOf(tlsKey, '--tls-key') } }),
    ...(flags.database === null ? {} : { database: { url: databaseUrl(flags.database) } }),
    insecure: flags.insecure,
    ...(flags.publicOrigin === null ? {} : { publicOrigin: publicOriginOf(flags.publicOrigin) }),
    accessTokenMs: flags.tokenLifeMs,
    ...(flags.versionsKept === null ? {} : { versionsKept: Math.max(1, flags.versionsKept) }),
    uniqueNames: flags.uniqueNames,
    foldCase: flags.foldCase,
    ...(flags.pageMax === null ? {} : { pageMax: Math.max(1, flags.pageMax) }),
    limits: {
      ...HOLDING_LIMITS,
      storageFactor: Math.max(2, flags.storageFactor ?? HOLDING_LIMITS.storageFactor),
      entriesMax: flags.entriesMax ?? HOLDING_LIMITS.entriesMax,
      unfinishedMax: Math.max(1, flags.unfinishedMax ?? HOLDING_LIMITS.unfinishedMax),
    },
    ...(flags.connectionsMax === null ? {} : { connectionsMax: Math.max(4, flags.connectionsMax) }),
    trustedProxies: flags.trustedProxy?.split(',').map((entry) => entry.trim()) ?? [],
    ...(flags.adminListen === null ? {} : { adminListen: addressOf(flags.adminListen, '--admin-listen') }),
    acceptAnyKeys: flags.acceptAnyKeys,
    ...(flags.faultFile === null ? {} : { faults: faultsOf(flags.faultFile) }),
    latencyMs: flags.latencyMs,
    ...(flags.bandwidthBytes === null ? {} : { bandwidthBytesPerSecond: flags.bandwidthBytes }),
    log: createLogger({ level: flags.logLevel as LogLevel }),
    requestsKept: REQUESTS_KEPT,
  };
}

export function publicOriginOf(text: string): string {
  if (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)) return new URL(text).origin;
  throw new UsageError(`--public-origin: "${visible(text)}" is not a URL such as https://api.example.com`);
}

/** `host`, `host:port`, `:port`, `port`; IPv6 in brackets. */
function addressOf(text: string, flag: string): { host?: string; port?: number } {
  const match = /^(?:(\[[0-9a-f:.]+\]|[^:[\]]*[^:[\]\d][^:[\]]*|\d+\.\d+\.\d+\.\d+)?)(?::?(\d{1,5}))?$/i.exec(text);
  const port = match?.[2] === undefined ? undefined : Number(match[2]);
  if (match === null || text === '' || (port ?? 0) > 65_535)
    throw new UsageError(`${flag}: "${visible(text)}" is not HOST:PORT`);
  const host = match[1]?.replace(/^\[|\]$/g, '');
  return { ...(host === undefined || host === '' ? {} : { host }), ...(port === undefined ? {} : { port }) };
}

function faultsOf(path: string): readonly FaultRule[] {
  const text = textOf(path, '--fault-file');
  try {
    const rules: unknown = JSON.parse(text);
    if (Array.isArray(rules)) return rules as readonly FaultRule[];
  } catch {
    // The error below is the same as for JSON of another form.
  }
  throw new UsageError(`--fault-file: ${visible(path)} is not a JSON array of rules`);
}

function textOf(path: string, flag: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`${flag}: cannot read ${visible(path)}`, exitCode('usage'), { cause: error });
  }
}
