import type { SecureContext } from 'node:tls';

/** Certificates of authorities as PEM; null: Node's built-in ones. @throws UsageError if they cannot be read */
export type CertificateSource = () => string | null;

/** The trusted authorities. They can change while a mount runs for weeks: an authority is renewed in place. */
export class TrustStore {
  readonly #read: CertificateSource;
  #text: string | null;
  #context: SecureContext;

  /** @throws UsageError as the source · Error of TLS for a text that holds no certificates */
  constructor(read: CertificateSource) {
    this.#read = read;
    this.#text = read();
    this.#context = contextOf(this.#text);
  }

  /** Created once: parsing a system's hundred certificates takes milliseconds, too long for every connection. */
  get context(): SecureContext {
    return this.#context;
  }

  /** Reads the certificates again, after one has failed. @returns whether they have changed */
  refresh(): boolean {
    try {
      const text = this.#read();
      if (text === this.#text) return false;
      this.#context = contextOf(text);
      this.#text = text;
      return true;
    } catch {
      return false; // The file is being replaced, or damaged: the old certificates stay.
    }
  }
}

function contextOf(text: string | null): SecureContext {
  // Not imported: a connection without TLS needs no TLS. From Node 22 on, loading it also parses Node's own certificates, on a thread: 25 ms.
  return process.getBuiltinModule('node:tls').createSecureContext(text === null ? {} : { ca: text });
}
