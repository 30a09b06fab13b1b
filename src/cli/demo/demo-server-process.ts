import { createLogger } from '../../base/log.ts';
import { failureOf } from '../../mount/failure.ts';
import { ReferenceServer } from '../../server/reference-server.ts';
import type { AdministrationRules } from '../../server/rules.ts';
import type { DemoServerAnswer, DemoServerQuestion } from './demo-server-messages.ts';

/** The embedded server of `npm start`, as a process. Started by `DemoServer` with an IPC channel, never by hand. */

const APPLICATION = 'cfs-mount demo';
const GRACE_MS = 1000;

const [dataDirectory = ''] = process.argv.slice(2);

function answer(message: DemoServerAnswer): void {
  process.send?.(message);
}

async function prepareUser(
  administration: AdministrationRules,
  { email, password }: DemoServerQuestion,
): Promise<DemoServerAnswer> {
  const known = (await administration.users()).find((user) => user.email === email);
  if (known === undefined) await administration.addUser(email, password, { nickname: 'Demo' });
  else {
    // Keys of a start that was killed before its sign-in are useless.
    await administration.setPassword(email, password);
    for (const key of known.keyPairs) await administration.revokeKeyPair(key);
  }
  const application =
    (await administration.applications()).find(({ name }) => name === APPLICATION)?.id ??
    (await administration.addApplication(APPLICATION, { owner: email }));
  return { type: 'user', application, ...(await administration.addKeyPair(email)) };
}

try {
  const server = await ReferenceServer.open({ dataDirectory, log: createLogger({ level: 'warn' }) });
  const stop = async (): Promise<void> => {
    await server.close({ graceMs: GRACE_MS });
    process.exit(0);
  };
  // The channel closes when the parent process closes it or is killed.
  process.once('disconnect', () => void stop());
  process.once('SIGTERM', () => void stop());
  process.on('message', (message: DemoServerQuestion) => {
    prepareUser(server.administration, message).then(answer, (error: unknown) =>
      answer({ type: 'failed', ...failureOf(error) }),
    );
  });
  answer({ type: 'listening', origin: server.origin });
} catch (error) {
  answer({ type: 'failed', ...failureOf(error) });
  process.exitCode = 1;
  process.disconnect?.();
}
