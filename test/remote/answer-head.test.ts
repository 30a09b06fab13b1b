import { describe, expect, test } from 'vitest';
import { plainHead } from '../../src/remote/http/answer-head.ts';

/** What is taken for a plain answer, whose body is as long as it says. All else is for undici. */

function headOf(...lines: string[]): ReturnType<typeof plainHead> {
  return plainHead(Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'));
}

describe('a plain head', () => {
  test('says what it says', () => {
    const head = headOf(
      'HTTP/1.1 206 Partial Content',
      'content-LENGTH: 1000',
      'Content-Range:bytes 0-999/5000\t ',
      'Connection: keep-alive',
      'Keep-Alive: timeout=5, max=100',
      'X-Twice: a',
      'X-Twice: b',
      'Content-Type: Application/X; q="Text/html"',
    );

    expect(head).toMatchObject({ status: 206, contentLength: 1000, isLasting: true, keptMs: 5000 });
    expect(head?.header('content-range')).toBe('bytes 0-999/5000');
    expect(head?.headers['x-twice']).toEqual(['a', 'b']);
    expect(head?.mediaType).toBe('application/x');
  });

  test.each([
    ['HTTP/1.1 200', 'Content-Length: 0'],
    ['HTTP/1.1 503 Nicht verf\u00fcgbar', 'Content-Length: 12'],
  ])('%s is one', (...lines) => {
    expect(headOf(...lines)).not.toBeNull();
  });

  test.each(['close', 'Close', 'upgrade, close', 'close,x'])('Connection: %s ends the connection', (value) => {
    expect(headOf('HTTP/1.1 200 OK', 'Content-Length: 1', `Connection: ${value}`)?.isLasting).toBe(false);
  });

  test.each<[string, string[]]>([
    ['no length', ['HTTP/1.1 200 OK']],
    ['two lengths', ['HTTP/1.1 200 OK', 'Content-Length: 5', 'Content-Length: 5']],
    ['a list of lengths', ['HTTP/1.1 200 OK', 'Content-Length: 5, 5']],
    ['a signed length', ['HTTP/1.1 200 OK', 'Content-Length: +5']],
    ['a hexadecimal length', ['HTTP/1.1 200 OK', 'Content-Length: 0x5']],
    ['an endless length', ['HTTP/1.1 200 OK', `Content-Length: ${'9'.repeat(16)}`]],
    ['chunks', ['HTTP/1.1 200 OK', 'Content-Length: 5', 'Transfer-Encoding: chunked']],
    ['a coding', ['HTTP/1.1 200 OK', 'Content-Length: 5', 'Content-Encoding: gzip']],
    ['HTTP/1.0', ['HTTP/1.0 200 OK', 'Content-Length: 5']],
    ['an interim answer', ['HTTP/1.1 103 Early Hints', 'Content-Length: 5']],
    ['no content', ['HTTP/1.1 204 No Content', 'Content-Length: 5']],
    ['not modified', ['HTTP/1.1 304 Not Modified', 'Content-Length: 5']],
    ['a line that goes on', ['HTTP/1.1 200 OK', 'Content-Length: 5', 'X: a', ' b']],
    ['a space before the colon', ['HTTP/1.1 200 OK', 'Content-Length : 5']],
    ['a bare line feed', ['HTTP/1.1 200 OK', 'Content-Length: 5\nX: 1']],
    ['a control character', ['HTTP/1.1 200 OK', 'Content-Length: 5', 'X: \u0000']],
    ['another protocol', ['SSH-2.0-OpenSSH']],
    ['no-break spaces around its length', ['HTTP/1.1 200 OK', 'Content-Length: 5\u00a0']],
    ['nothing', ['']],
  ])('is not one with %s', (_what, lines) => {
    expect(headOf(...lines)).toBeNull();
  });

  test('a head with many blanks is refused in linear time', () => {
    // The regular expression engine counts no steps. A quadratic one takes most of a minute for this line: the test times out.
    const blanks = ' '.repeat(250_000);
    expect(headOf('HTTP/1.1 200 OK', 'Content-Length: 5', `A:${blanks}\u0000`)).toBeNull();
    expect(headOf('HTTP/1.1 200 OK', 'Content-Length: 5', `A:${blanks}x${blanks}`)?.header('a')).toBe('x');
  });
});
