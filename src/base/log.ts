import { writeSync } from 'node:fs';
import { type DestinationStream, type Logger as PinoLogger, pino } from 'pino';
import { LogFile } from './log-file.ts';
import type { LogLevel } from './log-level.ts';

/**
 * Constant lower-case messages, data in fields with units: `log.warn({ ino, attempt, waitMs }, 'push postponed')`.
 * error: someone must act · warn: something failed and is being dealt with · info: a person would want to know ·
 * debug: what a developer needs.
 */
export type Logger = Pick<PinoLogger, 'error' | 'warn' | 'info' | 'debug' | 'trace'> & {
  /** Level of the logger of `createLogger`; setting it also sets all its children, at any time. */
  level: string;
  child(fields: Record<string, unknown>): Logger;
};

/** Fields that may contain a secret, anywhere in a log line. Never log a whole request or account object. */
const SECRET_FIELDS = ['password', 'privateAccessKey', 'refreshToken', 'accessToken', 'authorization', 'token'];

/**
 * A logger that writes JSON lines to `destination`, or appends them to `file` (made with mode 0600, put aside when it is full),
 * or, where `file` is null, to systemd's journal by standard error, or to standard error as they are. Secrets are replaced by `[redacted]` (test/base/log.test.ts greps for them).
 */
export function createLogger(options: {
  level: LogLevel;
  destination?: DestinationStream;
  file?: string | null;
}): Logger {
  const paths = SECRET_FIELDS.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]);
  // Created at startup, one for each part: a logger per operation would leak here.
  const children: PinoLogger[] = [];
  const onChild = (child: PinoLogger): void => void children.push(child);
  const logger = pino(
    { level: options.level, base: null, redact: { paths, censor: '[redacted]' }, onChild },
    options.destination ?? destinationOf(options.file),
  );
  return withCommonLevel(logger, children) as unknown as Logger;
}

/** pino copies the level into a child at creation. */
function withCommonLevel(logger: PinoLogger, children: readonly PinoLogger[]): PinoLogger {
  const prototype = Object.getPrototypeOf(logger) as PinoLogger;
  const own: PropertyDescriptor & ThisType<PinoLogger> = {
    get: () => Reflect.get(prototype, 'level', logger),
    set: (value: string) => {
      Reflect.set(prototype, 'level', value, logger);
      for (const child of children) Reflect.set(prototype, 'level', value, child);
    },
  };
  return Object.defineProperty(logger, 'level', own);
}

function destinationOf(file: string | null | undefined): DestinationStream {
  if (file === undefined) return lineDestination(2);
  if (file === null) return journalDestination(2);
  return new LogFile(file);
}

/** Lines in the journal's format; see `lineDestination`. */
export function journalDestination(fd: number): DestinationStream {
  const lines = lineDestination(fd);
  return { write: (line) => lines.write(journalLine(line)) };
}

/**
 * Never throws. Standard error becomes non-blocking once `process.stderr` is accessed, so that a stalled reader causes
 * EAGAIN and a closed one EPIPE; it may also be a file on a full disk. Such a line is lost: the operation that logs
 * must continue.
 */
export function lineDestination(fd: number): DestinationStream {
  return {
    write: (line) => {
      try {
        writeSync(fd, line);
      } catch {
        // there is no other place to report this
      }
    },
  };
}

/** A line for the journal on standard error, prefixed with its priority (sd-daemon(3)). */
export function journalLine(line: string): string {
  const level = Number(/^\{"level":(\d+)/.exec(line)?.[1] ?? 30);
  const priority = level >= 60 ? 2 : level >= 50 ? 3 : level >= 40 ? 4 : level >= 30 ? 6 : 7;
  return `<${priority}>${line}`;
}

/** A logger without output: for tests and for tools that report in another way. */
export const silentLogger: Logger = pino({ level: 'silent' }) as unknown as Logger;
