/**
 * The service says no: becomes an HTML status page with `message` in its `<h3>` (docs/service.md 2.4). Thrown anywhere below
 * a handler; inside a database transaction it also undoes the transaction.
 */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: number,
    message: string,
    headers: Readonly<Record<string, string>> = {},
    options: ErrorOptions = {},
  ) {
    super(message, options);
    this.status = status;
    this.headers = headers;
  }
}

/** The same words for what does not exist and for what belongs to someone else: a stranger learns nothing from them. */
export function notFound(): Refusal {
  return new Refusal(404, 'Not found');
}

export function malformed(message = 'Invalid xml request'): Refusal {
  return new Refusal(400, message);
}

export function forbidden(message: string): Refusal {
  return new Refusal(403, message);
}

export function unauthorized(message = 'Authorization required'): Refusal {
  return new Refusal(401, message);
}

export function overQuota(): Refusal {
  return new Refusal(413, 'Storage limit exceeded');
}

/** The server's own disk is full (RFC 4918 11.5), which passes: a client that is told 413 would not try again by itself. */
export function noRoom(): Refusal {
  // ASSUMED (docs/service.md 2.4): the interface names no status for it.
  return new Refusal(507, 'No room left on the server');
}
