export type AnswerHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** Status and headers of an answer. */
export class AnswerHead {
  readonly status: number;
  /** By name, in lower case. */
  readonly headers: AnswerHeaders;

  constructor(status: number, headers: AnswerHeaders) {
    this.status = status;
    this.headers = headers;
  }

  /** A header that may come once; the first of several. */
  header(name: string): string | null {
    const value = this.headers[name];
    return (Array.isArray(value) ? value[0] : value) ?? null;
  }

  /**
   * The URL in Location. A URL on the same server is rewritten to begin like `asked`, even if the service sent it
   * relative or with the default port (RFC 9110, 10.2.2): URLs are compared as strings, and listings use this form.
   */
  locationFrom(asked: string): string | null {
    const location = this.header('location');
    // An empty reference resolves to the request URL (RFC 3986, 4.4), which is never the URL of a new resource.
    if (location?.trim() === '') return null;
    if (location === null || !URL.canParse(location, asked)) return location;
    const target = new URL(location, asked);
    if (target.origin !== new URL(asked).origin) return location;
    const path = ORIGIN.test(location) ? location.replace(ORIGIN, '') : target.pathname + target.search;
    return `${ORIGIN.exec(asked)?.[0]}${path}`;
  }

  /** The service's clock at the response, milliseconds since the epoch; null without a valid Date header. */
  get serverTimeMs(): number | null {
    const ms = Date.parse(this.header('date') ?? '');
    return Number.isNaN(ms) ? null : ms;
  }

  /** The announced length of the body in bytes; null for a chunked one. */
  get contentLength(): number | null {
    const raw = this.header('content-length');
    return raw !== null && /^\d{1,15}$/.test(raw) ? Number(raw) : null;
  }

  /** Media type without parameters, in lower case; empty where there is none. */
  get mediaType(): string {
    return ((this.header('content-type') ?? '').split(';')[0] as string).trim().toLowerCase();
  }

  /** Whether the body has a content coding, so that its bytes are not those of the resource. */
  get isCoded(): boolean {
    return !/^(identity)?$/i.test((this.header('content-encoding') ?? '').trim());
  }

  /** Whether the connection may be used again (RFC 9112, 9.3). */
  get isLasting(): boolean {
    return !/(^|[,\s])close($|[,\s])/i.test([this.headers.connection ?? ''].flat().join(','));
  }

  /** Idle time after which the peer closes the connection, milliseconds; null if it sends none. */
  get keptMs(): number | null {
    const [, seconds] = /(?:^|[,;\s])timeout=(\d{1,6})/i.exec(this.header('keep-alive') ?? '') ?? [];
    return seconds === undefined ? null : Number(seconds) * 1000;
  }
}

const ORIGIN = /^https?:\/\/[^/?#]*/i;

const STATUS = /^HTTP\/1\.1 ([2-5]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const FIELD_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/**
 * A response head, including the final empty line, whose body is delimited by one Content-Length (RFC 9112, 6.3).
 *
 * @returns null for any other head: chunked, of unknown length, coded, HTTP/1.0, interim, malformed. The full HTTP
 * client handles those.
 */
export function plainHead(bytes: Buffer): AnswerHead | null {
  const lines = bytes.toString('latin1').slice(0, -4).split('\r\n');
  const [, status] = STATUS.exec(lines[0] as string) ?? [];
  if (status === undefined || status === '204' || status === '304') return null;
  const headers: Record<string, string | string[]> = Object.create(null);
  for (const line of lines.slice(1)) {
    // Split before matching: one pattern for both parts takes quadratic time to reject a run of blanks.
    const colon = line.indexOf(':');
    const raw = line.slice(colon + 1);
    if (colon < 0 || !FIELD_NAME.test(line.slice(0, colon)) || !FIELD_VALUE.test(raw)) return null;
    const key = line.slice(0, colon).toLowerCase();
    const value = withoutBlanks(raw);
    const before = headers[key];
    headers[key] = before === undefined ? value : [before, value].flat();
  }
  for (const name of ['transfer-encoding', 'content-encoding', 'upgrade', 'trailer']) if (name in headers) return null;
  const head = new AnswerHead(Number(status), headers);
  return typeof headers['content-length'] === 'string' && head.contentLength !== null ? head : null;
}

/** `text` without the blanks and tabs around it (OWS of RFC 9110, 5.6.3), in linear time. */
function withoutBlanks(text: string): string {
  const isBlank = (at: number): boolean => text[at] === ' ' || text[at] === '\t';
  let start = 0;
  let end = text.length;
  while (start < end && isBlank(start)) start++;
  while (end > start && isBlank(end - 1)) end--;
  return text.slice(start, end);
}
