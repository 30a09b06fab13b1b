/**
 * A refusal of the service: becomes an HTML status page with `message` in its `<h3>` (docs/service.md 2.4). May be
 * thrown anywhere below a handler; inside a database transaction it also rolls the transaction back.
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

/** A missing resource and one of another user get the same message, so that the existence of the latter is not revealed. */
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

/**
 * The server's own disk is full (RFC 4918 11.5). This is temporary; after a 413 a client would not retry automatically.
 */
export function noRoom(): Refusal {
  // ASSUMED (docs/service.md 2.4): the interface defines no status for this.
  return new Refusal(507, 'No room left on the server');
}
