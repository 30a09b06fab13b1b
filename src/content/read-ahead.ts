import { BLOCK_BYTES, type Extent } from '../base/vocabulary.ts';

/** The first window of a stream. It grows while its reader has to wait: up to what the line brings while one range arrives. */
const WINDOW_FIRST_BYTES = 512 * 1024;
/**
 * That of a file that is read from its start on, unless the line is known to be slow: most of those are read to their end, and a
 * window that is one request for each connection at once saves a way to the service. Files of some MiB come whole in it.
 */
const WINDOW_FIRST_OF_FILE_BYTES = 8 * 1024 * 1024;
const WINDOW_GROWTH = 8;
/**
 * A window is at most this much longer than what its reader has consumed of the stream. A program that stops early then has caused at
 * most twice the bytes that it read, and this. A window also takes at most a share of the cache (`windowBytesMax`), with the floor below.
 */
const WINDOW_UNPROVEN_BYTES = 8 * 1024 * 1024;
const WINDOW_FLOOR_BYTES = 1024 * 1024;
/**
 * A window is asked for in so many requests, one for each connection. Long ones where the window is: a request of 1 MiB to a
 * service 30 ms away leaves its connection idle for half of the time. Some more wait, so that a connection that ends finds the next.
 */
const REQUESTS_PER_WINDOW = 8;
const REQUESTS_WAITING = 2;
const REQUEST_BYTES_MIN = 1024 * 1024;
/**
 * Towards the end of a file requests become shorter, so that the connections end together: not below this. A share is more than an eighth of what
 * was not asked for yet, for the other connections are busy with what they have.
 */
const REQUEST_BYTES_LAST = 2 * 1024 * 1024;
const SHARES_OF_REST = 6;
/**
 * A short first read may need only the header (thumbnails, media types, archives): read-ahead starts when reads
 * continue beyond this, or are long.
 */
const HEADER_BYTES = 2 * BLOCK_BYTES;
/** The kernel's own read-ahead makes requests arrive a little out of order: within this distance it is still one stream. */
const SLACK_BYTES = 1024 * 1024;
/** Concurrent sequential streams of one handle (a player reads index and data, a database several tables). */
const STREAMS_MAX = 4;
const BACKWARDS_SEEN_MIN = 2;
/** Number of equal strides that count as a pattern. */
const STRIDES_SEEN_MIN = 2;
const STRIDES_AHEAD = 4;

/** A sequence of reads, each starting where the last one ended, in one direction. */
interface Stream {
  direction: 1 | -1;
  /** Where a read is expected that goes on forwards. */
  next: number;
  windowBytes: number;
  /** How far ahead was asked for already. */
  askedTo: number;
  /** Start of the last read. */
  last: number;
  /** Reads in a row that ended where the last one began: one may be the kernel's disorder, two are a direction. */
  backwards: number;
  readonly isFromStart: boolean;
  /** Began at the start of the file and has not shown yet that it goes on. */
  mayBeHeader: boolean;
  lastBytes: number;
  /** Distinct bytes that its reads have covered. */
  consumedBytes: number;
}

/**
 * Decides the read-ahead of one handle. Each sequential stream, forwards or backwards, grows a window of its own; equal strides
 * are followed; any other access is random and gets no read-ahead. Pure bookkeeping: it fetches nothing itself.
 */
export class ReadAhead {
  /** Most recently used last. */
  #streams: Stream[] = [];
  #lastStart: number | null = null;
  #stride = 0;
  #stridesSeen = 0;
  #paceBytes: number | null = null;
  readonly #windowBytesMax: number;

  /** @param windowBytesMax what one stream may fetch ahead of its reader, bytes (`BlockReader.windowBytesMax`) */
  constructor(windowBytesMax: number = Number.POSITIVE_INFINITY) {
    this.#windowBytesMax = Math.max(WINDOW_FLOOR_BYTES, windowBytesMax);
  }

