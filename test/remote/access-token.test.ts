import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SignInError } from '../../src/base/errors.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { AccessToken } from '../../src/remote/http/access-token.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { ManualClock } from '../tree/tree-fixture.ts';
import { clientOf, HastyClock, KEYS } from './client.ts';
import { hang, loseAnswer, raw, reply, ScriptedServer, type SeenRequest, until, xml } from './scripted-server.ts';

const FOLDER = '<folder><displayName>a</displayName><contents>c</contents></folder>';

let server: ScriptedServer;
let clock: HastyClock;
let service: HttpService;
let refusals: SignInError[];
let acceptances: number;

beforeEach(async () => {
  server = await ScriptedServer.start();
  server.otherwise = xml(FOLDER);
  clock = new HastyClock();
  refusals = [];
  acceptances = 0;
  service = clientOf(server.baseUrl, {
    clock,
    onSignInRequired: (error) => refusals.push(error),
    onSignedIn: () => acceptances++,
  });
});

afterEach(async () => {
  await service.close();
  await server.close();
});

const ask = (signal?: AbortSignal) => service.resource(server.url('/folder/:sc:1:1') as ResourceUrl, 'folder', signal);
const tokensUsed = () => server.requests.map(({ headers }) => headers.authorization?.replace(/.*\//, ''));

test('one token is asked for, however many ask for something', async () => {
  await Promise.all(Array.from({ length: 20 }, () => ask()));

  expect(server.tokenRequests).toHaveLength(1);
  expect(new Set(tokensUsed())).toEqual(new Set(['T1']));
});

test('a token is renewed before it expires, once', async () => {
  await ask();
  clock.aheadMs = server.tokenLifeMs - 59_000;

  await Promise.all([ask(), ask(), ask()]);

  expect(server.tokenRequests).toHaveLength(2);
  expect(tokensUsed()).toEqual(['T1', 'T2', 'T2', 'T2']);
});

test('how long it lives is told by the clock of the service', async () => {
  // This machine is two days ahead: by its own clock every token has long expired.
  clock.aheadMs = 2 * 86_400_000;

  await ask();
  await ask();

  expect(server.tokenRequests).toHaveLength(1);
});

test('one without a Date header, which has expired by a clock that is ahead, is used until it is refused', async () => {
  clock.aheadMs = 2 * 86_400_000;
  server.tokens = {
    act: (socket) => {
      const expiration = new Date(Date.now() + server.tokenLifeMs).toISOString();
      const body = `<authorization><expiration>${expiration}</expiration><user>${server.url('/user/1')}</user></authorization>`;
      const location = server.url(`/authorization/T${server.tokenRequests.length}`);
      const head = `HTTP/1.1 201 Created\r\nLocation: ${location}\r\nContent-Length: ${body.length}\r\n\r\n`;
      raw(head + body, 'stay').act(socket, server.tokenRequests[0] as SeenRequest);
    },
  };

  await ask();
  await ask();
  expect(tokensUsed()).toEqual(['T1', 'T1']);

  server.steps = [reply(401)];
  await ask();
  expect(tokensUsed()).toEqual(['T1', 'T1', 'T1', 'T2']);
});

describe('a storm of 401', () => {
  test('a storm of 401 causes one renewal, and every request is repeated', async () => {
    await ask();
    server.otherwise = {
      act: (socket, request) =>
        (request.headers.authorization?.endsWith('/T1') ? reply(401) : xml(FOLDER)).act(socket, request),
    };

    await Promise.all(Array.from({ length: 8 }, () => ask()));

    expect(server.tokenRequests).toHaveLength(2);
    expect(server.requests).toHaveLength(17);
  });

  test('a 401 after one renewal is returned to the caller', async () => {
    server.otherwise = reply(401);

    await expect(ask()).rejects.toMatchObject({ name: 'ApiError', status: 401 });
    expect(server.requests).toHaveLength(2);
    expect(refusals).toEqual([]);
  });
});

/** As the service refuses a sign-in: it tells one that it does not know from a request without one. */
const refused = {
  act: (socket, request) => reply(isMalformed(request) ? 400 : 401).act(socket, request),
} satisfies ScriptedServer['tokens'];

function isMalformed(request: SeenRequest): boolean {
  return !request.body.toString().includes('<refreshToken>');
}

describe('a refused refresh token', () => {
  beforeEach(() => {
    server.tokens = refused;
  });

  test('a refused refresh token is reported once, and further calls send no request', async () => {
    const failures = await Promise.all(Array.from({ length: 5 }, () => ask().catch((error: unknown) => error)));
    await expect(ask()).rejects.toMatchObject({ name: 'SignInError' });

    expect(failures.every((error) => (error as Error).name === 'SignInError')).toBe(true);
    expect(refusals).toHaveLength(1);
    expect(service.signInRequired).toBe(true);
    expect(server.tokenRequests.map(isMalformed)).toEqual([false, true]);
    expect(server.requests).toEqual([]);
  });

  test('a refused refresh token is tried again after a minute', async () => {
    await ask().catch(() => {});
    clock.aheadMs = 61_000;
    server.tokens = new ScriptedTokens(server).good;

    await ask();

    expect(service.signInRequired).toBe(false);
  });

  test('a refresh token that is refused again is not reported again', async () => {
    await ask().catch(() => {});
    clock.aheadMs = 61_000;
    await ask().catch(() => {});

    expect(server.tokenRequests.map(isMalformed)).toEqual([false, true, false]);
    expect(refusals).toHaveLength(1);
  });

  test('a refusal of the refresh token ends with another token', async () => {
    await ask().catch(() => {});
    server.tokens = new ScriptedTokens(server).good;

    service.useSignIn(KEYS, server.url('/app-authorization/R2'));
    await ask();

    expect(service.signInRequired).toBe(false);
    expect(acceptances).toBe(1);
    expect(server.tokenRequests.at(-1)?.body.toString()).toContain('/app-authorization/R2</refreshToken>');
  });

  test('a newer refresh token that arrives during a refused request ends the refusal', async () => {
    let refuse = () => {};
    server.tokens = {
      act: (socket, request) => {
        refuse = () => reply(401).act(socket, request);
      },
    };
    const waiting = ask();
    await until(() => server.tokenRequests.length === 1, 'the token is asked for');

    server.tokens = new ScriptedTokens(server).good;
    service.useSignIn(KEYS, server.url('/app-authorization/R2'));
    refuse();

    expect(await waiting).toMatchObject({ name: 'a' });
    expect(service.signInRequired).toBe(false);
    expect(refusals).toEqual([]);
  });

  test('two refused refresh tokens are reported as one refusal', async () => {
    await ask().catch(() => {});

    service.useSignIn(KEYS, server.url('/app-authorization/R2'));
    await expect(ask()).rejects.toMatchObject({ name: 'SignInError' });

    expect(refusals).toHaveLength(1);
    expect(acceptances).toBe(0);
    expect(service.signInRequired).toBe(true);
  });
});

/** [S-network-1] */
describe.each([401, 403])('a network that answers every request with %i', (status) => {
  beforeEach(() => {
    server.tokens = reply(status);
    server.otherwise = reply(status);
  });

  test('a network that refuses every request asks for no sign-in, and the saved session works once it recovers', async () => {
    for (let minute = 0; minute < 4; minute++) {
      await expect(ask()).rejects.toMatchObject({ name: 'TransportError', neverSent: true });
      clock.aheadMs += 60_000;
    }
    expect([refusals, service.signInRequired]).toEqual([[], false]);

    server.tokens = new ScriptedTokens(server).good;
    server.otherwise = xml(FOLDER);
    expect(await ask()).toMatchObject({ name: 'a' });
  });

  test('a network that refuses every request is retried at growing intervals', async () => {
    for (let second = 0; second < 240; second++) {
      await ask().catch(() => {});
      clock.aheadMs += 1_000;
    }
    expect(server.tokenRequests.length).toBeLessThan(80);
  });

  test('a network that refuses every request for five minutes asks for a sign-in, because it may be the service', async () => {
    for (let minute = 0; minute < 7; minute++) {
      await ask().catch(() => {});
      clock.aheadMs += 60_000;
    }

    expect(refusals).toHaveLength(1);
    expect(service.signInRequired).toBe(true);
  });
});

/** [S-signin-2] */
test('a refused refresh token is retried without a caller, after pauses that grow to an hour', async () => {
  const time = new ManualClock();
  const askedMs: number[] = [];
  let isWell = false;
  let signedIn = 0;
  const token = new AccessToken({
    isFromService: async () => true,
    issue: async () => {
      askedMs.push(time.elapsedMs());
      if (!isWell) throw new SignInError('refused');
      const expiresMs = time.nowMs() + 3_600_000;
      return { token: 'T', expiresMs, serverTimeMs: time.nowMs(), user: 'user' };
    },
    clock: time,
    onSignInRequired: () => {},
    onSignedIn: () => void signedIn++,
  });
  const pass = async (minutes: number) => {
    for (let minute = 0; minute < minutes; minute++) {
      time.advance(60_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
  };

  await expect(token.current(undefined)).rejects.toThrow('refused');
  await pass(600);
  const pausesMs = askedMs.slice(1).map((at, nth) => at - (askedMs[nth] ?? 0));
  expect(pausesMs.length).toBeGreaterThan(10);
  for (const [nth, ms] of pausesMs.entries()) {
    const minutes = Math.min(2 ** nth, 60);
    expect(ms / 60_000).toBeGreaterThanOrEqual(minutes);
    expect(ms / 60_000).toBeLessThan(minutes * 1.25 + 1); // a minute passes at a time here
  }

  isWell = true;
  await pass(70);
  expect([signedIn, token.signInRequired]).toEqual([1, false]);
  const asked = askedMs.length;
  await pass(600);
  expect(askedMs.length).toBe(asked);
  token.close();
});

test('nobody has signed in yet: nothing is sent', async () => {
  const stranger = clientOf(server.baseUrl, { refreshToken: null });

  await expect(stranger.user()).rejects.toMatchObject({ name: 'SignInError' });
  expect(server.tokenRequests).toEqual([]);
  await stranger.close();
});

test('one who waits for the token may give up without taking it from the others', async () => {
  const good = server.tokens;
  let release = () => {};
  server.tokens = {
    act: (socket, request) => {
      release = () => good.act(socket, request);
    },
  };
  const controller = new AbortController();
  const impatient = ask(controller.signal);
  impatient.catch(() => {});
  const patient = ask();
  await until(() => server.tokenRequests.length === 1, 'the token is asked for');

  controller.abort(new DOMException('enough', 'AbortError'));
  await expect(impatient).rejects.toMatchObject({ name: 'AbortError' });
  release();

  expect(await patient).toMatchObject({ name: 'a' });
});

test('a cancelled caller requests no token', async () => {
  let asked = 0;
  const token = new AccessToken({
    isFromService: async () => true,
    issue: () => {
      asked += 1;
      return Promise.reject(new Error('no answer'));
    },
    clock,
    onSignInRequired: () => {},
    onSignedIn: () => {},
  });

  await expect(token.current(AbortSignal.abort(new Error('given up')))).rejects.toThrow('given up');

  expect(asked).toBe(0);
});

test('a lost answer to a token request is asked for again', async () => {
  const good = server.tokens;
  let lost = 0;
  server.tokens = { act: (socket, request) => (lost++ === 0 ? loseAnswer() : good).act(socket, request) };

  expect(await ask()).toMatchObject({ name: 'a' });
});

test('a service that cannot give tokens now is not a refusal', async () => {
  server.tokens = reply(500);

  await expect(ask()).rejects.toMatchObject({ name: 'ApiError', status: 500 });
  expect(service.signInRequired).toBe(false);
});

test('an expired token from the service is not used', async () => {
  server.tokenLifeMs = -1000;

  await expect(ask()).rejects.toMatchObject({ name: 'ProtocolError' });
});

describe('signing in', () => {
  test('sends the five values and goes on with the new refresh token', async () => {
    const good = server.tokens;
    const location = server.url('/app-authorization/R9');
    server.tokens = {
      act: (socket, request) =>
        (request.path === '/app-authorization' ? reply(201, { Location: location }) : good).act(socket, request),
    };
    const stranger = clientOf(server.baseUrl, { refreshToken: null });

    expect(await stranger.signIn({ username: 'a@example.com', password: '<&>' })).toBe(location);
    await stranger.resource(server.url('/folder/:sc:1:1') as ResourceUrl, 'folder');

    expect(server.tokenRequests[0]?.body.toString()).toBe(
      '<?xml version="1.0" encoding="UTF-8" standalone="yes"?><appAuthorization><username>a@example.com</username>' +
        '<password>&lt;&amp;&gt;</password><application>/sc/1/1_1</application><accessKeyId>AK</accessKeyId>' +
        '<privateAccessKey>PK</privateAccessKey></appAuthorization>',
    );
    expect(server.tokenRequests[1]?.body.toString()).toContain(location);
    await stranger.close();
  });

  test('with a wrong password says so and nothing else', async () => {
    server.tokens = reply(401);

    const failure = await service.signIn({ username: 'a', password: 'hunter2' }).catch((error: unknown) => error);

    expect(failure).toMatchObject({ name: 'SignInError' });
    expect(JSON.stringify(failure) + String(failure)).not.toContain('hunter2');
  });
});

test('closing ends a wait for the token', async () => {
  server.tokens = hang;
  const waiting = ask();
  waiting.catch(() => {});
  await until(() => server.tokenRequests.length === 1, 'the token is asked for');

  await service.close();

  await expect(waiting).rejects.toBeInstanceOf(Error);
});

/** What a fresh server answers to token requests. */
class ScriptedTokens {
  readonly good: ScriptedServer['tokens'];
  constructor(server: ScriptedServer) {
    this.good = {
      act: (socket, request) => {
        const expiration = new Date(Date.now() + 3_600_000).toISOString().replace('Z', '+00:00');
        const body = `<authorization><expiration>${expiration}</expiration><user>${server.url('/user/1')}</user></authorization>`;
        reply(201, { Location: server.url('/authorization/later') }, body).act(socket, request);
      },
    };
  }
}
