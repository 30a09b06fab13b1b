import type { LiveMessage } from '../live-model.ts';
import type { BytesCallName, BytesCallParams, CallName, CallParams, CallResult } from '../page-call.ts';

const STORED = 'token';
const AGAIN_MS = 1_000;

/** A refused or failed call: one sentence. */
export class CallError extends Error {
  override readonly name = 'CallError';
}

/** The token was refused, or this browser has none. */
export class SignedOutError extends Error {
  override readonly name = 'SignedOutError';
}

/** The code in the address, before the place to show; null if there is none. The address bar and the history do not keep it. */
export function takeCodeOfAddress(): string | null {
  const [, code, route] = /^#([\w-]{32})(\/.*)?$/.exec(location.hash) ?? [];
  if (code === undefined) return null;
  history.replaceState(null, '', route === undefined ? '/' : `/#${route}`);
  return code;
}

/** @throws CallError for a wrong or used code */
export async function useCode(code: string): Promise<void> {
  const response = await fetch('/session', { method: 'POST', body: JSON.stringify({ code }) });
  const answer = (await response.json()) as { readonly token?: string; readonly error?: string };
  if (answer.token === undefined) throw new CallError(answer.error ?? 'the code was refused');
  sessionStorage.setItem(STORED, answer.token);
}

export async function call<Name extends CallName>(name: Name, params: CallParams<Name>): Promise<CallResult<Name>> {
  const response = await send(`/call/${name}`, params);
  return ((await response.json()) as { readonly result: CallResult<Name> }).result;
}

export async function bytes<Name extends BytesCallName>(name: Name, params: BytesCallParams<Name>): Promise<Blob> {
  return (await send(`/bytes/${name}`, params)).blob();
}

/** Follows the live stream until this browser is signed out. `lost` is called whenever the program does not answer. */
export async function follow(show: (messages: readonly LiveMessage[]) => void, lost: () => void): Promise<never> {
  for (;;) {
    try {
      const response = await send('/live', {});
      await readLines(response, show);
    } catch (error) {
      if (error instanceof SignedOutError) throw error;
    }
    lost();
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

async function readLines(response: Response, show: (messages: readonly LiveMessage[]) => void): Promise<void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (let part = await reader?.read(); part !== undefined && !part.done; part = await reader?.read()) {
    const lines = (rest + part.value).split('\n');
    rest = lines.pop() ?? '';
    if (lines.length > 0) show(lines.map((line) => JSON.parse(line) as LiveMessage));
  }
}

async function send(path: string, body: unknown): Promise<Response> {
  const token = sessionStorage.getItem(STORED);
  if (token === null) throw new SignedOutError();
  let response: Response;
  try {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    response = await fetch(path, { method: 'POST', headers, body: JSON.stringify(body) });
  } catch {
    throw new CallError('the program behind this page does not answer: run cfs web --open');
  }
  if (response.ok) return response;
  if (response.status === 401) {
    sessionStorage.removeItem(STORED);
    throw new SignedOutError();
  }
  const { error } = (await response.json().catch(() => ({}))) as { readonly error?: string };
  throw new CallError(error ?? `status ${response.status}`);
}
