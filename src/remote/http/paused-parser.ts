import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { commonJs } from '../../base/common-js.ts';

/** The part of undici's HTTP/1 parser that is used here. */
interface Parser {
  readonly llhttp: { llhttp_resume(parser: number): void };
  readonly ptr: number;
  paused: boolean;
  /** Whether the response ends before the connection does. */
  shouldKeepAlive: boolean;
  /** Continues with the bytes in the socket. */
  resume(): void;
  onHeadersComplete(status: number, upgrade: boolean, shouldKeepAlive: boolean): number;
}

const { kParser } = commonJs('undici/lib/core/symbols.js') as { readonly kParser: symbol };

/**
 * Works around an assertion of undici 7 (undici #5360; fixed in 8, which needs Node 22): a connection that ends while
 * its parser is paused for a slow reader ends the process, from a socket event that no caller can catch. The assertion
 * applies only if the connection delimits the response. So this listener runs first and resumes the parser: to the end
 * of a complete response, or to the failure of a cut one.
 */
export function surviveEndsWhilePaused(): void {
  if (isGuarding) return;
  isGuarding = true;
  subscribe('undici:client:connected', guardConnection);
}

let isGuarding = false;

function guardConnection(message: unknown): void {
  const { socket } = message as { readonly socket: Socket };
  skipContinue(socket);
  socket.prependListener('end', () => {
    const parser = parserOf(socket);
    if (!parser?.paused) return;
    // The stream is empty: one step reaches the end of the body, and no chunk can pause the parser again.
    parser.resume();
    // A body delimited by the end of the connection stays paused.
    if (!parser.paused) return;
    parser.llhttp.llhttp_resume(parser.ptr);
    parser.paused = false;
  });
  socket.prependListener('error', () => {
    const parser = parserOf(socket);
    // A cut response is a failure, whatever part of it was unread.
    if (parser?.paused) parser.shouldKeepAlive = true;
  });
}

/**
 * undici closes a connection on an unrequested 100. Like every other interim response it must be skipped (RFC 9110,
 * 15.2): a service that always sends one could never receive a byte. So the status is rewritten to another interim one.
 */
function skipContinue(socket: Socket): void {
  const parser = parserOf(socket);
  if (parser === null) return;
  const onHeadersComplete = parser.onHeadersComplete.bind(parser);
  parser.onHeadersComplete = (status, ...rest) => onHeadersComplete(status === 100 ? 102 : status, ...rest);
}

function parserOf(socket: Socket): Parser | null {
  return (socket as unknown as Record<symbol, Parser | null | undefined>)[kParser] ?? null;
}
