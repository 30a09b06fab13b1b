import type { Clock } from '../base/clock.ts';
import { silentLogger } from '../base/log.ts';
import { programVersion } from '../base/program-version.ts';
import { accountPaths, type Paths } from '../config/paths.ts';
import { readAccountFile } from '../mount/account-file.ts';
import { routeTo } from '../mount/service-route.ts';
import type { RemoteService } from '../remote/contract.ts';
import { openService } from '../remote/open-service.ts';
import { settledOptions } from './option-flags.ts';
import type { ServiceWait } from './service-wait.ts';

/** What a command needs that speaks with the service itself. */
export interface ServiceDeps {
  readonly paths: Paths;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly wait: ServiceWait;
}

/** How long a command waits for documents of the service; bytes have no limit but that something moves. */
export const DOCUMENTS_MS_MAX = 60_000;

/**
 * Runs `use` with the service as the account's user: with a connection of its own, so that it works with nothing mounted, and a
 * mount that is busy does not delay it.
 *
 * @param name the account's name
 * @throws UsageError (unreachable) when `--timeout` is over; `use` is left alone then, and the connection ends
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
