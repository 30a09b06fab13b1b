import { request as httpRequest } from 'node:http';
import type { Socket } from 'node:net';
import type { ServiceProxy } from '../../base/proxy.ts';
import { ProxyFailure, proxySignInFailure } from '../proxy-failure.ts';

const ANSWER_HEADER_BYTES_MAX = 32 * 1024;

/** The header that signs in at a proxy (RFC 7617), where there are credentials. */
export function proxyAuthorization({ credentials }: ServiceProxy): Record<string, string> {
  if (credentials === null) return {};
  const { username, password } = credentials;
  return { 'Proxy-Authorization': `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}` };
}

/**
 * Asks the proxy at the other end of `socket` for a tunnel to `authority` (`host:port`; RFC 9110, 9.3.6). The caller ends the wait by
 * destroying the socket.
 *
 * @throws ProxyFailure where the proxy refuses, closes, or does not speak HTTP
 */
export function openTunnel(socket: Socket, authority: string, proxy: ServiceProxy): Promise<void> {
  return new Promise((resolve, reject) => {
    const asked = httpRequest({
      method: 'CONNECT',
      path: authority,
      headers: { Host: authority, 'Proxy-Connection': 'keep-alive', ...proxyAuthorization(proxy) },
      createConnection: () => socket,
      maxHeaderSize: ANSWER_HEADER_BYTES_MAX,
    });
    asked.on('connect', ({ statusCode: status = 0, statusMessage }, _socket, head) => {
      if (status >= 200 && status < 300) {
        if (head.byteLength > 0) socket.unshift(head);
        resolve();
      } else if (status === 407) reject(proxySignInFailure(proxy));
      else
        reject(
          new ProxyFailure(proxy, `refuses the connection to ${authority}: ${status} ${statusMessage}`, { status }),
        );
    });
    asked.on('error', (cause: NodeJS.ErrnoException) => {
      const what = cause.code?.startsWith('HPE_') ? 'gave an answer that is not HTTP' : 'closed the connection';
      reject(new ProxyFailure(proxy, `${what}: ${cause.message}`, { cause }));
    });
    asked.end();
  });
}
