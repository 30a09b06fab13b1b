import { readFileSync, writeSync } from 'node:fs';
import { UsageError } from '../base/errors.ts';
import { createLogger, type LogLevel } from '../base/log.ts';
import type { FaultRule } from '../server/fault-plan.ts';
import { checkBlobs } from '../server/housekeeping.ts';
import { openParts, ReferenceServer, type ReferenceServerOptions } from '../server/reference-server.ts';
import { exitCode } from './exit-codes.ts';
import type { ServeContext } from './serve.ts';

/** `cfs serve` as commander gives it. */
export interface ServeFlags {
  readonly data?: string;
  readonly listen: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly insecure?: boolean;
  readonly publicOrigin?: string;
  readonly tokenLife: number;
  readonly versionsKept?: number;
  readonly uniqueNames?: boolean;
  readonly foldCase?: boolean;
  readonly pageMax?: number;
  readonly acceptAnyKeys?: boolean;
  readonly faultFile?: string;
  readonly latency: number;
  readonly bandwidth?: number;
  readonly readyFd?: number;
  readonly logLevel: string;
  readonly check?: boolean;
}

/** Runs until SIGTERM or SIGINT; the second one does not wait for requests under way. */
export async function runServer(dataDirectory: string, flags: ServeFlags, context: ServeContext): Promise<number> {
  const server = await ReferenceServer.open(optionsOf(dataDirectory, flags));
  const stopped = new Promise<void>((resolve, reject) => {
    let signals = 0;
    const stop = (): void => {
      signals += 1;
      server.close({ graceMs: signals === 1 ? GRACE_MS : 0 }).then(resolve, reject);
    };
    process.once('SIGTERM', stop);
    process.once('SIGINT', stop);
  });
  context.print(`listening on ${server.origin}\n`);
  if (flags.readyFd !== undefined) announce(flags.readyFd, server.origin);
  await stopped;
  return exitCode('ok');
}

/** Verifies every blob. @returns the exit code: `store` where anything is damaged */
export async function checkData(dataDirectory: string, context: ServeContext): Promise<number> {
  const parts = openParts({ dataDirectory });
  try {
    const { damage, versions, bytes } = await checkBlobs(parts);
    for (const { user, file, version, what } of damage) {
      context.print(`user ${user}, file ${file}, version ${version}: ${what}\n`);
    }
    context.print(`checked ${versions} versions, ${bytes} bytes: ${damage.length} damaged\n`);
    return exitCode(damage.length === 0 ? 'ok' : 'store');
  } finally {
    await parts.database.close();
  }
}

const GRACE_MS = 2000;

function announce(fd: number, origin: string): void {
  try {
    writeSync(fd, `${JSON.stringify({ origin })}\n`);
  } catch (error) {
    throw new UsageError(`--ready-fd ${fd}: ${(error as Error).message}`, exitCode('usage'), { cause: error });
  }
}

function optionsOf(dataDirectory: string, flags: ServeFlags): ReferenceServerOptions {
  const { tlsCert, tlsKey } = flags;
  if ((tlsCert === undefined) !== (tlsKey === undefined)) throw new UsageError('--tls-cert and --tls-key go together');
  if (!LOG_LEVELS.has(flags.logLevel)) throw new UsageError(`--log-level: unknown level ${flags.logLevel}`);
  return {
    dataDirectory,
    listen: addressOf(flags.listen),
    ...(tlsCert === undefined || tlsKey === undefined
      ? {}
      : { tls: { certificate: textOf(tlsCert, '--tls-cert'), key: textOf(tlsKey, '--tls-key') } }),
    insecure: flags.insecure === true,
    ...(flags.publicOrigin === undefined ? {} : { publicOrigin: new URL(flags.publicOrigin).origin }),
    accessTokenMs: flags.tokenLife,
    ...(flags.versionsKept === undefined ? {} : { versionsKept: Math.max(1, flags.versionsKept) }),
    uniqueNames: flags.uniqueNames === true,
    foldCase: flags.foldCase === true,
    ...(flags.pageMax === undefined ? {} : { pageMax: Math.max(1, flags.pageMax) }),
    acceptAnyKeys: flags.acceptAnyKeys === true,
    ...(flags.faultFile === undefined ? {} : { faults: faultsOf(flags.faultFile) }),
    latencyMs: flags.latency,
    ...(flags.bandwidth === undefined ? {} : { bandwidthBytesPerSecond: flags.bandwidth }),
    log: createLogger({ level: flags.logLevel as LogLevel }),
  };
}

const LOG_LEVELS: ReadonlySet<string> = new Set(['error', 'warn', 'info', 'debug', 'trace', 'silent']);

/** `host`, `host:port`, `:port`, `port`; IPv6 in brackets. */
function addressOf(text: string): { host?: string; port?: number } {
  const match = /^(?:(\[[0-9a-f:.]+\]|[^:[\]]*[^:[\]\d][^:[\]]*|\d+\.\d+\.\d+\.\d+)?)(?::?(\d{1,5}))?$/i.exec(text);
  const port = match?.[2] === undefined ? undefined : Number(match[2]);
  if (match === null || text === '' || (port ?? 0) > 65_535)
    throw new UsageError(`--listen: "${text}" is not HOST:PORT`);
  const host = match[1]?.replace(/^\[|\]$/g, '');
  return { ...(host === undefined || host === '' ? {} : { host }), ...(port === undefined ? {} : { port }) };
}

function faultsOf(path: string): readonly FaultRule[] {
  const text = textOf(path, '--fault-file');
  try {
    const rules: unknown = JSON.parse(text);
    if (Array.isArray(rules)) return rules as readonly FaultRule[];
  } catch {
    // Said below, in the same words as for JSON of another form.
  }
  throw new UsageError(`--fault-file: ${path} is not a JSON array of rules`);
}

function textOf(path: string, flag: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`${flag}: cannot read ${path}`, exitCode('usage'), { cause: error });
  }
}
