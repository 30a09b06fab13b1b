import type { Options } from '../config/options.ts';
import { needed } from '../remote/capability.ts';
import type { RemoteService } from '../remote/contract.ts';

/**
 * The options of a mount, as far as the service can carry them out. A mount of a service that takes no bytes is read-only.
 *
 * @throws UsageError for an option that needs more than the service has
 */
export function capableOptions(
  options: Options,
  service: Pick<RemoteService, 'uploads' | 'trash' | 'wholeAccount'>,
): Options {
  const readOnly = options.readOnly || service.uploads === null;
  if (!readOnly && options.deletion === 'trash') needed(service.trash, 'has no trash: mount with --delete forever');
  if (options.root === 'account') needed(service.wholeAccount, 'shows no whole account: mount without --root account');
  return { ...options, readOnly };
}
