import { ProtocolError, TransportError } from '../../base/errors.ts';
import type { NewestBytes } from '../../base/resources.ts';
import type { Extent, VersionUrl } from '../../base/vocabulary.ts';
import type { IncomingData, Landing } from '../contract.ts';
import type { Answer } from './answer.ts';
import type { AnswerHead } from './answer-head.ts';
import type { Requests } from './requests.ts';

interface DataRequest {
  /** The data's own URL. */
  readonly url: string;
  readonly extent: Extent;
  /** Length of the whole, known before. */
  readonly sizeBytes: number;
  readonly signal: AbortSignal | undefined;
}

/** Number of consecutive cuts without progress after which the download fails. */
const FRUITLESS_MAX = 3;

/**
 * The bytes of an immutable version, validated before use:
 *
 * | response | treated as |
 * | --- | --- |
 * | 206, Content-Range exactly as requested, that many bytes | the extent |
 * | 206 with a Content-Range that begins there and ends earlier (RFC 9110, 15.3.7), that many bytes | its beginning: the rest is requested |
 * | 206 with any other Content-Range, or none | ProtocolError |
 * | 200 | the whole: the service ignores Range. `extent` covers all of it; its length must be the version's |
 * | 200 without a length that is an HTML or XML page and not an attachment | ProtocolError: possibly a login page |
 * | any with a Content-Encoding | ProtocolError: its bytes are not the version's |
 * | more bytes than announced | ProtocolError |
 * | fewer, or a cut | the rest is requested with Range: a version cannot change. If a 200 comes, the bytes outside the rest are skipped |
 */
export async function openVersionData(requests: Requests, request: DataRequest): Promise<IncomingData> {
  const { extent } = request;
  if (extent.start >= extent.end) return { extent, chunks: nothing() };
  const first = await openOnce(requests, request, extent);
  const coming = first.extent.end < extent.end ? extent : first.extent;
  const chunks = chunksOf(requests, request, first, coming.end);
  return { extent: coming, chunks, takeBack: (chunk) => first.answer.takeBack(chunk) };
}

/** @returns the end of the bytes in the file; `openVersionData` fetches the remainder, possibly all */
export async function bringVersionData(
  requests: Requests,
  { url, extent, sizeBytes, signal }: DataRequest & { readonly signal: AbortSignal },
  landing: Landing,
): Promise<number> {
  if (extent.start >= extent.end) return extent.start;
  const isExpected = (head: AnswerHead): boolean => {
    if (head.status !== 200 && head.status !== 206) return false;
    try {
      const { start, end } = checkedExtent(head, extent, sizeBytes);
      return start === extent.start && end === extent.end;
    } catch {
      return false;
    }
  };
  const headers = rangeOf(extent, sizeBytes);
  return await requests.bring({ url, headers, extent, isExpected, signal, ...landing });
}

/**
 * Bytes of a file's newest version. Content-Location (RFC 9110, 8.7) names the version: without it, the answer may be of any version.
 * A response that breaks off is not continued: by then another version may be the newest.
 *
 * @param url of the file's data
 * @returns null for an answer that does not name a version, or is not exactly the requested range
 */
export async function newestVersionData(requests: Requests, request: DataRequest): Promise<NewestBytes | null> {
  const { url, extent, sizeBytes, signal } = request;
  const headers = rangeOf(extent, sizeBytes);
  return await requests.send(
    { method: 'GET', url, repetition: 'never', headers, signal, isData: true },
    async ({ answer }) => {
      const version = namedVersion(answer.header('content-location'), url);
      try {
        const { start, end } = checkedExtent(answer, extent, sizeBytes);
        if (version === null || start !== extent.start || end !== extent.end) return null;
        const bytes = new Uint8Array(end - start);
        let at = 0;
        for await (const chunk of answer) {
          if (at + chunk.byteLength > bytes.byteLength) throw new ProtocolError(`${url}: more than announced`);
          bytes.set(chunk, at);
          at += chunk.byteLength;
          answer.takeBack(chunk);
        }
        if (at < bytes.byteLength) throw new ProtocolError(`${url}: ${bytes.byteLength - at} bytes are missing`);
        return { version, bytes };
      } finally {
        await answer.discard();
      }
    },
  );
}

function namedVersion(location: string | null, url: string): VersionUrl | null {
  const data = '/data';
  if (location?.endsWith(data) !== true || !URL.canParse(location, url)) return null;
  const named = new URL(location, url).href;
  return named === url ? null : (named.slice(0, -data.length) as VersionUrl);
}