  /**
   * @param hadToWait whether this read found bytes missing: then the window was too short
   * @param paceBytes what one connection brings in the time that one request may take: slow lines get short windows; null while that
   *   is not known
   * @returns what to prefetch now, in order of need; null for a read that goes on nowhere: what was asked for is not needed soon
   */
  afterRead(
    extent: Extent,
    sizeBytes: number,
    hadToWait: boolean,
    paceBytes: number | null = null,
  ): readonly Extent[] | null {
    this.#paceBytes = paceBytes;
    this.#noteStride(extent);
    const stream = this.#streamOf(extent);
    if (stream !== null) {
      this.#stridesSeen = 0;
      if (isHeader(stream, extent)) return [];
      const wanted = this.#advance(stream, extent, sizeBytes, hadToWait);
      return wanted === null ? [] : this.#inRequests(wanted, stream, sizeBytes);
    }
    if (this.#stridesSeen >= STRIDES_SEEN_MIN) return this.#stridesAhead(extent, sizeBytes);
    this.#begin(extent);
    // Most files are read from their start to their end.
    if (extent.start > 0) return null;
    const begun = this.#streams.at(-1) as Stream;
    if (isHeader(begun, extent)) return [];
    const wanted = this.#advance(begun, extent, sizeBytes, hadToWait);
    return wanted === null ? [] : this.#inRequests(wanted, begun, sizeBytes);
  }

  #begin(extent: Extent): void {
    if (this.#streams.length === STREAMS_MAX) this.#streams.shift();
    const { start, end } = extent;
    const isFromStart = start === 0;
    this.#streams.push({
      ...{ direction: 1, next: end, windowBytes: 0, askedTo: end },
      ...{ last: start, backwards: 0, isFromStart, mayBeHeader: isFromStart, lastBytes: 0 },
      consumedBytes: end - start,
    });
  }

  /** The stream that this read continues; it becomes the most recently used one. */
  #streamOf(extent: Extent): Stream | null {
    // Nothing has shown yet that a stream goes on: then its reads out of order are no further apart than they are long.
    const beginningSlackBytes = Math.min(extent.end - extent.start, BLOCK_BYTES);
    for (let at = this.#streams.length - 1; at >= 0; at--) {
      const stream = this.#streams[at] as Stream;
      const slackBytes = stream.windowBytes > 0 ? SLACK_BYTES : beginningSlackBytes;
      const endsAtLast =
        extent.start < stream.last && Math.abs(extent.end - stream.last) <= Math.min(slackBytes, BLOCK_BYTES / 2);
      const isNear = Math.abs(extent.start - stream.next) <= slackBytes;
      if (stream.direction === -1 ? !endsAtLast : !endsAtLast && !isNear) continue;
      stream.backwards = endsAtLast ? stream.backwards + 1 : 0;
      stream.consumedBytes += freshBytes(stream, extent);
      if (stream.direction === 1 && stream.backwards === BACKWARDS_SEEN_MIN) {
        Object.assign(stream, { direction: -1, windowBytes: 0, askedTo: extent.start });
      }
      stream.last = extent.start;
      this.#streams.splice(at, 1);
      this.#streams.push(stream);
      return stream;
    }
    return null;
  }

  #advance(stream: Stream, extent: Extent, sizeBytes: number, hadToWait: boolean): Extent | null {
    const longest = Math.min((REQUESTS_PER_WINDOW + REQUESTS_WAITING) * this.#requestBytesMax(), this.#windowBytesMax);
    const grown =
      hadToWait || stream.windowBytes === 0
        ? Math.max(this.#firstWindowBytes(stream), stream.windowBytes * WINDOW_GROWTH)
        : 0;
    stream.windowBytes = Math.min(longest, Math.max(grown, stream.windowBytes));
    const windowBytes = provenWindow(stream);
    // Asking in large steps keeps the requests long; in too large ones, the connections idle until the next. While the window
    // grows, the next step may be much longer, and the line better known.
    const requestBytes = this.#requestBytes(windowBytes, sizeBytes);
    const stepBytes = Math.min(windowBytes / 2, windowBytes < longest ? Infinity : requestBytes);
    if (stream.direction === 1) {
      stream.next = Math.max(extent.end, Math.min(stream.next, extent.end + SLACK_BYTES));
      const start = Math.max(stream.askedTo, extent.end);
      const end = Math.min(wholeRequests(start, stream.next + windowBytes, requestBytes), sizeBytes);
      if (start >= end || (end - start < stepBytes && end < sizeBytes)) return null;
      stream.askedTo = end;
      return { start, end };
    }
    const end = Math.min(stream.askedTo, extent.start);
    const start = Math.max(0, extent.start - windowBytes);
    if (start >= end || (end - start < stepBytes && start > 0)) return null;
    stream.askedTo = start;
    return { start, end };
  }

  #noteStride(extent: Extent): void {
    const stride = this.#lastStart === null ? 0 : extent.start - this.#lastStart;
    this.#lastStart = extent.start;
    if (stride !== 0 && stride === this.#stride) this.#stridesSeen++;
    else this.#stridesSeen = 0;
    this.#stride = stride;
  }

  #stridesAhead(extent: Extent, sizeBytes: number): readonly Extent[] {
    const wanted: Extent[] = [];
    for (let step = 1; step <= STRIDES_AHEAD; step++) {
      const start = extent.start + step * this.#stride;
      const end = Math.min(extent.end + step * this.#stride, sizeBytes);
      if (start >= 0 && start < end) wanted.push({ start, end });
    }
    return wanted;
  }

  /** The length of a request that begins, going the stream's way, with `leftBytes` before the end of the file. */
  #requestBytes(windowBytes: number, leftBytes: number): number {
    const long = Math.max(REQUEST_BYTES_MIN, Math.min(windowBytes / REQUESTS_PER_WINDOW, this.#requestBytesMax()));
    return Math.min(long, Math.max(REQUEST_BYTES_LAST, leftBytes / SHARES_OF_REST));
  }

  #requestBytesMax(): number {
    return Math.max(REQUEST_BYTES_MIN, this.#paceBytes ?? 0);
  }

  #firstWindowBytes({ isFromStart, direction }: Stream): number {
    const isSlow = this.#paceBytes !== null && this.#paceBytes <= REQUEST_BYTES_MIN;
    return isFromStart && direction === 1 && !isSlow ? WINDOW_FIRST_OF_FILE_BYTES : WINDOW_FIRST_BYTES;
  }

  /** `wanted` as requests of their own, nearest first. */
  #inRequests(wanted: Extent, stream: Stream, sizeBytes: number): readonly Extent[] {
    const parts: Extent[] = [];
    if (stream.direction === 1) {
      for (let start = wanted.start; start < wanted.end; ) {
        const end = Math.min(start + alignUp(this.#requestBytes(provenWindow(stream), sizeBytes - start)), wanted.end);
        parts.push({ start, end });
        start = end;
      }
    } else {
      for (let end = wanted.end; end > wanted.start; ) {
        const start = Math.max(end - alignUp(this.#requestBytes(provenWindow(stream), end)), wanted.start);
        parts.push({ start, end });
        end = start;
      }
    }
    return parts;
  }
}

/** Whether a stream may still end within the first bytes of the file; takes note of the read. */
function isHeader(stream: Stream, extent: Extent): boolean {
  if (!stream.mayBeHeader) return false;
  const bytes = extent.end - extent.start;
  const goesOnLong = bytes >= BLOCK_BYTES && stream.lastBytes >= BLOCK_BYTES;
  stream.mayBeHeader = bytes <= BLOCK_BYTES && extent.end <= HEADER_BYTES && !goesOnLong;
  stream.lastBytes = bytes;
  if (stream.mayBeHeader) stream.next = Math.max(stream.next, extent.end);
  return stream.mayBeHeader;
}

/** How far ahead of its reader a stream may ask now, bytes. */
function provenWindow({ windowBytes, consumedBytes }: Stream): number {
  return Math.min(windowBytes, WINDOW_UNPROVEN_BYTES + consumedBytes);
}

/** What a read adds to what its stream has covered; one that was read before, or comes out of order, adds nothing. */
function freshBytes({ direction, next, last }: Stream, { start, end }: Extent): number {
  return direction === 1 ? Math.max(0, end - Math.max(start, next)) : Math.max(0, Math.min(end, last) - start);
}

function alignUp(bytes: number): number {
  return Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES;
}

/** No short request at the end of a window: its rest is asked for with the next one. */
function wholeRequests(start: number, end: number, requestBytes: number): number {
  return end - start < requestBytes ? end : end - ((end - start) % requestBytes);
}
