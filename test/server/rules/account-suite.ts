import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { UsageError } from '../../../src/base/errors.ts';
import { type BackEnd, from, newAccount, newCredentials, type OpenBackEnd, outcome, outcomes } from './back-end.ts';

const TOKEN_MS = 60_000;
const HOME = from('192.0.2.1');

/** The demands of `AccountRules` and `AdministrationRules` on each implementation. */
export function accountSuite(title: string, open: OpenBackEnd): void {
  describe(title, () => {
    let backEnd: BackEnd;
    beforeAll(async () => {
      backEnd = await open({ accessTokenMs: TOKEN_MS });
    });
    afterAll(() => backEnd.close());

    const accounts = () => backEnd.rules.accounts;
    const signedIn = async () => {
      const account = await newAccount(backEnd);
      const credentials = await newCredentials(backEnd, account);
      const { secret: refresh } = await accounts().createRefreshToken(credentials, HOME);
      const asked = { ...credentials, refreshToken: '' };
      const { secret: access } = await accounts().createAccessToken(asked, refresh);
      return { account, credentials, asked, refresh, access };
    };

    test('an access token opens a session until it expires', async () => {
      const { account, asked, refresh } = await signedIn();
      const issued = await accounts().createAccessToken(asked, refresh);
      expect(issued).toMatchObject({ uid: account.uid, expiresMs: backEnd.clock.nowMs() + TOKEN_MS });

      backEnd.clock.advance(TOKEN_MS - 1);
      expect(await accounts().session(issued.secret)).toMatchObject({ uid: account.uid });
      backEnd.clock.advance(1);
      expect(await accounts().session(issued.secret)).toBeNull();
      expect(await outcome(accounts().createAccessToken(asked, refresh))).toBe('done');
    });

    test('a secret of one kind of token is refused as the other kind', async () => {
      const { asked, refresh, access } = await signedIn();
      expect(await accounts().session(refresh)).toBeNull();
      expect(await outcome(accounts().createAccessToken(asked, access))).toBe(401);
      expect(await outcome(accounts().createAccessToken(asked, null))).toBe(401);
    });

    test('expiring a session ends no other session of the same refresh token', async () => {
      const { asked, refresh, access } = await signedIn();
      const other = await accounts().createAccessToken(asked, refresh);
      const session = await accounts().session(access);
      if (session === null) throw new Error('no session');
      await accounts().expire(session);
      expect(await accounts().session(access)).toBeNull();
      expect(await accounts().session(other.secret)).not.toBeNull();
    });

    test('wrong input of a sign-in is always the same refusal', async () => {
      const { credentials } = await signedIn();
      const disabled = await backEnd.administration.addApplication('disabled');
      await backEnd.administration.setApplicationEnabled(disabled, false);
      const wrong = [
        { username: 'nobody@example.com' },
        { username: `${'x'.repeat(300)}@example.com` },
        { password: 'wrong' },
        { accessKeyId: '0'.repeat(20) },
        { accessKeyId: 'x'.repeat(5000) },
        { privateAccessKey: 'wrong' },
        { application: '/sc/1000/1_1' },
        { application: disabled },
      ];
      const messages = new Set<string>();
      for (const [at, change] of wrong.entries()) {
        const rule = accounts().createRefreshToken({ ...credentials, ...change }, from(`198.51.100.${at}`));
        expect(await outcome(rule), JSON.stringify(change).slice(0, 80)).toBe(401);
        await rule.catch((error: Error) => messages.add(error.message));
      }
      expect(messages.size).toBe(1);
    });

    test('an e-mail address is the same in other letters and between spaces', async () => {
      const { credentials } = await signedIn();
      const other = { ...credentials, username: ` ${credentials.username.toUpperCase()} ` };
      expect(await outcome(accounts().createRefreshToken(other, HOME))).toBe('done');
    });

    test('wrong passwords from a network make that network wait, and no other', async () => {
      const { account, credentials } = await signedIn();
      const others = await newCredentials(backEnd, await newAccount(backEnd));
      const guess = { ...others, username: account.email, password: 'wrong' };
      const network = from('203.0.113.9');
      for (let count = 0; count < 5; count += 1)
        expect(await outcome(accounts().createAccessTokenByPassword(guess, network))).toBe(401);
      expect(await outcome(accounts().createAccessTokenByPassword(guess, network))).toBe(503);
      expect(await outcome(accounts().createAccessTokenByPassword(credentials, HOME))).toBe('done');
      backEnd.clock.advance(1000);
      expect(await outcome(accounts().createAccessTokenByPassword(guess, network))).toBe(401);
    });

    test('signing a user out ends all tokens, and none of another user', async () => {
      const { account, credentials, asked, refresh, access } = await signedIn();
      const other = await signedIn();
      const { secret: byPassword } = await accounts().createAccessTokenByPassword(credentials, HOME);
      const sessions = [await accounts().session(access), await accounts().session(byPassword)];
      const mayReadOn = () =>
        Promise.all(
          sessions.map((session) => {
            if (session === null) throw new Error('no session');
            return backEnd.rules.repository.mayReadOn(session, account.at('2'));
          }),
        );
      expect(await mayReadOn()).toEqual([true, true]);

      expect(await backEnd.administration.revokeTokens(account.email)).toBe(1);

      expect(await accounts().session(access)).toBeNull();
      expect(await accounts().session(byPassword)).toBeNull();
      expect(await mayReadOn()).toEqual([false, false]);
      expect(await outcome(accounts().createAccessToken(asked, refresh))).toBe(401);
      expect(await accounts().session(other.access)).not.toBeNull();
    });

    test('a disabled application gets no new token, and no new access token for an old one', async () => {
      const { credentials, asked, refresh, access } = await signedIn();
      await backEnd.administration.setApplicationEnabled(credentials.application, false);
      expect(await outcome(accounts().createRefreshToken(credentials, HOME))).toBe(401);
      expect(await outcome(accounts().createAccessToken(asked, refresh))).toBe(401);
      expect(await accounts().session(access)).not.toBeNull();
    });

    test('a revoked key pair gets no token', async () => {
      const { credentials, asked, refresh } = await signedIn();
      await backEnd.administration.revokeKeyPair(credentials.accessKeyId);
      expect(await outcome(accounts().createRefreshToken(credentials, HOME))).toBe(401);
      expect(await outcome(accounts().createAccessToken(asked, refresh))).toBe(401);
      await expect(backEnd.administration.revokeKeyPair(credentials.accessKeyId)).rejects.toThrow(UsageError);
    });

    test('of 258 refresh tokens the two that were not used for the longest time are dropped', async () => {
      const { credentials, asked, refresh } = await signedIn();
      const secrets: string[] = [];
      for (let count = 1; count < 258; count += 1) {
        backEnd.clock.advance(2 * 3600_000);
        if (count === 256) await accounts().createAccessToken(asked, refresh);
        secrets.push((await accounts().createRefreshToken(credentials, HOME)).secret);
      }
      const kept = [refresh, ...secrets.slice(0, 3)].map((secret) =>
        outcome(accounts().createAccessToken(asked, secret)),
      );
      expect(await Promise.all(kept)).toEqual(['done', 401, 401, 'done']);
    });

    test('of simultaneous creations of one account exactly one succeeds', async () => {
      const { email } = await newAccount(backEnd);
      const address = `new-${email}`;
      const made = await Promise.allSettled(
        [address, address.toUpperCase(), ` ${address}`, address].map((each) =>
          backEnd.administration.addUser(each, 'x', { scryptCost: 2 ** 10 }),
        ),
      );
      expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
      expect((await backEnd.administration.users()).filter((user) => user.email === address)).toHaveLength(1);
    });

    test('an account has at most ten key pairs, also if they are added at the same time', async () => {
      const { email } = await newAccount(backEnd);
      const added = await Promise.allSettled(
        Array.from({ length: 12 }, () => backEnd.administration.addKeyPair(email)),
      );
      const kept = added.flatMap((each) => (each.status === 'fulfilled' ? [each.value.accessKeyId] : []));
      const [user] = (await backEnd.administration.users()).filter((each) => each.email === email);
      expect(kept).toHaveLength(10);
      expect([...(user?.keyPairs ?? [])].sort()).toEqual(kept.sort());
    });

    test('a new account has its system folders, a name and no usage', async () => {
      const account = await newAccount(backEnd);
      const { row, usageBytes } = await accounts().user(account.uid);
      const query = { type: null, start: null, max: null, order: null };
      const top = await backEnd.rules.repository.listTop(account.uid, query);
      expect(row).toMatchObject({ email: account.email, nickname: account.email.split('@')[0] });
      expect(usageBytes).toBe(0);
      expect(top.entries.map(({ local, role }) => `${local} ${role}`)).toEqual(
        ['1', '2', '3', '9'].map((local) => `${local} system`),
      );
    });

    test('a removed account ends its tokens and shares, and its id is not given again', async () => {
      const { account, access } = await signedIn();
      const friend = await newAccount(backEnd);
      await backEnd.administration.share(account.email, '2', friend.email, { writeAllowed: true });

      await backEnd.administration.removeUser(account.email);

      expect(await accounts().session(access)).toBeNull();
      expect(await outcome(accounts().user(account.uid))).toBe(404);
      expect(await backEnd.rules.collections.receivedShares(friend.uid)).toEqual([]);
      expect(await outcome(backEnd.rules.repository.folder(friend.uid, account.at('2')))).toBe(404);
      await expect(backEnd.administration.checkUser(account.email)).rejects.toThrow(UsageError);
      const again = await backEnd.administration.addUser(account.email, 'x', { scryptCost: 2 ** 10 });
      expect(again.userId).not.toBe(account.uid);
    });

    test('a mistake of the operator is a UsageError', async () => {
      const { email } = await newAccount(backEnd);
      const { administration } = backEnd;
      const mistakes = [
        () => administration.addUser('no address', 'x'),
        () => administration.addUser('a@example.com', ''),
        () => administration.addUser(email, 'x', { scryptCost: 2 ** 10 }),
        () => administration.setPassword(email, ''),
        () => administration.setQuota('nobody@example.com', 1),
        () => administration.addKeyPair('nobody@example.com'),
        () => administration.setApplicationEnabled('/sc/1000/1_1', true),
        () => administration.share(email, '2', email, { writeAllowed: true }),
        () => administration.unshare(email, '2', 'nobody@example.com'),
      ];
      for (const mistake of mistakes) await expect(mistake(), mistake.toString()).rejects.toThrow(UsageError);
    });

    test('simultaneous changes of one user are all kept', async () => {
      const { account, credentials } = await signedIn();
      const networks = ['192.0.2.11', '192.0.2.12', '192.0.2.13'];
      const results = await outcomes([
        ...networks.map((network) => accounts().createRefreshToken(credentials, from(network))),
        backEnd.administration.setQuota(account.email, 12_345),
      ]);
      const { row } = await accounts().user(account.uid);
      expect(results).toEqual(['done', 'done', 'done', 'done']);
      expect(row.quotaBytes).toBe(12_345);
      expect(row.networks).toHaveLength(4);
    });
  });
}
