import type { Clock } from '../base/clock.ts';
import { silentLogger } from '../base/log.ts';
import { programVersion } from '../base/program-version.ts';
import { accountPaths, type Paths } from '../config/paths.ts';
import { readAccountFile } from '../mount/account-file.ts';
import { routeTo } from '../mount/service-route.ts';
import { settledOptions } from '../mount/settled-options.ts';
import type { RemoteService } from '../remote/contract.ts';
import { openService } from '../remote/open-service.ts';
import type { ServiceWait } from './service-wait.ts';

/** The dependencies of a command that contacts the service directly. */
export interface ServiceDeps {
  readonly paths: Paths;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly wait: ServiceWait;
}

/** Limit of a command's wait for a document of the service. Transfers of bytes have no limit while they progress. */
export const DOCUMENTS_MS_MAX = 60_000;

/**
 * Runs `use` with the service, signed in as the account's user. It has its own connection: it works without a mount, and a busy mount
 * does not delay it.
 *
 * @param name the account's name
 * @throws UsageError with the exit code `unreachable` when the time of `--timeout` is over. `use` is abandoned then; in any case the
 * connection is closed.
 */
export async function withService<T>(
  deps: ServiceDeps,
  name: string,
  use: (service: RemoteService) => Promise<T>,
): Promise<T> {
  const account = readAccountFile(accountPaths(deps.paths, name).accountFile);
  const service = openService({
    baseUrl: account.origin,
    keys: account,
    refreshToken: account.refreshToken,
    userAgent: `cfs/${programVersion()}`,
    ...routeTo(account.origin, { env: deps.env, options: settledOptions(deps.env, deps.paths), known: account }),
    clock: deps.clock,
    log: silentLogger,
  });
  try {
    return await deps.wait.for(account.origin, () => use(service));
  } finally {
    await service.close();
  }
}