interface OpenAnswer {
  readonly answer: Answer;
  readonly extent: Extent;
}

async function openOnce(requests: Requests, request: DataRequest, extent: Extent): Promise<OpenAnswer> {
  const { url, sizeBytes, signal } = request;
  const headers = rangeOf(extent, sizeBytes);
  return await requests.send(
    { method: 'GET', url, repetition: 'always', headers, signal, isData: true },
    async ({ answer }) => {
      try {
        return { answer, extent: checkedExtent(answer, extent, sizeBytes) };
      } catch (error) {
        await answer.discard();
        throw error;
      }
    },
  );
}

function rangeOf(extent: Extent, sizeBytes: number): Record<string, string> {
  const isWhole = extent.start === 0 && extent.end === sizeBytes;
  return isWhole ? {} : { Range: `bytes=${extent.start}-${extent.end - 1}` };
}

function checkedExtent(answer: AnswerHead, asked: Extent, sizeBytes: number): Extent {
  if (answer.isCoded) throw new ProtocolError(`data with a content coding came: ${answer.header('content-encoding')}`);
  const extent = answer.status === 206 ? contentRange(answer, asked, sizeBytes) : { start: 0, end: sizeBytes };
  const length = answer.contentLength;
  if (length !== null && length !== extent.end - extent.start) {
    throw new ProtocolError(`${length} bytes announced instead of ${extent.end - extent.start}`);
  }
  if (answer.status !== 206 && length === null && isPage(answer)) {
    throw new ProtocolError(`data was asked for, ${answer.mediaType} came`);
  }
  return extent;
}

/**
 * Whether the body may be a network's page instead of the service's data. The service sends data as an octet-stream
 * attachment, whatever its type (docs/service.md 13.6). Other services send the file's own type, and a file may be an HTML
 * page. A page exactly as long as the version, or as the requested range, is taken for the file.
 */
function isPage(answer: AnswerHead): boolean {
  const isCalledSo = /^(text\/html|(application|text)\/(xhtml\+)?xml)$/.test(answer.mediaType);
  return isCalledSo && !/^attachment/i.test(answer.header('content-disposition') ?? '');
}

function contentRange(answer: AnswerHead, asked: Extent, sizeBytes: number): Extent {
  const raw = answer.header('content-range') ?? '';
  const match = /^bytes (\d{1,15})-(\d{1,15})\/(\d{1,15}|\*)$/.exec(raw.trim());
  const [, first = '', last = '', total = ''] = match ?? [];
  const end = Number(last) + 1;
  const fits = Number(first) === asked.start && end > asked.start && end <= asked.end;
  if (match === null || !fits || (total !== '*' && Number(total) !== sizeBytes)) {
    throw new ProtocolError(`asked for bytes ${asked.start}-${asked.end - 1}/${sizeBytes}, got "${raw.slice(0, 60)}"`);
  }
  return { start: asked.start, end };
}

async function* chunksOf(
  requests: Requests,
  request: DataRequest,
  first: OpenAnswer,
  end: number,
): AsyncGenerator<Uint8Array, void, undefined> {
  let at = first.extent.start;
  let open = first;
  for (let fruitless = 0; ; ) {
    const before = at;
    let cut: TransportError;
    try {
      // On a repeated request, a service that ignores Range begins again at 0.
      let skip = at - open.extent.start;
      for await (const chunk of open.answer) {
        if (skip >= chunk.byteLength) {
          skip -= chunk.byteLength;
          continue;
        }
        const fresh = skip === 0 ? chunk : chunk.subarray(skip);
        skip = 0;
        if (at + fresh.byteLength > open.extent.end)
          throw new ProtocolError(`${request.url}: more than the ${open.extent.end} bytes announced`);
        const wanted = at + fresh.byteLength > end ? fresh.subarray(0, end - at) : fresh;
        at += wanted.byteLength;
        yield wanted;
        if (at === end && open.extent.end > end) return; // the rest of a 200 was not requested
      }
      if (at === end) return;
      cut = new TransportError(`${request.url}: ended at byte ${at} of ${end}`);
    } catch (error) {
      if (!(error instanceof TransportError)) throw error;
      // Only the terminator of a chunked body is missing.
      if (at === end) return;
      cut = error;
    }
    fruitless = at > before ? 0 : fruitless + 1;
    if (fruitless === FRUITLESS_MAX) throw cut;
    open = await openOnce(requests, request, { start: at, end });
  }
}

async function* nothing(): AsyncGenerator<Uint8Array, void, undefined> {}
