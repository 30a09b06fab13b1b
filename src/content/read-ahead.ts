import { BLOCK_BYTES, type Extent } from '../base/vocabulary.ts';

/** The first window of a stream. It grows while its reader has to wait, up to the bytes that the connections transfer during one range. */
const WINDOW_FIRST_BYTES = 512 * 1024;
/**
 * The first window of a file that is read from its start, unless the connection is known to be slow. Most such files are read to their
 * end, and one request per connection saves a round trip. Files of a few MiB fit into this window.
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
 * The number of requests of a window: one per connection. A long window has long requests: a request of 1 MiB to a
 * service 30 ms away leaves its connection idle for half of the time. A few more are queued, so that no connection becomes idle.
 */
const REQUESTS_PER_WINDOW = 8;
const REQUESTS_WAITING = 2;
const REQUEST_BYTES_MIN = 1024 * 1024;
/**
 * The shortest request near the end of a file. Requests become shorter there, so that the connections finish together. Each takes more
 * than an eighth of the rest, because the other connections are busy.
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
  /** The expected offset of the next forward read. */
  next: number;
  windowBytes: number;
  /** The end of the requested window. */
  askedTo: number;
  /** Start of the last read. */
  last: number;
  /** Consecutive reads that ended where the last one began: one may be reordered by the kernel, two are a direction. */
  backwards: number;
  readonly isFromStart: boolean;
  /** Began at the start of the file and may still end after a header. */
  mayBeHeader: boolean;
  lastBytes: number;
  /** Number of distinct bytes that its reads covered. */
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

  /** @param windowBytesMax limit of one stream ahead of its reader, bytes (`BlockReader.windowBytesMax`) */
  constructor(windowBytesMax: number = Number.POSITIVE_INFINITY) {
    this.#windowBytesMax = Math.max(WINDOW_FLOOR_BYTES, windowBytesMax);
  }

  /**
   * @param hadToWait whether this read found bytes missing: then the window was too short
   * @param paceBytes the bytes that one connection transfers in the time of one request: slow connections get short windows; null while
   *   unknown
   * @returns the extents to prefetch now, in order of need; null for a random read: earlier prefetches are not needed soon
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
    // A stream of one read: its next read, possibly reordered, is at most one read length away.
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
    // grows, the next step may be much longer, and the rate better known.
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

  /** The length of a request in the stream's direction, `leftBytes` before the end of the file. */
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

  /** Splits `wanted` into requests, nearest first. */
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

/** The present limit of a stream ahead of its reader, bytes. */
function provenWindow({ windowBytes, consumedBytes }: Stream): number {
  return Math.min(windowBytes, WINDOW_UNPROVEN_BYTES + consumedBytes);
}

/** The bytes that a read adds to the coverage of its stream; a repeated or reordered read adds none. */
function freshBytes({ direction, next, last }: Stream, { start, end }: Extent): number {
  return direction === 1 ? Math.max(0, end - Math.max(start, next)) : Math.max(0, Math.min(end, last) - start);
}

function alignUp(bytes: number): number {
  return Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES;
}

/** Avoids a short request at the end of a window: its rest belongs to the next window. */
function wholeRequests(start: number, end: number, requestBytes: number): number {
  return end - start < requestBytes ? end : end - ((end - start) % requestBytes);
}
