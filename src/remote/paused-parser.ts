import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { commonJs } from '../base/common-js.ts';

/** Of undici's parser of HTTP/1, what is used here. */
interface Parser {
  readonly llhttp: { llhttp_resume(parser: number): void };
  readonly ptr: number;
  paused: boolean;
  /** Whether the end of the connection is not the end of the answer. */
  shouldKeepAlive: boolean;
  /** Goes on, with what the socket has. */
  resume(): void;
  onHeadersComplete(status: number, upgrade: boolean, shouldKeepAlive: boolean): number;
}

const { kParser } = commonJs('undici/lib/core/symbols.js') as { readonly kParser: symbol };

/**
 * A connection that ends while its answer waits for a slow reader ends the process: undici 7 asserts that the parser is not paused, in
 * the socket's event, where nobody can catch it (undici #5360; mended in 8, which needs Node 22). It asks only where the connection
 * was to end with the answer. So whoever hears of the end first lets the parser go on: to the end of an answer that was whole, or to the
 * failure of one that was not.
 */
export function surviveEndsWhilePaused(): void {
  if (isGuarding) return;
  isGuarding = true;
  subscribe('undici:client:connected', guardConnection);
}

let isGuarding = false;

function guardConnection(message: unknown): void {
  const { socket } = message as { readonly socket: Socket };
  passOverContinue(socket);
  socket.prependListener('end', () => {
    const parser = parserOf(socket);
    if (!parser?.paused) return;
    // The stream is empty: one step brings it to the end of the body, and no piece comes that could make it wait again.
    parser.resume();
    // A body that only the end of the connection ends stays where it was.
    if (!parser.paused) return;
    parser.llhttp.llhttp_resume(parser.ptr);
    parser.paused = false;
  });
  socket.prependListener('error', () => {
    const parser = parserOf(socket);
    // An answer that was cut is a failure, whatever was still to be read of it.
    if (parser?.paused) parser.shouldKeepAlive = true;
  });
}

/**
 * undici ends a connection on which a 100 comes that nobody asked for. It is to be passed over like every other interim answer (RFC 9110,
 * 15.2): a service that always sends one would never get a byte. So it is one of those for it.
 */
function passOverContinue(socket: Socket): void {
  const parser = parserOf(socket);
  if (parser === null) return;
  const onHeadersComplete = parser.onHeadersComplete.bind(parser);
  parser.onHeadersComplete = (status, ...rest) => onHeadersComplete(status === 100 ? 102 : status, ...rest);
}

function parserOf(socket: Socket): Parser | null {
  return (socket as unknown as Record<symbol, Parser | null | undefined>)[kParser] ?? null;
}
