import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { closeSync, openSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { BLOCK_BYTES } from '../../src/base/vocabulary.ts';
import { GONE, HEAD_READ, IDLE, type LineNews, OVER, Receiver } from '../../src/remote/http/receiver.ts';
import { missingAddon, titled } from '../harness/requirement.ts';
import { hasReceiver } from './client.ts';
import { until } from './scripted-server.ts';

/** Records of TLS 1.3 (RFC 8446, 5) as a peer may send them, well or badly; written by hand. */

const missing = hasReceiver() ? null : (missingAddon() ?? 'a processor with fast checksums');
const [ALERT, HANDSHAKE, DATA] = [21, 22, 23];
const KEY_UPDATE = Buffer.from([24, 0, 0, 1, 0]);
const TICKET = Buffer.concat([Buffer.from([4, 0, 0, 9]), Buffer.alloc(9, 7)]);
const CLOSE_NOTIFY = Buffer.from([1, 0]);
const HEAD = 'HTTP/1.1 200 OK\r\n\r\n';
const REQUEST = Buffer.from('GET /data HTTP/1.1\r\n\r\n');
const BODY = Buffer.from(Uint8Array.from({ length: 3 * BLOCK_BYTES }, (_, i) => (i * i + (i >> 8)) % 253));
const path = join(tmpdir(), `cfs-records-${process.pid}`);

/** One direction of a connection with TLS_AES_128_GCM_SHA256. */
class Sealing {
  readonly #key = randomBytes(16);
  readonly #iv = randomBytes(12);
  #sequence = 0;

  get keyAndIv(): Buffer {
    return Buffer.concat([this.#key, this.#iv]);
  }

  #nonce(): Buffer {
    const nonce = Buffer.from(this.#iv);
    nonce.writeUInt32BE((nonce.readUInt32BE(8) ^ this.#sequence++) >>> 0, 8);
    return nonce;
  }

  record(type: number, bytes: Uint8Array | string, padding = 0): Buffer {
    const plain = Buffer.concat([Buffer.from(bytes as string), Buffer.from([type]), Buffer.alloc(padding)]);
    return this.sealed(plain);
  }

  sealed(plain: Uint8Array): Buffer {
    const length = plain.byteLength + 16;
    const header = Buffer.from([DATA, 3, 3, length >> 8, length & 255]);
    const cipher = createCipheriv('aes-128-gcm', this.#key, this.#nonce()).setAAD(header);
    return Buffer.concat([header, cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
  }

  opened(record: Buffer): string {
    const decipher = createDecipheriv('aes-128-gcm', this.#key, this.#nonce());
    decipher.setAAD(record.subarray(0, 5)).setAuthTag(record.subarray(-16));
    const plain = Buffer.concat([decipher.update(record.subarray(5, -16)), decipher.final()]);
    expect(plain.at(-1)).toBe(DATA);
    return plain.subarray(0, -1).toString('latin1');
  }
}

let server: Server;
let receiver: Receiver;
let file: number;
let peer: Socket;
let seen: Buffer;
let toUs: Sealing;
let toPeer: Sealing;
let id: number;
let heard: LineNews[];

beforeEach(async () => {
  if (missing !== null) return;
  server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  receiver = Receiver.open() as Receiver;
  file = openSync(path, 'w');
  await adopted();
});

afterEach(async () => {
  if (missing !== null) return;
  receiver.close();
  peer.destroy();
  await new Promise((resolve) => server.close(resolve));
  closeSync(file);
  rmSync(path);
});

/** @param early what Node had read from the socket */
async function adopted(early: (records: Sealing) => readonly Buffer[] = () => []): Promise<void> {
  [toUs, toPeer, heard, seen] = [new Sealing(), new Sealing(), [], Buffer.alloc(0)];
  const came = new Promise<Socket>((resolve) => server.once('connection', resolve));
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.pause();
  peer = await came;
  peer
    .on('error', () => {})
    .on('data', (bytes) => {
      seen = Buffer.concat([seen, bytes]);
    });
  const { fd } = (socket as unknown as { _handle: { fd: number } })._handle;
  const keys = Buffer.concat([toUs.keyAndIv, toPeer.keyAndIv]);
  const taken = Buffer.concat(early(toUs));
  id = receiver.adopt(fd, { suite: 0, keys, early: taken }, (news) => heard.push(news));
  socket.destroy();
}

const phases = (): number[] => heard.map(({ phase }) => phase);
const last = (): number | undefined => phases().at(-1);

function send(...records: readonly Buffer[]): void {
  peer.write(Buffer.concat(records));
}

const data = (bytes: Uint8Array | string): Buffer => toUs.record(DATA, bytes);

/** A request, the head of its response, and what follows it in the same write. */
async function asked(...following: readonly Buffer[]): Promise<void> {
  receiver.ask(id, REQUEST);
  send(...following);
  await until(() => phases().includes(HEAD_READ), 'the head is here');
}

async function received(length: number): Promise<Buffer> {
  receiver.land(id, file, 0, length);
  await until(() => last() === IDLE || last() === OVER, 'the body has ended');
  return readFileSync(path);
}

const check = describe.skipIf(missing !== null);

check(titled('a line with TLS', missing), () => {
  test('encrypts its requests, each with the next number', async () => {
    await asked(data(`${HEAD}abc`));
    expect(await received(3)).toEqual(Buffer.from('abc'));
    const first = seen;
    expect(toPeer.opened(first)).toBe(REQUEST.toString());

    receiver.ask(id, REQUEST);

    await until(() => seen.byteLength === 2 * first.byteLength, 'the second request is here');
    expect(toPeer.opened(seen.subarray(first.byteLength))).toBe(REQUEST.toString());
  });

  test('skips tickets, padding and records without data', async () => {
    await asked(
      toUs.record(HANDSHAKE, Buffer.concat([TICKET, TICKET])),
      toUs.record(DATA, HEAD.slice(0, 5), 100),
      toUs.record(DATA, ''),
      toUs.record(DATA, HEAD.slice(5)),
      toUs.record(DATA, BODY.subarray(0, 10), 300),
      toUs.record(HANDSHAKE, TICKET),
      toUs.record(DATA, BODY.subarray(10, 20)),
    );

    expect(await received(20)).toEqual(BODY.subarray(0, 20));
  });

  test('reads on from what was read before', async () => {
    peer.destroy();
    let rest: Buffer = Buffer.alloc(0);
    await adopted((records) => {
      const ticket = records.record(HANDSHAKE, TICKET);
      const record = records.record(DATA, `${HEAD}abc`);
      rest = record.subarray(9);
      return [ticket, record.subarray(0, 9)];
    });

    await asked(rest);

    expect(await received(3)).toEqual(Buffer.from('abc'));
  });

  test.each([1, 777, 16_384])('receives a body in records of %i bytes', async (bytes) => {
    const body = bytes === 1 ? BODY.subarray(0, 20_000) : BODY;
    const records = Array.from({ length: Math.ceil(body.byteLength / bytes) }, (_, i) => i * bytes);
    await asked(data(HEAD));

    send(...records.map((at) => data(body.subarray(at, Math.min(at + bytes, body.byteLength)))));

    expect((await received(body.byteLength)).equals(body)).toBe(true);
  });

  test('receives records that arrive byte by byte', async () => {
    await asked(data(HEAD));
    const record = Buffer.concat([data(BODY.subarray(0, 100)), data(BODY.subarray(100, 150))]);
    receiver.land(id, file, 0, 150);
    peer.setNoDelay(true);

    for (const byte of record) {
      peer.write(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }

    await until(() => last() === IDLE, 'the body is here');
    expect(readFileSync(path)).toEqual(BODY.subarray(0, 150));
  });

  test('delivers a body that came with its head, in records of their own', async () => {
    await asked(data(HEAD), data(BODY.subarray(0, 9_000)), data(BODY.subarray(9_000, 20_000)));

    expect((await received(20_000)).equals(BODY.subarray(0, 20_000))).toBe(true);
  });

  test('delivers a body that ends in the record which crosses the end of a step', async () => {
    const end = 2 * BLOCK_BYTES + 100;
    await asked(data(HEAD));

    for (let at = 0; at < end; at += 16_000) send(data(BODY.subarray(at, Math.min(at + 16_000, end))));

    expect((await received(end)).equals(BODY.subarray(0, end))).toBe(true);
  });

  test('receives a head that is longer than one read, in one record', async () => {
    await asked(data(`HTTP/1.1 200 OK\r\nX: ${'x'.repeat(9_000)}\r\n\r\nabc`));

    expect(await received(3)).toEqual(Buffer.from('abc'));
  });

  test('is no longer usable after more bytes than the body has', async () => {
    await asked(data(HEAD), data('abcd'));

    expect(await received(3)).toEqual(Buffer.from('abc'));

    expect(last()).toBe(OVER);
  });

  test('keeps its connection for the next request over a ticket', async () => {
    send(toUs.record(HANDSHAKE, TICKET));
    await new Promise((resolve) => peer.write('', resolve));

    await asked(data(`${HEAD}abc`));

    expect(await received(3)).toEqual(Buffer.from('abc'));
  });

  test.each([
    ['bytes that were not requested', (): Buffer => data('HTTP/1.1 200 OK')],
    ['the end of its connection', (): Buffer => toUs.record(ALERT, CLOSE_NOTIFY)],
    ['a record that is not authentic', (): Buffer => Buffer.concat([data('a').subarray(0, -1), Buffer.from([0])])],
  ])('takes no request after %s', async (_what, record) => {
    send(record());

    await until(() => last() === OVER, 'it is unusable');

    expect(() => receiver.ask(id, REQUEST)).toThrow('ECONNRESET');
    expect(seen.byteLength).toBe(0);
  });

  test.each([
    ['that was changed', (): Buffer => changed(data('def'))],
    ['behind one that was left out', (): Buffer => [data('lost'), data('def')][1] as Buffer],
    ['that came before', (before: Buffer): Buffer => before],
    ['with a new key', (): Buffer => toUs.record(HANDSHAKE, KEY_UPDATE)],
    ['with a part of a ticket', (): Buffer => toUs.record(HANDSHAKE, TICKET.subarray(0, 8))],
    ['without a message', (): Buffer => toUs.record(HANDSHAKE, '')],
    ['of padding only', (): Buffer => toUs.sealed(Buffer.alloc(20))],
    ['of another type', (): Buffer => toUs.record(99, 'def')],
    ['without encryption', (): Buffer => Buffer.from([20, 3, 3, 0, 1, 1])],
    ['shorter than its tag', (): Buffer => Buffer.from([DATA, 3, 3, 0, 3, 1, 2, 3])],
    ['longer than allowed', (): Buffer => Buffer.concat([Buffer.from([DATA, 3, 3, 0xff, 0xff]), Buffer.alloc(100)])],
    ['with more bytes than allowed', (): Buffer => toUs.record(DATA, Buffer.alloc(16_385))],
    ['that ends the connection', (): Buffer => toUs.record(ALERT, CLOSE_NOTIFY)],
  ])('ends its body before a record %s', async (_what, record) => {
    const before = data(HEAD);
    const abc = data('abc');
    await asked(before, abc);

    send(record(abc), data('ghi'));

    expect(await received(1_000)).toEqual(Buffer.from('abc'));
    expect(last()).toBe(OVER);
    receiver.drop(id);
    await until(() => last() === GONE, 'it is gone');
  });

  test.each([
    ['a suite that is not known', 3, 56],
    ['no suite', -1, 56],
    ['keys of another suite', 1, 56],
    ['no keys', 0, 0],
  ])('is not adopted with %s', (_what, suite, length) => {
    const keys = { suite, keys: Buffer.alloc(length), early: Buffer.alloc(0) };
    expect(() => receiver.adopt(file, keys, () => {})).toThrow('EINVAL');
  });
});

function changed(record: Buffer): Buffer {
  const at = record.byteLength - 20;
  record[at] = (record[at] as number) ^ 4;
  return record;
}
