import { randomBytes } from 'node:crypto';
import type { Clock } from '../../base/clock.ts';
import { silentLogger } from '../../base/log.ts';
import type { Paths } from '../../config/paths.ts';
import { DIRECT_ROUTE } from '../../mount/service-route.ts';
import { openService } from '../../remote/open-service.ts';
import { signIn } from '../commands/login.ts';
import { rememberAccount } from './demo-account.ts';
import type { DemoServer } from './demo-server.ts';
import { demoTree, plantTree } from './demo-tree.ts';

const EMAIL = 'demo@example.com';

/**
 * The first start of `cfs demo`: a user, a sign-in, a tree. A start that was killed may have done some of the steps, so all of
 * them can be repeated.
 *
 * @returns the account's name
 */
export async function newAccount(deps: { paths: Paths; clock: Clock }, server: DemoServer): Promise<string> {
  const password = randomBytes(18).toString('base64url'); // used once and not stored
  const keys = await server.prepareUser(EMAIL, password);
  const how = {
    origin: server.origin,
    inputs: { username: EMAIL, password, ...keys },
    route: DIRECT_ROUTE,
  };
  const { name, account } = await signIn({ ...deps, log: silentLogger }, how);
  const service = openService({
    baseUrl: server.origin,
    userAgent: 'cfs-mount',
    keys,
    refreshToken: account.refreshToken,
    clock: deps.clock,
    log: silentLogger,
  });
  try {
    await plantTree(service, (await service.user()).home, demoTree());
  } finally {
    await service.close();
  }
  rememberAccount(deps.paths, { origin: server.origin, name });
  return name;
}
