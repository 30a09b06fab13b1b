import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer as createHttpServer, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { TransportError, UsageError } from '../../src/base/errors.ts';
import { systemCertificates } from '../../src/remote/certificates.ts';
import type { Answer } from '../../src/remote/http/answer.ts';
import { Transport } from '../../src/remote/http/transport.ts';
import { until } from './scripted-server.ts';

const options = { userAgent: 'cfs-mount/0.0.0 (test)', clock: systemClock };
const ask = (transport: Transport, path = '/x') =>
  transport.exchange({ method: 'GET', url: transport.origin + path, headers: {}, body: null, signal: undefined });

describe('the address of a service', () => {
  test.each(['http://example.com', 'http://10.0.0.1:80', 'http://127.example.com', 'http://localhost.example.com'])(
    '%s would get the password in the clear',
    (baseUrl) => {
      expect(() => new Transport({ baseUrl, ...options })).toThrow(/in the clear/);
      expect(new Transport({ baseUrl, insecure: true, ...options }).origin).toBe(baseUrl.replace(':80', ''));
    },
  );

  test.each([
    'http://127.0.0.1:8080',
    'http://localhost:8080',
    'http://[::1]:8080',
    'http://127.1.2.3',
    'https://example.com',
  ])('%s is taken', (baseUrl) => {
    expect(new Transport({ baseUrl, ...options }).origin).toBe(baseUrl);
  });

  test.each(['', 'example.com', 'ftp://example.com', 'https://user:secret@example.com', 'file:///x'])(
    '%j is none',
    (baseUrl) => {
      expect(() => new Transport({ baseUrl, ...options })).toThrow(UsageError);
    },
  );
});

describe('over TLS', () => {
  let directory: string;
  let tls: Server;
  let certificate: string;

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'cfs-tls-'));
    const [key, crt] = [join(directory, 'key.pem'), join(directory, 'crt.pem')];
    const subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'];
    const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
    execFileSync('openssl', ['req', '-x509', ...kind, '-keyout', key, '-out', crt, ...subject], { stdio: 'ignore' });
    certificate = readFileSync(crt, 'utf8');
    tls = createTlsServer({ key: readFileSync(key), cert: certificate }, (_request, response) =>
      response.end('secret'),
    );
    await new Promise<void>((resolve) => tls.listen(0, '127.0.0.1', resolve));
  });

  afterAll(async () => {
    tls.closeAllConnections();
    await new Promise((resolve) => tls.close(resolve));
    rmSync(directory, { recursive: true });
  });

  const baseUrl = () => `https://127.0.0.1:${(tls.address() as AddressInfo).port}`;

  test('a certificate that we were told to believe is believed', async () => {
    const transport = new Transport({ baseUrl: baseUrl(), certificates: () => certificate, ...options });

    expect((await (await ask(transport)).bytes(100)).toString()).toBe('secret');
    await transport.close();
  });

  test('any other is not, and is said plainly: nothing was sent', async () => {
    const transport = new Transport({ baseUrl: baseUrl(), ...options });

    const failure = await ask(transport).catch((error: unknown) => error);

    expect(failure).toBeInstanceOf(TransportError);
    expect(failure).toMatchObject({ neverSent: true });
    expect(String(failure)).toMatch(/no trusted connection: .*self.signed/i);
    await transport.close();
  });

  test('the certificates of the system are those of its file', () => {
    expect(systemCertificates() ?? '-----BEGIN').toContain('-----BEGIN');
  });

  test('a certificate authority that was renewed in place is trusted without a restart', async () => {
    let trusted = execFileSync(
      'openssl',
      [
        'req',
        '-x509',
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:prime256v1',
        '-nodes',
        '-keyout',
        '/dev/null',
        '-subj',
        '/CN=before',
      ],
      { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] },
    );
    const transport = new Transport({ baseUrl: baseUrl(), certificates: () => trusted, ...options });
    await expect(ask(transport)).rejects.toThrow(/no trusted connection/);

    trusted = certificate;

    expect(String(await (await ask(transport)).bytes(100))).toBe('secret');
    await transport.close();
  });

  test('one for another name is not', async () => {
    const elsewhere = baseUrl().replace('127.0.0.1', 'localhost');
    const transport = new Transport({ baseUrl: elsewhere, certificates: () => certificate, ...options });

    await expect(ask(transport)).rejects.toThrow(/no trusted connection/);
    await transport.close();
  });
});

describe('a body whose answer begins before all of it is sent', () => {
  const MIB = 1024 * 1024;
  const LENGTH = 64 * MIB;
  let server: Server;
  let transport: Transport;
  let received: number;
  let isLetGo: boolean;

  /** `act` answers, and hears of each piece of the body. */
  async function serve(act: (response: ServerResponse, hasAll: () => boolean) => () => void): Promise<void> {
    received = 0;
    server = createHttpServer((request, response) => {
      const more = act(response, () => received === LENGTH);
      request.on('data', (piece: Buffer) => {
        received += piece.byteLength;
        more();
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  }

  async function put(clock: Clock = systemClock): Promise<Answer> {
    isLetGo = false;
    const { port } = server.address() as AddressInfo;
    transport = new Transport({ baseUrl: `http://127.0.0.1:${port}`, ...options, clock });
    const body = {
      length: LENGTH,
      chunks: async function* () {
        try {
          for (let sent = 0; sent < LENGTH; sent += MIB) yield Buffer.alloc(MIB);
        } finally {
          isLetGo = true;
        }
      },
    };
    return transport.exchange({ method: 'PUT', url: `${transport.origin}/data`, headers: {}, body, signal: undefined });
  }

  afterEach(async () => {
    await transport.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  test('a body whose response comes early is not sent further', async () => {
    await serve((response, hasAll) => {
      response.write('<fileVersion>');
      let quiet = setTimeout(() => {}, 0);
      return () => {
        clearTimeout(quiet);
        quiet = setTimeout(() => response.end('</fileVersion>'), hasAll() ? 0 : 300);
      };
    });

    const answer = await put();

    expect(String(await answer.bytes(100))).toBe('<fileVersion></fileVersion>');
    expect(received).toBeLessThan(LENGTH);
    await until(() => isLetGo, 'the source of the body is let go');
  });

  test('a body whose response comes early is abandoned if the connection breaks', async () => {
    await serve((response) => {
      response.write('<fileVersion>');
      let pieces = 0;
      return () => {
        if (++pieces === 10) response.socket?.resetAndDestroy();
      };
    });

    await put().then(
      (answer) => expect(answer.bytes(100)).rejects.toThrow(TransportError),
      () => {},
    );

    await until(() => isLetGo, 'the source of the body is let go');
    expect(received).toBeLessThan(LENGTH);
  });

  test('a body is sent completely to a service that starts its responses early', async () => {
    await serve((response, hasAll) => {
      response.write('<fileVersion>');
      return () => {
        if (hasAll()) response.end('</fileVersion>');
      };
    });

    const answer = await put({ ...systemClock, after: (_ms, callback) => systemClock.after(0, callback) });

    expect(String(await answer.bytes(100))).toBe('<fileVersion></fileVersion>');
    expect(received).toBe(LENGTH);
    await until(() => isLetGo, 'the source of the body is let go');
  });
});
