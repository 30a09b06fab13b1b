import { accessSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { errorOfRecord } from '../base/errors.ts';
import { socketAddress } from '../base/socket-address.ts';
import { JsonLines } from './json-lines.ts';
import type { AnswerLine, ControlMethods, MethodName, RequestLine } from './methods.ts';

const ANSWER_BYTES_MAX = 64 * 1024 ** 2;

/** No process answers on the socket: the mount does not exist, is dead, or belongs to another user. */
export class NoMountError extends Error {
  override readonly name = 'NoMountError';
  /** ENOENT, ECONNREFUSED (died), EACCES (another user's), or EPIPE if the mount ended during the call. */
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** The mount runs but rejects connections: its connection limit is reached, or it has no free descriptor. */
export class NoRoomError extends Error {
  override readonly name = 'NoRoomError';
}

/**
 * The status of a mount.
 *
 * @throws NoMountError if no mount answers · NoRoomError if the mount rejects the connection
 */
export async function askStatus(socketPath: string, signal: AbortSignal): Promise<ControlMethods['status']['result']> {
  const ask = () => callControl(socketPath, 'status', {}, { signal });
  try {
    return await ask();
  } catch (error) {
    if (!isEnded(error)) throw error;
  }
  // A mount that ended meanwhile refuses the next connection, unless its successor answers there. One without room ends it as well.
  // The end of a process takes a moment, in which its socket still accepts.
  await sleep(ENDING_MS, undefined, { signal });
  try {
    return await ask();
  } catch (error) {
    if (!isEnded(error)) throw error;
    throw new NoRoomError(`the mount at ${socketPath} takes no more connections`, { cause: error });
  }
}

const ENDING_MS = 50;

function isEnded(error: unknown): boolean {
  return error instanceof NoMountError && error.code === 'EPIPE';
}

/**
 * One call to a running mount.
 *
 * @throws NoMountError if no mount answers, or it ends before the answer
 * @throws the error of the mount's handler, as the same class
 */
export async function callControl<Method extends MethodName>(
  socketPath: string,
  method: Method,
  params: ControlMethods[Method]['params'],
  options: { onProgress?: (progress: ControlMethods[Method]['progress']) => void; signal?: AbortSignal } = {},
): Promise<ControlMethods[Method]['result']> {
  const socket = await connectTo(socketPath);
  const lines = new JsonLines({ lineBytesMax: ANSWER_BYTES_MAX });
  const aborted = (): void => {
    socket.destroy(options.signal?.reason as Error | undefined);
  };
  options.signal?.addEventListener('abort', aborted, { once: true });
  try {
    return await new Promise<ControlMethods[Method]['result']>((resolve, reject) => {
      socket.on('error', (error) => reject(isEnd(error) ? new NoMountError('EPIPE', ENDED, { cause: error }) : error));
      socket.on('close', () => reject(new NoMountError('EPIPE', ENDED)));
      socket.on('data', (chunk) => {
        try {
          for (const line of lines.push(chunk)) {
            const answer = line as AnswerLine;
            if ('error' in answer) reject(errorOfRecord(answer.error));
            else if ('result' in answer) resolve(answer.result as ControlMethods[Method]['result']);
            else options.onProgress?.(answer.progress as ControlMethods[Method]['progress']);
          }
        } catch (error) {
          reject(error);
        }
      });
      socket.write(`${JSON.stringify({ id: 1, method, params } satisfies RequestLine)}\n`);
    });
  } finally {
    options.signal?.removeEventListener('abort', aborted);
    socket.destroy();
  }
}

const ENDED = 'the mount ended before it answered';

/** A killed process with unread data resets its connections. */
function isEnd({ code }: NodeJS.ErrnoException): boolean {
  return code === 'ECONNRESET' || code === 'EPIPE';
}

async function connectTo(socketPath: string): Promise<Socket> {
  let release = (): void => {};
  try {
    accessSync(socketPath); // costs a hundredth of a refused connection, and a start asks for two
    const address = socketAddress(socketPath);
    release = address.release;
    return await new Promise((resolve, reject) => {
      const socket = connect(address.address, () => {
        socket.removeListener('error', reject);
        resolve(socket);
      });
      socket.once('error', reject);
    });
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'EIO';
    throw new NoMountError(code, `no running mount answers at ${socketPath} (${code})`, { cause: error });
  } finally {
    release();
  }
}
