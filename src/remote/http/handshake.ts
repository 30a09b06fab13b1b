import { createHmac } from 'node:crypto';
import type { OnReadOpts, Socket } from 'node:net';
import { Duplex } from 'node:stream';
import type { SecureContext } from 'node:tls';
import { encrypt } from './connector.ts';
import type { RecordKeys } from './receiver.ts';

const READ_BYTES = 16 * 1024;
/** More than OpenSSL accepts of a handshake. A peer that sends more before it is verified is read no further, and the deadline ends it. */
const RECEIVED_BYTES_MAX = 256 * 1024;
const HEADER_BYTES = 5;
const IV_BYTES = 12;

/** Cipher suites of TLS 1.3 (RFC 8446, B.4); the numbers are those in native-deps/fuse-kernel/records.c. */
const SUITES: Readonly<Record<string, { suite: number; hash: string; keyBytes: number }>> = {
  TLS_AES_128_GCM_SHA256: { suite: 0, hash: 'sha256', keyBytes: 16 },
  TLS_AES_256_GCM_SHA384: { suite: 1, hash: 'sha384', keyBytes: 32 },
  TLS_CHACHA20_POLY1305_SHA256: { suite: 2, hash: 'sha256', keyBytes: 32 },
};

/** The service certainly has no TLS 1.3, or none of the suites above. */
export const UNSUITABLE = 'unsuitable';

/**
 * A TLS handshake whose connection continues elsewhere (ADR 55). Node does all of it, the verification of the certificate too, on a stream
 * of records instead of the socket. It gets no record after the last one of the handshake, and sends none: so the numbers of the records are
 * known, and both directions begin at 0.
 */
export class Handshake {
  readonly #host: string;
  readonly #context: SecureContext;
  /** Received bytes that Node did not get. */
  #received = Buffer.alloc(0);
  #arrived: () => void = () => {};

  constructor(host: string, context: SecureContext) {
    this.#host = host;
    this.#context = context;
  }

  /** For `net.connect`. */
  readonly onread: OnReadOpts = {
    buffer: Buffer.allocUnsafeSlow(READ_BYTES),
    callback: (bytes, buffer) => {
      this.#received = Buffer.concat([this.#received, buffer.subarray(0, bytes)]);
      this.#arrived();
      return this.#received.byteLength <= RECEIVED_BYTES_MAX;
    },
  };

  /** @param socket connected; not read any more afterwards · @returns null if the handshake fails, or the socket closes */
  async keys(socket: Socket): Promise<RecordKeys | typeof UNSUITABLE | null> {
    const wire = new Wire(socket);
    const secrets = new Map<string, Buffer>();
    const tls = encrypt(wire, this.#host, this.#context, undefined);
    let isSecure = false;
    tls.on('keylog', (line) => keepSecret(secrets, line));
    tls.on('secureConnect', () => {
      isSecure = true;
    });
    const closed = (): void => this.#arrived();
    for (const stream of [tls, wire, socket]) stream.on('error', () => {}).on('close', closed);
    try {
      while (!isSecure) {
        if (tls.destroyed || socket.destroyed) return null;
        const record = this.#nextRecord();
        if (record === null) await this.#more();
        else wire.push(record);
        // One at a time. Node has processed it when this turn of the event loop ends.
        await new Promise((resolve) => setImmediate(resolve));
      }
      await wire.sent;
      socket.pause();
      const found = SUITES[tls.getCipher().name];
      if (tls.getProtocol() !== 'TLSv1.3' || found === undefined) return UNSUITABLE;
      const keys = [secrets.get('SERVER_TRAFFIC_SECRET_0'), secrets.get('CLIENT_TRAFFIC_SECRET_0')].map((secret) =>
        secret === undefined ? null : keyAndIv(secret, found.hash, found.keyBytes),
      );
      const [ofPeer, own] = keys;
      if (ofPeer == null || own == null || socket.destroyed) return null;
      return { suite: found.suite, keys: Buffer.concat([ofPeer, own]), early: this.#received };
    } finally {
      wire.isOver = true;
      tls.destroy();
      for (const secret of secrets.values()) secret.fill(0);
    }
  }

  #nextRecord(): Buffer | null {
    if (this.#received.byteLength < HEADER_BYTES) return null;
    const length = HEADER_BYTES + this.#received.readUInt16BE(3);
    if (this.#received.byteLength < length) return null;
    const record = this.#received.subarray(0, length);
    this.#received = this.#received.subarray(length);
    return record;
  }

  #more(): Promise<void> {
    return new Promise((resolve) => {
      this.#arrived = resolve;
    });
  }
}

/** What Node takes for the connection: it reads the records that are pushed, and its own go to the socket. */
class Wire extends Duplex {
  readonly #socket: Socket;
  /** Resolves when the bytes written so far are with the system. */
  sent: Promise<unknown> = Promise.resolve();
  /** Node sends nothing more. */
  isOver = false;

  constructor(socket: Socket) {
    super();
    this.#socket = socket;
  }

  override _read(): void {}

  override _write(bytes: Uint8Array, _encoding: string, done: (error?: Error | null) => void): void {
    if (this.isOver) {
      done();
      return;
    }
    this.sent = new Promise<void>((resolve) => {
      this.#socket.write(bytes, (error) => {
        resolve();
        done(error);
      });
    });
  }
}

/** A line in the NSS key log format: a label, the client's random bytes and a secret. */
function keepSecret(secrets: Map<string, Buffer>, line: Buffer): void {
  const [label = '', , secret = ''] = line.toString('latin1').trim().split(' ');
  if (label.endsWith('_TRAFFIC_SECRET_0')) secrets.set(label, Buffer.from(secret, 'hex'));
}

/** RFC 8446, 7.3. */
function keyAndIv(secret: Buffer, hash: string, keyBytes: number): Buffer {
  return Buffer.concat([expanded(secret, hash, 'key', keyBytes), expanded(secret, hash, 'iv', IV_BYTES)]);
}

/** HKDF-Expand-Label without a context (RFC 8446, 7.1), of at most as many bytes as the hash has. */
function expanded(secret: Buffer, hash: string, label: string, bytes: number): Buffer {
  const name = `tls13 ${label}`;
  const info = Buffer.from([0, bytes, name.length, ...Buffer.from(name, 'latin1'), 0, 1]);
  return createHmac(hash, secret).update(info).digest().subarray(0, bytes);
}
